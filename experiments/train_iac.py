"""Agents with a critic each, as the published experiments trained: see README.md beside this file."""

from motet.experiments.command import main

if __name__ == "__main__":
    main("iac")
