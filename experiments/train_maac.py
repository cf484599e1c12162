"""Agents with one critic for all of them, as the published experiments trained: see README.md beside this file."""

from motet.experiments.command import main

if __name__ == "__main__":
    main("maac")
