"""What the page and the reference of codejudge say is true."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from codejudge import Level, Limits
from tests.fixtures import attack_programs, attacks_on_judges, attacks_on_suites, hostile_output

HOME = Path(__file__).parents[1]
PAGES = {name: (HOME / name).read_text() for name in ("README.md", "docs/reference.md")}
README = PAGES["README.md"]


def rows(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the README, without its head."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", README, re.DOTALL | re.MULTILINE)
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


@pytest.mark.parametrize("block", re.findall(r"^```python\n(.*?)^```$", README, re.S | re.M))
def test_the_programs_of_the_page_run(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})  # noqa: S102


def test_limits_and_levels_are_those_of_the_code() -> None:
    limits = {name.strip("`"): default for name, default, _ in rows("Limits")}
    expected = {one.name: str(one.default) for one in fields(Limits)}
    assert limits == {name: expected[name] for name in limits}
    assert limits.keys() == expected.keys()
    levels = [name.strip("`") for name, *_ in rows("Protection levels")]
    assert levels == [level.name for level in Level]


def test_the_attacks_are_as_many_as_the_page_says() -> None:
    programs, judges, suites = attack_programs, attacks_on_judges, attacks_on_suites
    output = hostile_output
    assert [int(count) for _, count, _ in rows("Attacks that were tried")] == [
        len(programs.QUICK) + len(programs.NEVER_ENDING),
        len(output.LINES) + len(output.BROKEN) + len(output.FORMS) + len(output.NO_FORMS),
        len(judges.QUICK) + len(judges.NEVER_ENDING) + len(judges.HUGE),
        len(suites.LIARS),
        len(suites.NUMPY_LIARS),
        len(suites.ROWS),
    ]
    assert f"each in {len(suites.SHAPES)} kinds" in README
    assert f"each in {len(suites.NUMPY_SHAPES)} kinds" in README


def anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere_and_tests_are_there(name: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PAGES[name]):
        path = (HOME / name).parent / target if target else HOME / name
        assert path.exists(), target
        assert not anchor or anchor in anchors(path.read_text()), (target, anchor)
    for test in set(re.findall(r"`(\w+_test\.py)`", PAGES[name])):
        assert list(HOME.rglob(test)), test


def test_nothing_names_the_house_that_uses_it_but_the_page() -> None:
    house = "mo" + "tet"
    named = {
        path.relative_to(HOME).as_posix(): lines
        for path in sorted(HOME.rglob("*"))
        if path.suffix in (".py", ".md", ".toml")
        and (lines := [line for line in path.read_text().splitlines() if house in line.lower()])
    }
    assert list(named) == ["README.md"]
    assert len(named["README.md"]) == 1
