"""Serve a verifier at POST /predict, as in MAPoRL: `motet verifier serve`, same arguments."""

import sys

from motet.commands.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["verifier", "serve"]
    main()
