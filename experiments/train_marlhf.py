"""Train on the scores of a reward model (MARLHF): see README.md in this folder."""

from motet_published.command import main

if __name__ == "__main__":
    main("marlhf")
