"""The forms of a completion on its way to the loss, and the axis suffixes of names, are those that
ARCHITECTURE.md lists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOTET = ROOT / "packages" / "motet" / "src" / "motet"
WAY = MOTET / "core", MOTET / "rollout", MOTET / "credit", MOTET / "batch", MOTET / "models"
MOST = 7
PARTS = {"Round", "Rows"}
"""Types that forms consist of: an Episode of Rounds, a Batch of Rows."""


def section() -> str:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    begin = text.index("**The way of a completion**")
    return text[begin : text.index("\nExample:", begin)]


def listed() -> list[tuple[str, str]]:
    """(form, module) of each number of the list."""
    return re.findall(r"^\d\. `(\w+)`, `([\w/]+\.py)`", section(), re.MULTILINE)


def modules() -> Iterator[ast.Module]:
    for path in [MOTET / "losses.py", *(path for room in WAY for path in room.glob("*.py"))]:
        if not path.name.endswith("_test.py") and path.name != "conftest.py":
            yield ast.parse(path.read_text())


def test_there_are_at_most_seven_forms_and_each_is_made_in_the_module_that_is_named() -> None:
    assert 0 < len(listed()) <= MOST
    for form, module in listed():
        calls = [
            node.func.id
            for node in ast.walk(ast.parse((MOTET / module).read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        assert form in calls, f"{module} makes no {form}"


def test_every_type_with_tokens_or_log_probabilities_is_named() -> None:
    holding = {
        node.name
        for tree in modules()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and node.decorator_list
        and any(
            re.search("tokens|logp", field.target.id)
            and re.search("tuple|Tensor|Mapping", ast.unparse(field.annotation))
            for field in node.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        )
    }
    assert {form for form, _ in listed()} - {"Episode"} <= holding
    assert holding - PARTS <= set(re.findall(r"`(\w+)`", section()))


NOT_AXES = {"lora_A", "lora_B"}
"""Names of PEFT."""


def suffixes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, suffix) of the names of a module that end with capital letters, such as `logp_BL`."""
    for node in ast.walk(tree):
        names = {
            ast.Name: "id", ast.arg: "arg", ast.Attribute: "attr", ast.keyword: "arg",
        }  # fmt: skip
        name = getattr(node, names.get(type(node), ""), None) or ""
        found = re.fullmatch(r"_?[a-z][a-z0-9_]*_([A-Z0-9]*[A-Z][A-Z0-9]*)", name)
        if found and name not in NOT_AXES:
            yield name, found[1]


def axes() -> set[str]:
    """The letters that the section about axis suffixes lists."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    begin = text.index("**Axis suffixes**")
    table = text[begin : text.index("\nIn formulas", begin)]
    cells = re.findall(r"^\|([^|]*)\|[^|]*\|([^|]*)\|", table, re.MULTILINE)
    return {letter for row in cells for cell in row for letter in re.findall(r"\b[A-Z1]\b", cell)}


def test_every_axis_suffix_has_the_letters_that_are_listed_and_each_is_used() -> None:
    code = [*ROOT.glob("packages/*/src/**/*.py"), *ROOT.glob("examples/*.py")]
    found = [
        (path.name, name, letter)
        for path in code
        if not path.name.endswith("_test.py")
        for name, suffix in suffixes(ast.parse(path.read_text()))
        for letter in suffix
    ]
    assert {one for one in found if one[2] not in axes()} == set()
    assert axes() == {letter for _, _, letter in found}
