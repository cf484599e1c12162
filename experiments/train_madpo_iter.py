"""Train on pairs of every iteration (iterative MADPO): see README.md in this folder."""

from motet_published.command import main

if __name__ == "__main__":
    main("madpo_iter")
