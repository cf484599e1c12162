"""The command `motet` as `python -m motet`."""

from motet.commands.main import main

main()
