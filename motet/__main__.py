"""The command `motet` as `python -m motet`."""

from motet.cli import main

main()
