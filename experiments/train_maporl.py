"""Train agents that debate, as in MAPoRL's experiments: see README.md in this folder."""

from motet_published.command import main

if __name__ == "__main__":
    main("maporl")
