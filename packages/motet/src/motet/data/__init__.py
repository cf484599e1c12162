"""Load rows from a file or from the hub, and select a part of a split."""

from motet.data.load import Loaded, check_fields, load_rows
from motet.data.split import Split, parse_split

__all__ = ["Loaded", "Split", "check_fields", "load_rows", "parse_split"]
