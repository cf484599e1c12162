"""Train agents with one critic each, as in the published experiments: see README.md here."""

from motet_published.command import main

if __name__ == "__main__":
    main("iac")
