import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from motet.core import Completion
from motet_view.game import _sample, _split, game_tree, pieces_of
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


def test_a_game_shows_what_was_played_without_agents_and_what_was_played_once() -> None:
    episode = game("t", 1, ["x", "y"], [0.25, 1.0])
    assert episode.root is not None
    first, second = episode.root.outcomes
    alone = replace(first, picks={"ann": 0}, rewards={"ann": 0.5, "bob": 0.25})
    root = replace(episode.root, outcomes=(first, replace(second, once=True)), without=(alone,))
    found = game_tree(replace(episode, root=root), lambda one: None)["tree"]
    assert found["without"] == [{"picks": {"ann": 0}, "worth": 0.375}]
    assert [one["once"] for one in found["outcomes"]] == [False, True]


def test_a_failed_joint_action_has_its_fault_and_no_worth() -> None:
    found = game_tree(game("t", 1, ["x", "y"], [0.25, 1.0], fault=FAULT), lambda one: None)
    failed = found["tree"]["outcomes"][1]
    assert failed["worth"] is None
    assert failed["fault"]["cause"] == "Timeout"


def test_a_sample_shows_its_thinking_and_the_pieces_of_it(run: Path) -> None:
    one = replace(_completion(run, "2+3</think>5"), text="5", thinking="2+3" * 4000)
    pieces = pieces_of(run, CONFIG)(one)
    assert pieces is not None
    assert "".join(pieces) == "2+3</think>5"
    assert _sample(one, lambda one: None)["thinking"] == one.thinking


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


class _Letters:
    """A tokenizer whose tokens 0 to 9 are parts of a character, and 10 is a long text."""

    asked = 0

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        self.asked += len(tokens)
        return "".join("x" * 1000 if token == 10 else "\ufffd" for token in tokens)


def test_tokens_that_never_end_a_character_are_read_once() -> None:
    tokenizer = _Letters()
    pieces = _split(tokenizer, [1] * 3000, 10_000)
    assert pieces is not None
    assert len(pieces) == 3000
    assert tokenizer.asked < 3000 * 50


def test_tokens_of_another_tokenizer_have_no_pieces() -> None:
    assert _split(_Letters(), [10] * 11, 10_000) is None
    for token in (-1, 1 << 32, 10**30):
        assert _split(_Letters(), [token], 10_000) is None


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b", "/dev/null/x"])
def test_a_model_path_that_no_file_can_have_gives_no_pieces(tmp_path: Path, path: str) -> None:
    config = {"policies": {"ann": {"model": "m"}}, "models": {"m": {"path": path}}}
    one = Completion("ann", "x", "stop", 0, (1,), (-1.0,), 1.0)
    assert pieces_of(tmp_path, config)(one) is None


@pytest.mark.parametrize(
    "step",
    [
        [{"type": "Replace", "pattern": {"String": "e"}, "content": "ee"}] * 24,
        [{"type": "Strip", "content": "x", "start": 100_000, "stop": 100_000}],
    ],
    ids=["endless time", "a panic of the library"],
)
def test_a_decoder_that_does_harm_gives_no_pieces(run: Path, step: list[dict[str, Any]]) -> None:
    one = _completion(run, "xe")
    file = run / "models/tiny/tokenizer.json"
    said = json.loads(file.read_text())
    decoder = {"type": "Sequence", "decoders": [said["decoder"], *step]}
    file.write_text(json.dumps({**said, "decoder": decoder}))
    assert pieces_of(run, CONFIG)(one) is None
