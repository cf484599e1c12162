"""Train a tiny model as a verifier on a rule that is visible in the answer."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from motet.errors import ConfigError
from motet.settings import Lora, Optimizer
from motet_verifier.answers import LabelledAnswer, as_chat
from motet_verifier.model import Unreadable, Verifier
from motet_verifier.train import (
    Course,
    batches,
    cross_entropy,
    measure,
    read_all,
    score_all,
    split,
    train,
)
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder

COURSE = Course(
    loss="every", epochs=6, batch_size=8, token_budget=200, patience=6,
    optimizer=Optimizer(learning_rate=3e-3), seed=0,
)  # fmt: skip


def answers(questions: int = 40) -> list[LabelledAnswer]:
    """An answer is right if it is "yes", whatever the question."""
    return [
        LabelledAnswer(
            f"q{number}",
            as_chat(f"question {number}"),
            text,
            text,
            text == "yes it is",
            ease=number / questions,
        )
        for number in range(questions)
        for text in ("yes it is", "no")
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_folder(tmp_path_factory.mktemp("model"))


def fresh(folder: Path, lora: bool = False) -> Verifier:
    return Verifier.new(folder, lora=Lora(rank=4) if lora else None, seed=0, device="cpu")


def test_questions_not_answers_are_held_out() -> None:
    kept, apart = split(answers(), 0.25, seed=0)
    assert len(kept) == 60
    assert len(apart) == 20
    assert not {one.question for one in kept} & {one.question for one in apart}
    assert split(answers(), 0.25, seed=1)[1] != apart
    assert split(answers()[::-1], 0.25, seed=0)[1] == apart[::-1]
    with pytest.raises(
        ConfigError,
        match=r"held_out 0\.25 of 1 questions leaves 1 for training and 0 for measuring",
    ):
        split(answers(1), 0.25, seed=0)


def test_the_same_question_under_two_names_is_never_on_both_sides() -> None:
    twice = [*answers(), *(replace(one, question=f"r{one.question}") for one in answers())]
    kept, apart = split(twice, 0.25, seed=0)
    assert (len(kept), len(apart)) == (120, 40)
    assert not {one.prompt for one in kept} & {one.prompt for one in apart}
    assert [one for one in apart if one.question[0] == "q"] == split(answers(), 0.25, seed=0)[1]
    assert split(twice[::-1], 0.25, seed=0)[1] == apart[::-1]


@pytest.mark.parametrize(("loss", "read"), [("every", [4, 1]), ("last", [1, 1])])
def test_every_answer_weighs_the_same_however_many_of_its_tokens_are_judged(
    folder: Path, loss: str, read: list[int]
) -> None:
    verifier = fresh(folder)
    with torch.no_grad():
        verifier.critic.head.bias.fill_(0.4)
    examples, _ = read_all(
        verifier,
        [
            LabelledAnswer("q", as_chat("q"), text, text, text == "yes", "gold")
            for text in ("yes", "")
        ],
        question_only=False,
    )
    course = Course(**{**vars(COURSE), "loss": loss})
    (batch,) = batches(verifier, examples, course)
    lengths = sorted([example.reading.answer if loss == "every" else 1 for example in examples])
    assert sorted(batch.read_BL.sum(dim=1).tolist()) == lengths
    assert (batch.value_weight_B * batch.read_BL.sum(dim=1)).tolist() == pytest.approx([0.5, 0.5])
    with torch.no_grad():
        loss_of, _ = cross_entropy(batch, verifier.critic.values(batch.tokens_BL, batch.mask_BL))
    # all log-odds are .4: half of log(1 + e^-.4) for the right one, half of log(1 + e^.4) for the
    # wrong
    expected = 0.5 * torch.log1p(torch.exp(torch.tensor([-0.4, 0.4]))).sum()
    assert loss_of.item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("lora", [False, True])
def test_a_verifier_learns_is_saved_and_scores_the_same_again_in_any_batch(
    folder: Path, tmp_path: Path, lora: bool
) -> None:
    verifier = fresh(folder, lora)
    (trained, _), (apart, _) = (
        read_all(verifier, some, question_only=False) for some in split(answers(), 0.25, 0)
    )
    before = measure(verifier, apart, 200)
    assert (before.auc, before.right) == (0.5, 0.5)
    assert set(score_all(verifier, [example.reading for example in apart], 200)) == {0.5}
    seen = []
    figures, epoch = asyncio.run(
        train(
            verifier,
            trained,
            apart,
            COURSE,
            on_epoch=lambda number, loss, figures: seen.append((number, figures.loss)),
        )
    )
    assert figures.auc == 1.0
    assert figures.loss < 0.2 < before.loss
    assert (epoch, figures.loss) == min(seen, key=lambda pair: pair[1])
    readings = [example.reading for example in apart]
    scores = score_all(verifier, readings, 200)
    assert measure(verifier, apart, 200) == figures, "the weights are those of the best epoch"
    verifier.save(tmp_path / "verifier")
    loaded = Verifier.load(tmp_path / "verifier", device="cpu")
    for budget in (1, 90, 100_000):
        assert score_all(loaded, readings[::-1], budget)[::-1] == pytest.approx(scores, abs=1e-5)
    prefixes = loaded.values(readings[:1])[0]
    assert len(prefixes) == readings[0].answer
    assert prefixes[-1] == pytest.approx(scores[0], abs=1e-5)


def test_without_answers_nothing_is_learnt_from_balanced_data(folder: Path) -> None:
    verifier = fresh(folder)
    (trained, _), (apart, _) = (
        read_all(verifier, some, question_only=True) for some in split(answers(), 0.25, 0)
    )
    figures, _ = asyncio.run(train(verifier, trained, apart, COURSE))
    assert figures.auc == 0.5


def test_what_cannot_be_read_is_counted_and_one_label_alone_is_refused(folder: Path) -> None:
    verifier = fresh(folder)
    long = LabelledAnswer("q", as_chat("q"), "word " * 2000, "x", True)
    assert read_all(verifier, [long], question_only=False) == ([], 1)
    with pytest.raises(Unreadable, match="expected at most"):
        verifier.encode(long.chat)
    with pytest.raises(Unreadable, match=facts("question … then … assistant's answer")):
        verifier.encode(as_chat("a question alone"))
    rights, _ = read_all(verifier, [one for one in answers(4) if one.right], question_only=False)
    with pytest.raises(ConfigError, match=facts("all 4 training answers … right … both")):
        asyncio.run(train(verifier, rights, rights, COURSE))
