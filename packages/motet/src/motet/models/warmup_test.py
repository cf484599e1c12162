import asyncio

import pytest
import torch
from torch.nn.functional import cross_entropy

from motet.core import Message
from motet.errors import ConfigError, TrainingDiverged
from motet.models.backbone import Backbone, Policy
from motet.models.prompts import encode
from motet.models.warmup import fine_tune
from motet.settings import Warmup
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder

PAIRS = [
    ("one fox", "jumps"),
    ("two dogs over there", "are lazy"),
    ((Message("user", "add"),), "return a + b"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model_folder(tmp_path_factory.mktemp("model"))


def fresh(folder) -> Policy:
    return Policy("p", Backbone.load(folder, device="cpu", trainable_full=True))


def warm(policy: Policy, pairs=PAIRS, **options) -> list[float]:
    return asyncio.run(fine_tune(policy, lambda step: pairs, Warmup(**options)))


def mean_cross_entropy(policy: Policy) -> float:
    """Compute it with the plain model, one row after another, without padding."""
    tokenizer, losses = policy.backbone.tokenizer, []
    for prompt, text in PAIRS:
        asked, answer = (
            encode(tokenizer, prompt),
            [*tokenizer(text)["input_ids"], tokenizer.eos_token_id],
        )
        logits = policy.backbone.model(torch.tensor([[*asked, *answer]])).logits[
            0, len(asked) - 1 : -1
        ]
        losses += cross_entropy(logits, torch.tensor(answer), reduction="none").tolist()
    return sum(losses) / len(losses)


def test_the_loss_is_the_mean_cross_entropy_of_answer_tokens_with_their_end(folder) -> None:
    policy = fresh(folder)
    expected = mean_cross_entropy(policy)
    assert warm(policy, steps=1) == [pytest.approx(expected, rel=1e-5)]


def test_a_policy_learns_the_answers(folder) -> None:
    policy = fresh(folder)
    losses = warm(policy, steps=40, learning_rate=1e-2, warmup_steps=5)
    assert losses[0] > 3.0
    assert losses[-1] < 0.1
    assert mean_cross_entropy(policy) < 0.1


def test_a_small_token_budget_changes_no_loss(folder) -> None:
    whole, split = (warm(fresh(folder), steps=3, token_budget=budget) for budget in (10**6, 1))
    assert split == pytest.approx(whole, rel=1e-4)


def test_two_runs_are_equal_to_the_bit(folder) -> None:
    assert warm(fresh(folder), steps=3) == warm(fresh(folder), steps=3)


def test_progress_hears_every_step_and_draw_is_asked_once_for_each(folder) -> None:
    heard, asked = [], []

    def draw(step):
        asked.append(step)
        return PAIRS[step : step + 1]

    losses = asyncio.run(
        fine_tune(
            fresh(folder), draw, Warmup(steps=3), lambda step, loss: heard.append((step, loss))
        )
    )
    assert asked == [0, 1, 2]
    assert heard == list(enumerate(losses))


def test_the_rate_rises_over_the_warm_up_and_falls_to_its_final_share() -> None:
    options = Warmup()
    assert options.rate(0, options.steps) == pytest.approx(3e-3 / 20, rel=0.01)
    assert max(options.rate(step, options.steps) for step in range(options.steps)) > 0.9 * 3e-3
    assert options.rate(options.steps - 1, options.steps) == pytest.approx(0.05 * 3e-3)


def test_a_model_that_says_nan_stops_the_warm_up(folder) -> None:
    policy = fresh(folder)
    with torch.no_grad():
        policy.parameters()[0].fill_(torch.nan)
    with pytest.raises(TrainingDiverged, match="policy p, optimizer step 1 of 5: loss is nan"):
        warm(policy, steps=5)


def test_what_cannot_be_learnt_is_refused(folder) -> None:
    policy = fresh(folder)
    with pytest.raises(ConfigError, match=facts("no demonstrations … step 1")):
        warm(policy, pairs=[])
    with pytest.raises(ConfigError, match=facts("201 answer tokens … at most 96")):
        warm(policy, pairs=[("hi", "!?" * 100)])
    policy.backbone.eos_ids = ()
    with pytest.raises(ConfigError, match="no end-of-sequence token"):
        warm(policy)


def test_an_end_of_sequence_without_an_embedding_cannot_be_taught(folder) -> None:
    policy = fresh(folder)
    policy.backbone.tokenizer.add_special_tokens({"eos_token": "[END]"})
    with pytest.raises(ConfigError, match=r"end-of-sequence token .*\d+.* embeddings .*\d+ tokens"):
        warm(policy)
