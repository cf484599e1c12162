"""The pages of the site, made of the Markdown files of the repository.

Pages of docs/ keep their names. What they link to elsewhere in the repository becomes a page under
`repository/`: a Markdown file as it is, any other file as a block of code, a folder as a list. So
every link works without a code host.

GitHub and Python-Markdown read lists differently: `for_python_markdown` changes what the first one
reads into what the second one reads in the same way.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURES = {".png", ".svg", ".jpg", ".gif"}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".ipynb": "json"}
NEVER_LISTED = re.compile(r"__pycache__|\.egg-info|/\.|/runs/|/teams/")
LINK = re.compile(r"(?<!\\)(\]\()([^()\s]+)(\))")
ITEM = re.compile(r"( *)([-*]|\d+\.) ")
BLOCKS = ("#", "|", "```", "<!--")
MARK = re.compile(r"^<!-- generated: (\w+) -->\n<!-- /\1 -->$", re.MULTILINE)


def place_of(source: Path) -> Path:
    """Return where in the site the page or picture of a file or folder of the repository is."""
    if source.is_relative_to(DOCS) and (source.suffix == ".md" or source.suffix in PICTURES):
        return source.relative_to(DOCS)
    inner = Path("repository") / source.relative_to(ROOT)
    if source.is_dir():
        return inner / "index.md"
    if source.name == "README.md":
        return inner.with_name("index.md")
    return inner if source.suffix in PICTURES | {".md"} else inner.with_name(f"{inner.name}.md")


def write_pages(into: Path, generated: Mapping[str, Callable[[], str]]) -> list[Path]:
    """Write docs/*.md and everything that they link to. Return the pages and pictures.

    `generated`: mark in a page -> what stands there.
    """
    todo, done = [*sorted(DOCS.glob("*.md"))], set[Path]()
    while todo:
        source = todo.pop()
        if source in done:
            continue
        done.add(source)
        target = into / place_of(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in PICTURES:
            target.write_bytes(source.read_bytes())
            continue
        text = text_of(source)
        todo += linked(source, text)
        text = for_python_markdown(relocated(source, text))
        target.write_text(MARK.sub(lambda mark: generated[mark[1]](), text))
    return sorted(into / place_of(source) for source in done)


def text_of(source: Path) -> str:
    """Return the Markdown of a page."""
    name = source.relative_to(ROOT)
    if source.is_dir() and (source / "README.md").is_file():
        return text_of(source / "README.md")
    if source.is_dir():
        files = (file for file in sorted(source.rglob("*")) if file.is_file())
        listed = [file for file in files if not NEVER_LISTED.search(str(file.relative_to(ROOT)))]
        lines = [f"- [{file.relative_to(source)}]({file.relative_to(source)})" for file in listed]
        return f"# {name}\n\n" + "\n".join(lines) + "\n"
    text = source.read_text()
    if source.suffix == ".md":
        return text
    language = LANGUAGES.get(source.suffix, "text")
    return f"# {name}\n\n````{language}\n{text}````\n"


def base_of(source: Path) -> Path:
    """Return the folder from which the links of a page start."""
    return source if source.is_dir() else source.parent


def linked(source: Path, text: str) -> list[Path]:
    """Return the files and folders of the repository that a page links to."""
    found = [base_of(source) / target for target in links(text)]
    return [Path(os.path.normpath(path)) for path in found if path.exists()]


def links(text: str) -> Iterable[str]:
    """Yield the targets of the relative links of a page, without anchors."""
    for line in _outside_code(text):
        for _, target, _ in LINK.findall(re.sub(r"`[^`\n]*`", "", line)):
            if not target.startswith(("http", "mailto:", "#")):
                yield target.partition("#")[0]


def _outside_code(text: str) -> Iterable[str]:
    fence = ""
    for line in text.splitlines():
        mark = re.match(r"\s*(`{3,})", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
        elif not fence:
            yield line


def relocated(source: Path, text: str) -> str:
    """Return a page whose links fit its place in the site."""
    here = place_of(source).parent

    def moved(found: re.Match[str]) -> str:
        target, _, anchor = found[2].partition("#")
        if not target or target.startswith(("http", "mailto:")):
            return found[0]
        there = place_of(Path(os.path.normpath(base_of(source) / target)))
        return f"{found[1]}{os.path.relpath(there, here)}{'#' if anchor else ''}{anchor}{found[3]}"

    return _mapped(text, lambda line: LINK.sub(moved, line))


def _mapped(text: str, changed: Callable[[str], str]) -> str:
    """Return a text in which every line outside blocks of code is changed."""
    lines, fence = [], ""
    for line in text.splitlines():
        mark = re.match(r"\s*(`{3,})", line)
        is_code = bool(fence)
        if mark and not fence:
            fence, is_code = mark[1], True
        elif mark and line.strip() == fence:
            fence = ""
        lines.append(line if is_code else changed(line))
    return "\n".join(lines) + "\n"


def for_python_markdown(text: str) -> str:
    """Return a page whose lists Python-Markdown reads as GitHub does.

    A list begins after an empty line, and what belongs to an item is indented by four columns per
    level, not by the width of its mark.
    """
    lines: list[str] = []
    widths: list[int] = []  # columns at which the text of the open items begins
    fence = ""
    for line in text.splitlines():
        mark = re.match(r"\s*(`{3,})", line)
        indent = len(line) - len(line.lstrip())
        item = None if fence else ITEM.match(line)
        was_list = bool(widths)
        continues = bool(lines and lines[-1].strip() and widths) and not line.startswith(BLOCKS)
        if not fence and line.strip() and (item is not None or not continues):
            widths = [width for width in widths if width <= indent]
        depth = len(widths)
        if item is not None:
            if not was_list and lines and lines[-1].strip():
                lines.append("")
            widths.append(indent + len(item[2]) + 1)
            lines.append("    " * depth + line.lstrip())
        elif depth and line.strip():
            cut = min(indent, widths[-1])
            lines.append("    " * depth + line[cut:])
        else:
            lines.append(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
    return "\n".join(lines) + "\n"
