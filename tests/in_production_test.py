"""The page about production names metrics that a server has, and its programs do what it says."""

import ast
import json
import logging
import re
from pathlib import Path

import yaml

from motet.starters import starter_files
from motet_serve.http.metrics import ServerMetrics

PAGE = (Path(__file__).parent.parent / "docs" / "in_production.md").read_text()
TESTS, LOGS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_metrics_of_the_page_are_those_of_a_server() -> None:
    text = ServerMetrics("motet_team_").text(queue=0)
    there = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    named = {name for line in PAGE.splitlines() for name in re.findall(r"`(motet_team_\w+)", line)}
    assert named == there


def test_an_error_is_one_line_of_json() -> None:
    names: dict = {"logging": logging, "json": json}
    (form,) = (node for node in ast.parse(LOGS).body if isinstance(node, ast.ClassDef))
    exec(ast.unparse(form), names)  # noqa: S102
    record = logging.LogRecord("motet", logging.ERROR, "", 0, "it %s\nhere", ("broke",), None)
    try:
        raise ValueError("twice")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    line = names["AsJson"]().format(record)
    assert "\n" not in line
    said = json.loads(line)
    assert (said["level"], said["text"]) == ("ERROR", "it broke\nhere")
    assert "ValueError: twice" in said["traceback"]


def test_the_checks_of_the_page_are_those_of_a_new_folder() -> None:
    written = ast.unparse(ast.parse(starter_files("game", "any")["environment_test.py"]))
    for node in ast.parse(TESTS).body:
        if isinstance(node, ast.FunctionDef):
            assert f"def {node.name}()" in written


def test_the_yaml_of_the_page_can_be_read() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    found = [yaml.safe_load(block) for block in blocks]
    assert [next(iter(one)) for one in found] == ["livenessProbe", "jobs", "scrape_configs"]
