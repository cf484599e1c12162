"""Balance right and wrong answers per question: `motet verifier balance`, same arguments."""

import sys

from motet.commands.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["verifier", "balance"]
    main()
