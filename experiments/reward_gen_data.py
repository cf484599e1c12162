"""Sample answers to train a verifier, as in MAPoRL: `motet verifier sample`, same arguments."""

import sys

from motet.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["verifier", "sample"]
    main()
