"""Agents that debate, as MAPoRL's experiments trained them: see README.md beside this file."""

from motet.experiments.command import main

if __name__ == "__main__":
    main("maporl")
