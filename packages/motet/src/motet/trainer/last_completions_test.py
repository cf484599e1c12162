"""What each agent wrote last."""

from motet.core import Completion, Episode, Fault, Outcome, Round, Task
from motet.trainer.progress import last_completions

TASK = Task("t", {})


def said(text: str) -> Completion:
    return Completion("p", text, "stop")


def round_of(turn: int, texts: dict[str, tuple[str, ...]], *outcomes: Outcome) -> Round:
    samples = {agent: tuple(map(said, of)) for agent, of in texts.items()}
    prompts = dict.fromkeys(texts, "?")
    return Round(turn, prompts, dict.fromkeys(texts, (1,)), samples, outcomes)


def test_the_last_words_of_each_agent_on_the_first_path_of_the_last_game():
    later = round_of(1, {"ann": ("bye",)}, Outcome({"ann": 0}, {"ann": 0.0}, end="done"))
    first = round_of(
        0,
        {"ann": ("hi", "hello"), "bob": ("yes", "no")},
        Outcome({"ann": 1, "bob": 1}, {"ann": 0.0}, next=later),
        Outcome({"ann": 0, "bob": 0}, {"ann": 0.0}, end="done"),
    )
    other = Episode("1", TASK, round_of(0, {"ann": ("no",)}, Outcome({"ann": 0}, {}, end="done")))
    failed = Episode("3", TASK, None, fault=Fault("environment", "KeyError", "x"))
    found = last_completions([other, Episode("2", TASK, first), failed])
    assert found == {"ann": "bye", "bob": "no"}


def test_no_game_no_words():
    assert last_completions([]) == {}
