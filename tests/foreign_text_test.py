"""Commands print control characters of foreign text escaped, and emoji codes unchanged.

Foreign text comes from a file, a name, a key or an answer.
"""

import re
import sys
from pathlib import Path

import pytest

from motet.commands.main import main
from motet.config.load import load_config
from motet.trainer.plot import learning_curve
from motet_compare.plots import cross_matrix
from motet_verifier.quality import Bin, reliability_curve
from tests.small_runs import TINY

HARM = "\x1b[2J\x1b]0;t\x07\x9b31m\u202e\u2066:skull:[bold red]x[/bold red][/]\r"
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
COLOURS = re.compile("\x1b\\[[0-9;]*m")
GAME = f"""
import motet

HARM = {HARM!r}


class Harmful(motet.Environment):
    agents = (HARM, "b")
    branches = True

    class Options(motet.Settings):
        said: str = ""

    def __init__(self, options): ...

    def tasks(self, split):
        return [motet.Task(f"{{HARM}} {{split}}", {{}})]

    async def start(self, task, seed):
        return 0

    def observe(self, turn):
        return {{agent: f"{{HARM}}\\n{{agent}}" for agent in self.agents}}

    async def step(self, turn, replies, seed):
        raise ValueError(HARM) if seed % 2 else RuntimeError(HARM)


class Pays(Harmful):
    async def step(self, turn, replies, seed):
        rewards = dict.fromkeys(self.agents, 1.0)
        return motet.Transition(turn + 1, rewards, True, {{HARM: 2.0}}, success=True)

    def convention(self, *arguments):
        return HARM
"""


@pytest.fixture
def said(tmp_path, monkeypatch, capfd):
    """Run `motet WORDS` in a fresh folder; return the exit code and all output."""
    monkeypatch.chdir(tmp_path)
    Path("game.py").write_text(GAME, encoding="utf-8", errors="surrogatepass")

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["motet", *words])
        capfd.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, "".join(capfd.readouterr())

    return run


def config(environment: str) -> dict:
    policies = {"p": {"model": "tiny"}, "q": {"model": "tiny"}}
    return {
        "name": "run",
        "threads": 1,
        "environment": {"name": f"./game.py:{environment}"},
        "models": {"tiny": {"embedded": TINY, "device": "cpu"}},
        "policies": policies,
        "team": {HARM: "p", "b": "q"},
        "decode": {"max_new_tokens": 3},
        "rollout": {"samples": [2]},
        "train": {"steps": 1, "tasks_per_step": 1, "max_fault_share": 1.0},
        "evaluation": {"tasks": 1},
        "report": {"tensorboard": False},
    }


def check(printed: str) -> None:
    """Check that every text is printed, with invisible characters escaped."""
    assert not HIDDEN.findall(COLOURS.sub("", printed).replace("\r\n", "\n")), printed
    assert "☠" not in printed
    assert "💀" not in printed
    assert "Traceback" not in printed, printed


def written(environment: str, name: str = "case.yaml") -> str:
    from motet.config.yaml import write_yaml

    Path(name).write_text(write_yaml(config(environment)), encoding="utf-8")
    return name


def test_a_hostile_key_path_and_override_are_spelt_in_errors(said):
    Path("key.yaml").write_text('name: a\n"a\\e[2J\\x9b\\u202e\\nerror: b": 1\n')
    code, printed = said("show", "key.yaml")
    check(printed)
    assert code == 2
    assert "\\x1b[2J" in printed
    assert "\\nerror: b" in printed
    Path(f"{HARM}.yaml".replace("/", "")).write_text("x: 1\n")
    for words in ([f"{HARM}.yaml".replace("/", "")], ["key.yaml", f"{HARM}=1"], [f"no{HARM}"]):
        code, printed = said("show", *words)
        check(printed)
        assert code == 2


def test_a_config_with_hidden_characters_is_shown_spelt_and_is_the_same_config(said):
    name = written("Pays")
    code, printed = said("show", name)
    check(printed)
    assert code == 0
    Path("again.yaml").write_text(printed, encoding="utf-8")
    assert load_config("again.yaml") == load_config(name)


def test_agents_prompts_terms_answers_and_faults_are_spelt_by_every_command(said):
    name = written("Pays")
    for words in (
        ("train", name, "--dry-run"), ("train", name), ("evaluate", "runs/run"),
        ("play", "runs/run"), ("baselines", "runs/run"), ("replay", "runs/run"),
        ("compare", "runs/run", "runs/run"),
        ("crossplay", "runs/run", "runs/run", "--plot", "cross.png"),
        ("evaluate", "runs/run", "--json"),
    ):  # fmt: skip
        code, printed = said(*words)
        check(printed)
        assert code in (0, 1), printed
    assert ":skull:[bold red]x[/bold red]" in said("play", "runs/run")[1]
    faulty = written("Harmful")
    for words in (("evaluate", faulty), ("play", faulty), ("train", faulty, "--overwrite")):
        code, printed = said(*words)
        check(printed)


def test_labels_of_plots_are_letters(tmp_path):
    name = f"$\\frac{{${HARM[:5]}"
    learning_curve([], {"name": name}, tmp_path / "curve.png")
    cross_matrix([[0.5]], [name], tmp_path / "cross.png", (name, name))
    reliability_curve([Bin(0.0, 1.0, 3, 0.5, 0.5)], name, tmp_path / "reliability.png")
    assert all(
        (tmp_path / f"{one}.png").stat().st_size for one in ("curve", "cross", "reliability")
    )
