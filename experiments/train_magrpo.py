"""Train several agents as in the published experiments: see README.md in this folder."""

from motet_published.command import main

if __name__ == "__main__":
    main("magrpo")
