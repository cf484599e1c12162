"""As many right as wrong answers to every question: `motet verifier balance`, with its words behind it."""

import sys

from motet.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["verifier", "balance"]
    main()
