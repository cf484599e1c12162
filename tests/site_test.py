"""The site of the docs: its pages, its generated references, and what its pages name."""

import asyncio
import re
import runpy
import shlex
import textwrap
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import typer

import motet
from docs.site.api_reference import api_reference, home_of, public_names
from docs.site.check import problems
from docs.site.command_reference import command_reference, commands
from docs.site.config_reference import config_reference
from docs.site.pages import MARK, for_python_markdown, relocated, write_pages
from docs.site.refusals import messages, refusals, unread
from motet.algorithms import ALGORITHMS
from motet.commands.main import whole_app
from motet.config.keys import keys, options_of_environments
from motet.config.load import load_config
from motet.config.paths import named_configs
from motet.config.schema import RunKeys
from motet.errors import ConfigError
from motet.trainer.alarms import WATCHED, Alarm

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NEW = (
    "index",
    "start",
    "laptop",
    "own_team",
    "tool_dialogue",
    "new_algorithm",
    "to_cluster",
    "reading_a_run",
    "deploying",
    "coming_from",
    "papers",
    "trouble",
    "glossary",
    "checked",
)
"""The pages that were written for the site, without `.md`."""


def in_navigation(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for one in inner for page in in_navigation(one)]


def test_every_page_of_the_docs_is_in_the_navigation_once():
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    assert sorted(in_navigation(navigation)) == sorted(page.name for page in DOCS.glob("*.md"))


# ------------------------------------------------------------------------------- the references


def test_the_reference_of_the_config_has_every_key_with_its_docstring():
    page = config_reference()
    for key, field in RunKeys.model_fields.items():
        assert key in keys()
        assert " ".join(field.description.split()) in page
    known = keys()
    assert {"policies.NAME.lora.rank", "team.AGENT.decode.temperature"} <= known
    assert {"algorithm.credit.gae_lambda", "algorithm.loss.clip_low"} <= known
    assert {"models.NAME.path", "models.NAME.embedded.layers"} <= known
    assert "with `kind: critic`" in page
    assert "environment` with `name: taboo`" in page
    assert len(known) > 200


def test_every_key_of_every_installed_config_is_in_the_reference():
    known = keys() | {
        f"environment.{row.key}" for one in options_of_environments() for row in one.rows
    }
    for name, path in named_configs().items():
        if "/" in name:
            continue  # parts of configs, and those of verifiers
        found = paths_of(load_config(path).model_dump(exclude_unset=True))
        assert [key for key in found if not is_known(key, known)] == [], name


def paths_of(value: object, path: str = "") -> list[str]:
    if not isinstance(value, dict):
        return [path]
    return [
        inner for key, one in value.items() for inner in paths_of(one, f"{path}.{key}".lstrip("."))
    ]


def is_known(path: str, known: set[str]) -> bool:
    """Return whether a path is a key, or goes into the free mapping of one."""
    words = path.split(".")
    for key in known:
        parts = key.split(".")
        pairs = list(zip(parts, words, strict=False))
        fits = all(part in (word, "NAME", "AGENT") for part, word in pairs)
        if fits and len(parts) <= len(words):
            rest = words[len(parts) :]
            if not rest or not any(other.startswith(f"{key}.") for other in known):
                return True
    return False


def test_a_key_that_does_not_exist_is_not_known():
    known = keys()
    assert is_known("train.steps", known)
    assert is_known("policies.writer.lora.rank", known)
    assert not is_known("train.stepss", known)
    assert not is_known("policies.writer.lora.rang", known)


def test_the_reference_of_commands_has_every_command_and_option():
    page = command_reference()
    words = [name for name, _ in commands()]
    assert {"motet train", "motet diagnose", "motet verifier train", "motet doctor"} <= set(words)
    for name, command in commands():
        entry = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            assert parameter.param_type_name == "argument" or parameter.opts[0] in entry


def test_the_reference_of_python_has_every_public_name_where_it_is_defined():
    page = api_reference()
    names = public_names()
    assert {"train", "Environment", "ConfigError"} <= set(names["motet"])
    assert "diagnose" in names["motet_compare"]
    for package, found in names.items():
        for name in found:
            assert f"::: {home_of(package, name)}\n" in page
            assert f"heading: {package}.{name}\n" in page


# ------------------------------------------------------------------------------ refusals


