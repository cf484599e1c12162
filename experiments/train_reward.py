"""Train a verifier on balanced answers, as in MAPoRL: `motet verifier train`, same arguments."""

import sys

from motet.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["verifier", "train"]
    main()
