from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from motet.core import Completion
from motet.viewer.game import game_tree, pieces_of
from tests.fixtures.recorded_runs import FAULT, game

CONFIG = {"policies": {"ann": {"model": "tiny"}}, "models": {"tiny": {"path": None}}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose tokenizer has one token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(alphabet)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tmp_path


def _completion(run: Path, text: str) -> Completion:
    tokenizer = Tokenizer.from_file(str(run / "models/tiny/tokenizer.json"))
    tokens = tuple(tokenizer.encode(text).ids)
    return Completion("ann", text, "stop", 0, tokens, (-0.5,) * len(tokens))


def test_a_game_is_a_tree_of_rounds_with_the_worth_of_every_joint_action() -> None:
    found = game_tree(game("t", 1, ["x", "y"], [0.25, 1.0], turns=2), lambda one: None)
    first, second = found["tree"]["outcomes"]
    assert (first["worth"], second["worth"]) == (0.25 + (0.25 + 1.0) / 2, 1.0)
    assert (first["next"]["path"], first["end"], second["end"]) == ([0], None, "pruned")
    assert found["tree"]["prompts"]["ann"] == [{"speaker": "user", "text": "Turn 1, ann"}]
    assert [one["text"] for one in found["tree"]["samples"]["bob"]] == ["bob: x", "bob: y"]


def test_a_failed_joint_action_has_its_fault_and_no_worth() -> None:
    found = game_tree(game("t", 1, ["x", "y"], [0.25, 1.0], fault=FAULT), lambda one: None)
    failed = found["tree"]["outcomes"][1]
    assert failed["worth"] is None
    assert failed["fault"]["cause"] == "Timeout"


@pytest.mark.parametrize("text", ["def f(x):", "naïve 😀 ok", "", "日本"])
def test_the_pieces_of_tokens_add_up_to_the_text(run: Path, text: str) -> None:
    one = _completion(run, text)
    pieces = pieces_of(run, CONFIG)(one)
    assert pieces is not None
    assert len(pieces) == len(one.tokens)
    assert "".join(pieces) == text


def test_a_character_of_several_tokens_belongs_to_the_last_of_them(run: Path) -> None:
    assert pieces_of(run, CONFIG)(_completion(run, "a😀b")) == ["a", "", "", "", "😀", "b"]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"policies": None},
        {"policies": {"ann": {"model": "../../etc"}}},
        {"policies": {"ann": {"model": "big"}}, "models": {"big": {"path": "/no/../where"}}},
    ],
)
def test_without_a_tokenizer_there_are_no_pieces(run: Path, config: dict) -> None:
    assert pieces_of(run, config)(_completion(run, "x")) is None


@pytest.mark.parametrize("content", ["", "{}", '{"model": 3}'])
def test_a_broken_tokenizer_gives_no_pieces(run: Path, content: str) -> None:
    one = _completion(run, "x")
    (run / "models/tiny/tokenizer.json").write_text(content)
    assert pieces_of(run, CONFIG)(one) is None