def test_the_page_of_trouble_has_every_refusal_that_has_a_text_of_its_own():
    found = [one for one in messages() if one.kind == "refusal"]
    sources = "\n".join(path.read_text() for path in (ROOT / "packages").glob("*/src/**/*.py"))
    raised = len(re.findall(r"raise (?:ConfigError|CannotResume)\(", sources))
    assert len(found) > 0.9 * raised > 500
    without_text = [
        one for one in unread() if re.search(r"[a-z]+ [a-z]+ [a-z]+", one.partition("(")[2])
    ]
    assert len(without_text) <= 3
    page = refusals()
    assert all(title in page for title in ("## Refusals", "## Faults", "## Stops", "## Alarms"))


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("polices: {}", "unknown key"),
        ("team: {left: lift, right: right}", "names policy"),
        ("rollout: {samples: [8, 8]}\nreward_model: {}", "joint actions of one turn"),
        ("algorithm: {name: magrpo, credit: {scale: agent}}", "expected"),
        ("critic: {train: full}", "critic"),
        ("models: {tiny: {embedded: {}, path: there}}", "exactly one of"),
        ("data: {train: {name: one, path: two}}", "expected exactly one of them"),
    ],
)
def test_what_a_config_is_refused_with_is_on_the_page_of_trouble(tmp_path, text, of):
    base = (ROOT / "examples" / "same_number.yaml").read_text()
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "wrong.yaml").write_text(f"extends: base.yaml\nname: wrong\n{text}\n")
    (tmp_path / "own_environment.py").write_text(
        (ROOT / "examples" / "own_environment.py").read_text()
    )
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "wrong.yaml")
    assert of in str(error.value)
    assert any(one.matches(str(error.value)) for one in messages() if one.kind == "refusal")


def test_every_alarm_is_on_the_page_of_trouble():
    for watched in WATCHED:
        said = str(Alarm(12, watched.metric, 0.5, watched.bound))
        assert any(one.matches(said) for one in messages() if one.kind == "alarm"), said


def test_a_message_is_found_by_its_words_and_no_other_one():
    (one,) = [m for m in messages() if m.text.startswith("got --resume and --overwrite")]
    assert one.matches("got --resume and --overwrite, expected at most one of them")
    assert not one.matches("got --resume, expected at most one of them")


# ------------------------------------------------------------------------- what the pages name


@pytest.mark.parametrize("name", NEW)
def test_the_commands_of_a_new_page_take_what_it_types(name):
    known = typer.main.get_command(whole_app()).commands
    made = (ROOT / "Makefile").read_text()
    for line in typed(DOCS / f"{name}.md"):
        program, command, *rest = shlex.split(line)
        if program == "make":
            assert re.search(rf"^{command}:", made, re.MULTILINE), line
        elif command not in ("--help", "COMMAND"):
            assert command in known, line
        if program == "motet" and rest and "CONFIG" not in rest and "--help" not in rest:
            known[command].make_context(command, rest)  # refuses what it does not know
        if program == "motet" and command in ("train", "check", "show") and rest:
            target = rest[0]
            has_file = target.startswith("runs/") or target.endswith(".yaml") or target.isupper()
            assert has_file or target in named_configs(), line


