"""Write the Markdown pages of the site: python -m docs.site.build FOLDER.

`make docs` runs this, and then Zensical, which makes HTML of the pages.
"""

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.site.api_reference import api_reference
from docs.site.command_reference import command_reference
from docs.site.config_reference import config_reference
from docs.site.pages import write_pages
from docs.site.refusals import refusals

GENERATED: Mapping[str, Callable[[], str]] = {
    "api": api_reference,
    "commands": command_reference,
    "config": config_reference,
    "refusals": refusals,
}
"""Mark in a page -> what stands there on the site."""
ASSETS = ("site.css", "iframe-worker.js")
"""Files beside this one that every page of the site loads."""


def build(into: Path) -> int:
    """Write all pages into a new folder. Return their number."""
    if into.exists():
        shutil.rmtree(into)
    written = write_pages(into, GENERATED)
    for name in ASSETS:
        shutil.copy(Path(__file__).with_name(name), into / name)
    return len(written)


if __name__ == "__main__":
    print(f"{build(Path(sys.argv[1]))} pages and pictures")
