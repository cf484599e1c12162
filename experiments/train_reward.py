"""A verifier of balanced answers, as MAPoRL trained it: `motet verifier train`, with the same words behind it."""

import sys

from motet.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["verifier", "train"]
    main()
