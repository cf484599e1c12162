"""Sample answers to train a verifier, as in MAPoRL: `motet verifier sample`, same arguments.

`--config_file FILE` may name the first argument.
"""

from motet_published.verifier_command import main

if __name__ == "__main__":
    main("sample")
