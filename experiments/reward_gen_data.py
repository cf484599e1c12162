"""Answers that a verifier learns from, as MAPoRL sampled them: `motet verifier sample`, with the same words behind it."""

import sys

from motet.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["verifier", "sample"]
    main()
