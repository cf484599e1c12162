"""Train agents with one shared critic, as in the published experiments: see README.md here."""

from motet_published.command import main

if __name__ == "__main__":
    main("maac")
