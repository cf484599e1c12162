"""A verifier behind POST /predict, as MAPoRL served it: `motet verifier serve`, with the same words behind it."""

import sys

from motet.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["verifier", "serve"]
    main()
