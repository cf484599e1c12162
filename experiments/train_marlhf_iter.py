"""Train on a reward model that learns again (iterative MARLHF): see README.md in this folder."""

from motet_published.command import main

if __name__ == "__main__":
    main("marlhf_iter")
