"""Scores: the value at the end of an answer, or those at the ends of its lines."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from motet.errors import ConfigError
from motet_verifier.folder import HEAD
from motet_verifier.model import Unreadable, Verifier
from tests.fixtures.verifiers import chat, make_verifier_folder

ANSWER = "two times\nthree, so\n\nsix"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_verifier_folder(tmp_path_factory.mktemp("verifier"))


@pytest.fixture(scope="module")
def verifier(folder):
    return Verifier.load(folder, device="cpu")


def ends_of_lines(verifier, answer):
    """Compute them by hand, from the decoded prefixes."""
    tokenizer = verifier.critic.backbone.tokenizer
    said = tokenizer(answer, add_special_tokens=False)["input_ids"]
    begun = [tokenizer.decode(said[: place + 1]) for place in range(len(said))]
    ends = [
        place
        for place in range(len(said) - 1)
        if begun[place].endswith("\n") and begun[place + 1][-1] != "\n"
    ]
    return (*ends, len(said))


def test_steps_are_lines_and_empty_ones_belong_to_the_line_before(verifier):
    reading = replace(verifier, reads="mean").encode(chat(ANSWER))
    assert reading.steps == ends_of_lines(verifier, ANSWER)
    assert len(reading.steps) == 3
    assert replace(verifier, reads="mean").encode(chat("six\n")).steps == ends_of_lines(
        verifier, "six\n"
    )


@pytest.mark.parametrize("reads", ["mean", "lowest"])
def test_the_score_is_the_mean_or_the_lowest_of_the_values_after_each_line(reads, verifier):
    (values,) = verifier.values([verifier.encode(chat(ANSWER))])
    steps = [values[place] for place in ends_of_lines(verifier, ANSWER)]
    expected = sum(steps) / 3 if reads == "mean" else min(steps)
    assert len(set(steps)) == 3
    other = replace(verifier, reads=reads)
    readings = [other.encode(chat(text)) for text in (ANSWER, "six")]
    scores = other.scores(readings)
    assert scores[0] == pytest.approx(expected, abs=1e-6)
    assert scores[0] != pytest.approx(values[-1], abs=1e-6)
    assert scores[1] == pytest.approx(verifier.scores([verifier.encode(chat("six"))])[0], abs=1e-6)


def test_a_text_of_the_longest_tokens_is_read_to_the_context_and_longer_ones_are_refused(
    folder, tmp_path
):
    """Code models have tokens of 128 spaces. Here they replace the last seven tokens."""
    place = Path(shutil.copytree(folder, tmp_path / "verifier"))
    written = json.loads((place / "tokenizer.json").read_text())
    vocabulary, merges = written["model"]["vocab"], written["model"]["merges"]
    last = {token for token, number in vocabulary.items() if number >= len(vocabulary) - 7}
    written["model"]["merges"] = [pair for pair in merges if "".join(pair) not in last]
    for power, token in enumerate(sorted(last)):
        half = "Ġ" * 2**power  # a space, as byte-level vocabularies encode it
        vocabulary[half * 2] = vocabulary.pop(token)
        written["model"]["merges"].append([half, half])
    (place / "tokenizer.json").write_text(json.dumps(written))
    verifier = Verifier.load(place, device="cpu")
    assert verifier.encode(chat(" " * 128 * 40)).answer == 40 + 1
    with pytest.raises(Unreadable, match="expected at most 12,288: 128 for each token of 96"):
        verifier.encode(chat(" " * 128 * 96))


def test_a_head_that_the_library_cannot_read_is_one_line(folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "verifier")
    header = json.dumps(
        {"weight": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}
    ).encode()
    (place / HEAD).write_bytes(len(header).to_bytes(8, "little") + header + b"xxx")
    with pytest.raises(
        ConfigError,
        match=r"\Averifier [^\n]+ cannot be loaded: [^\n]+ motet verifier train wrote\Z",
    ):
        Verifier.load(place, device="cpu")
