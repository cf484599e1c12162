"""A model that chats is told of where a game asks it by plain strings."""

from pathlib import Path

import pytest

import motet
from tests.fixtures.model_folders import make_model_folder
from tests.small_runs import run_config

GAME = """
import motet


class Answer(motet.Environment):
    agents = ("a", "b")

    def __init__(self, options):
        self.chats = options.chats

    class Options(motet.Settings):
        chats: bool = False

    def tasks(self, split):
        return [motet.Task(f"{split} {k}", {}) for k in range(2)]

    def start(self, task, seed):
        return None

    def observe(self, state):
        asked = [motet.Message("user", "Yes?")] if self.chats else "Yes?"
        return {"a": asked, "b": "Yes?"}

    def step(self, state, replies, seed):
        return motet.Transition(state, {"a": 0.0, "b": 1.0}, done=True, success=0.0)
"""


@pytest.mark.parametrize(
    ("template", "chats", "warned"), [(True, False, "ab"), (True, True, "b"), (False, False, "")]
)
def test_a_string_to_a_model_with_a_chat_template_is_warned_of(
    tmp_path: Path, template: bool, chats: bool, warned: str
) -> None:
    (tmp_path / "game.py").write_text(GAME)
    folder = make_model_folder(tmp_path / "m", "llama", chat_template=template)
    config = run_config(
        environment={"name": f"{tmp_path}/game.py:Answer", "chats": chats},
        models={"tiny": {"path": str(folder), "device": "cpu"}},
    )
    said = motet.dry_run(config).warnings
    found = [line for line in said if "is asked by a plain string" in line]
    assert [line.split()[1] for line in found] == list(warned)
    assert all('[motet.Message("user", TEXT)]' in line for line in found)
