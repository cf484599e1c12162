"""Check a built site: python -m docs.site.check FOLDER.

Every link within the site leads to a file and to an anchor in it, and no page loads anything from
elsewhere. The builder checks the links of Markdown; this reads the HTML, whatever made it.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
"""Element -> the attribute with what a browser loads at once. `link` depends on its `rel`."""
LOADING = {"stylesheet", "icon", "preload", "modulepreload", "manifest"}


@dataclass
class Page(HTMLParser):
    """What one HTML page links to and loads, and the anchors that it has."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.anchors |= {said[name] for name in ("id", "name") if name in said}
        if tag == "a" and "href" in said:
            self.links.append(said["href"])
        if said.get(LOADS.get(tag, "")):
            self.loads.append(said[LOADS[tag]])
        if tag == "link" and LOADING & set(said.get("rel", "").split()):
            self.loads.append(said["href"])


def read(path: Path) -> Page:
    """Read one page."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def problems(site: Path) -> Iterator[str]:
    """Yield one line for each wrong link and for each thing that is loaded from elsewhere."""
    pages = {path.resolve(): read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        if path.name == "404.html":  # has addresses from the root of a server
            continue
        for loaded in page.loads:
            if urlsplit(loaded).scheme in ("http", "https") or loaded.startswith("//"):
                yield f"{name}: loads {loaded}"
        for link in [*page.links, *page.loads]:
            target = urlsplit(link)
            if target.scheme or target.netloc:
                continue
            there = (path.parent / unquote(target.path)).resolve() if target.path else path
            if there.is_dir():
                there = there / "index.html"
            if not there.is_file():
                yield f"{name}: no file for {link}"
            elif target.fragment and there in pages:
                anchor = unquote(target.fragment)
                if anchor not in pages[there].anchors:
                    yield f"{name}: no anchor for {link}"


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print(
        "\n".join(found)
        or "all links of the site lead somewhere, and nothing is loaded from elsewhere"
    )
    sys.exit(bool(found))
