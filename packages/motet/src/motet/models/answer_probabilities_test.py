"""The exact probabilities of all answers that a form allows."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from motet.core import Completion
from motet.errors import ConfigError
from motet.models.answer_probabilities import answer_probabilities
from motet.models.backbone import Backbone, Policy
from motet.models.decode import DecodeRequest, decode
from motet.models.prompts import encode
from motet.settings import AnswerFormat, Decode, Thinking
from tests.fixtures.messages import facts

FolderOf = Callable[..., Path]
CHOICES = AnswerFormat(choices=("yes", "yes, but", "no"))
PROMPT = "Shall we go?"


@pytest.fixture
def policy(folder_of: FolderOf) -> Policy:
    return Policy("p", Backbone.load(folder_of()), trainable=False)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_they_are_the_shares_of_sampled_answers(policy: Policy, temperature: float) -> None:
    settings = Decode(format=CHOICES, max_new_tokens=16, temperature=temperature)
    found = answer_probabilities(policy, PROMPT, settings)
    assert found.keys() == set(CHOICES.choices or ())
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-5)
    asked = [DecodeRequest("p", 0, settings, key=row) for row in range(400)]
    prompt = encode(policy.backbone.tokenizer, PROMPT)
    said = Counter(
        one.text for one in decode(policy.backbone, [prompt], asked) if isinstance(one, Completion)
    )
    for text, chance in found.items():
        assert said[text] / 400 == pytest.approx(chance, abs=0.08)  # 3 standard deviations


def test_an_answer_that_is_cut_off_counts_as_what_stands_before(policy: Policy) -> None:
    found = answer_probabilities(policy, PROMPT, Decode(format=CHOICES, max_new_tokens=1))
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-5)
    assert {text for text, chance in found.items() if chance} <= {
        text[:length] for text in ("yes, but", "no") for length in range(1, 9)
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Decode(), "no choices … decode.format={choices"),
        (Decode(format=AnswerFormat(regex="a+")), "no choices"),
        (Decode(format=CHOICES, top_p=0.9), "decode.top_p 1"),
        (Decode(format=CHOICES, top_k=3), "decode.top_k 0"),
        (Decode(format=CHOICES, thinking=Thinking(max_tokens=4)), "no decode.thinking"),
    ],
)
def test_without_a_list_of_answers_there_are_none(
    policy: Policy, settings: Decode, message: str
) -> None:
    with pytest.raises(ConfigError, match=facts(message)):
        answer_probabilities(policy, PROMPT, settings)
