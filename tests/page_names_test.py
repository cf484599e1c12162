"""The pages name files and names of code that exist."""

import re
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


def test_the_functions_that_the_python_page_lists_are_where_it_says():
    page = (ROOT / "docs" / "python.md").read_text()
    listed = re.search(r"Most commands are also functions: (.*?)\.\s", page, re.DOTALL)
    names = re.findall(r"`(\w+)`", listed[1])
    assert len(names) > 5
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