def typed(page: Path) -> list[str]:
    """Return the commands of a page: in its blocks, and between backticks."""
    text = re.sub(
        r"^```(?:python|yaml|json)\n.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    text = text.replace("\\\n", " ")
    blocks = re.findall(r"^(?: {4})?((?:motet|make) .*)$", text, re.MULTILINE)
    spans = re.findall(r"`((?:motet|make) [^`]+)`", text)
    found = [re.sub(r"\s{2,}#.*$", "", " ".join(line.split("\n"))) for line in [*blocks, *spans]]
    return [line.partition(" > ")[0].strip() for line in found]


@pytest.mark.parametrize("name", NEW)
def test_the_keys_and_the_algorithms_that_a_new_page_names_exist(name):
    known = keys() | {
        f"environment.{row.key}" for one in options_of_environments() for row in one.rows
    }
    text = (DOCS / f"{name}.md").read_text()
    rows = [
        line.split("|")[2] if name == "coming_from" and "|" in line else line
        for line in text.splitlines()
    ]
    spans = re.findall(r"`([a-z_]+(?:\.[A-Za-z_]+)+)(?::? [^`]*)?`", "\n".join(rows))
    sections = {key.partition(".")[0] for key in known}
    named = [
        one
        for one in spans
        if one.partition(".")[0] in sections and not one.endswith((".md", ".py"))
    ]
    wrong = [
        one
        for one in named
        if not is_known(one, known) and not any(key.startswith(f"{one}.") for key in known)
    ]
    assert wrong == []
    algorithms = re.findall(r"`algorithm: \{name: (\w+)", text)
    assert set(algorithms) - {"NAME"} <= set(ALGORITHMS)


def programs_of(page: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_program_of_ones_own_team_is_that_of_the_example_and_pays_as_it_says():
    functions, call = programs_of("own_team.md")
    example = ROOT / "examples" / "notes" / "team.py"
    assert functions in example.read_text()
    assert textwrap.indent(call, "    ") in example.read_text()
    agree = runpy.run_path(str(example))["agree"]
    row = {"note": "Two goats escaped from the farm."}
    assert agree(row, {"title": "The Goats of the Town", "keyword": "Goats"}).rewards == 1.0
    assert agree(row, {"title": "The Goats of the Town", "keyword": "Farm"}).rewards == 0.5
    assert agree(row, {"title": "A Story", "keyword": "Farm"}).rewards == 0.25
    assert not agree(row, {"title": "A Story", "keyword": "Story"}).success


def test_the_dialogue_of_the_page_pays_the_right_price():
    names = {}
    (code,) = programs_of("tool_dialogue.md")
    exec(code, names)  # noqa: S102

    class Says:
        def __init__(self, text):
            self.text = text

        async def ask(self, prompt):
            return motet.Reply(self.text)

    def paid(call, answer):
        agents = SimpleNamespace(caller=Says(call), reader=Says(answer))
        task = motet.Task("salt", {"wanted": "9"})
        return asyncio.run(names["dialogue"](task, agents)).rewards

    assert (paid("salt", "9"), paid("salt", "8")) == (1.0, 0.0)
    assert names["price"]("tea") == "2"
    assert motet.tool(names["price"]).name == "price"


def test_the_baseline_of_the_page_is_the_median_of_each_group():
    names = {}
    (code,) = programs_of("new_algorithm.md")
    exec(code, names)  # noqa: S102
    returns_S = torch.tensor([1.0, 2.0, 9.0, 4.0, 5.0])
    step = SimpleNamespace(returns_S=returns_S, group_S=torch.tensor([0, 0, 0, 1, 1]), groups=2)
    assert names["group_median"](step).tolist() == [2.0, 2.0, 2.0, 4.5, 4.5]


# ------------------------------------------------------------------------------ the builder


def test_pages_of_the_repository_become_pages_of_the_site(tmp_path):
    written = write_pages(
        tmp_path, dict.fromkeys(("api", "commands", "config", "refusals"), lambda: "here")
    )
    names = {str(path.relative_to(tmp_path)) for path in written}
    assert {
        "index.md",
        "start.md",
        "quickstart.png",
        "repository/packages/codejudge/index.md",
    } <= names
    assert "repository/examples/own_credit.py.md" in names
    assert "here" in (tmp_path / "trouble.md").read_text()
    assert not any(MARK.search(path.read_text()) for path in tmp_path.glob("*.md"))


def test_a_link_leads_to_the_page_that_a_file_has_become():
    text = (
        "See [it](../examples/loop.py), [a key](metrics.md#evaluation-results), `[no](link.md)`.\n"
    )
    moved = relocated(DOCS / "python.md", text.replace(", `[no](link.md)`", ""))
    assert "](repository/examples/loop.py.md)" in moved
    assert "](metrics.md#evaluation-results)" in moved


def test_a_list_is_read_alike_by_github_and_by_python_markdown():
    text = "Text:\n- one\n  more\n  - two\n\n  a paragraph\n- three\n\nEnd\n"
    expected = "Text:\n\n- one\n    more\n    - two\n\n    a paragraph\n- three\n\nEnd\n"
    assert for_python_markdown(text) == expected


def test_a_dead_link_and_a_foreign_script_are_problems(tmp_path):
    page = (
        '<h1 id="top"></h1><a href="#top"></a><a href="other.html#no"></a><a href="gone.html"></a>'
    )
    (tmp_path / "index.html").write_text(
        f'{page}<script src="https://elsewhere.org/x.js"></script>'
    )
    (tmp_path / "other.html").write_text('<p id="yes"></p>')
    assert list(problems(tmp_path)) == [
        "index.html: loads https://elsewhere.org/x.js",
        "index.html: no anchor for other.html#no",
        "index.html: no file for gone.html",
    ]
