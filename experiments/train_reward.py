"""Train a verifier on balanced answers, as in MAPoRL: `motet verifier train`, same arguments.

`--config_file FILE` may name the first argument.
"""

from motet_published.verifier_command import main

if __name__ == "__main__":
    main("train")
