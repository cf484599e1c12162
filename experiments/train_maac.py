"""Train agents with one shared critic, as in the published experiments: see README.md here."""

from motet.experiments.command import main

if __name__ == "__main__":
    main("maac")
