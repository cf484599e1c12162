"""Train agents that debate, as in MAPoRL's experiments: see README.md in this folder."""

from motet.experiments.command import main

if __name__ == "__main__":
    main("maporl")
