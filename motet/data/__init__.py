"""Data: rows of a file or of the hub, and the part of a split that is wanted."""

from motet.data.load import check_fields, load_rows
from motet.data.split import Split, parse_split

__all__ = ["Split", "check_fields", "load_rows", "parse_split"]
