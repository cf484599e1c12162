"""Answers of a given form: texts, and the distribution of the tokens that are allowed."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from motet.batch import Rows
from motet.batch.batches import Batch, deal
from motet.core import Completion, Restriction, ScoreRequest
from motet.errors import ConfigError
from motet.models.backbone import Backbone
from motet.models.bounded_text import token_ids
from motet.models.decode import DecodeRequest, decode
from motet.models.formats import FormatFault, Guide, Vocabulary, allowed_at
from motet.models.forward import forward, score_requests
from motet.models.logprobs import score_logits
from motet.models.rows import padded
from motet.settings import AnswerFormat, Decode, Thinking
from tests.fixtures.messages import facts

FolderOf = Callable[..., Path]
CPU = torch.device("cpu")
CHOICES = AnswerFormat(choices=("yes", "yes, but", 'no "é/\\n"'))
REGEX = AnswerFormat(regex=r"-?[0-9]{1,3}/\d")
SCHEMA = AnswerFormat(
    json_schema={
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    }
)
KINDS = {"choices": CHOICES, "regex": REGEX, "json": SCHEMA}
FORMATS = pytest.mark.parametrize("form", KINDS.values(), ids=KINDS)
PROMPTS = [[5, 60, 200], [17, 9, 270, 33, 8, 61]]


@pytest.fixture
def backbone(folder_of: FolderOf) -> Backbone:
    return Backbone.load(folder_of())


def fits(form: AnswerFormat, text: str) -> bool:
    if form.choices is not None:
        return text in form.choices
    if form.regex is not None:
        return re.fullmatch(form.regex, text) is not None
    return 0 <= json.loads(text)["n"] <= 99


def sampled(backbone: Backbone, settings: Decode, prompts: Sequence[Sequence[int]] = PROMPTS):
    asked = [DecodeRequest("p", row % len(prompts), settings, key=row) for row in range(8)]
    found = decode(backbone, prompts, asked)
    assert all(isinstance(one, Completion) for one in found)
    return asked, [one for one in found if isinstance(one, Completion)]


@FORMATS
def test_every_answer_has_the_form_and_ends(backbone: Backbone, form: AnswerFormat) -> None:
    _, answers = sampled(backbone, Decode(format=form, max_new_tokens=64, temperature=1.5))
    assert all(fits(form, one.text) for one in answers if one.stop == "stop")
    assert sum(one.stop == "stop" for one in answers) >= 6
    assert len({one.text for one in answers}) > 1


def test_an_empty_schema_is_any_json(backbone: Backbone) -> None:
    form = AnswerFormat(json_schema={})
    _, answers = sampled(backbone, Decode(format=form, max_new_tokens=64, temperature=1.5))
    ended = [one.text for one in answers if one.stop == "stop"]
    assert ended
    for text in ended:
        json.loads(text)


@FORMATS
def test_scoring_gives_the_log_probabilities_of_sampling(
    backbone: Backbone, form: AnswerFormat
) -> None:
    """Beside a row without a form, at two temperatures."""
    for temperature in (0.7, 1.5):
        asked, answers = sampled(
            backbone, Decode(format=form, max_new_tokens=24, temperature=temperature)
        )
        free, (plain, *_) = sampled(backbone, Decode(max_new_tokens=9, temperature=temperature))
        every = [*zip(asked, answers, strict=True), (free[0], plain)]
        scored = score_requests(
            backbone,
            [
                ScoreRequest(
                    "p", tuple(PROMPTS[request.prompt]), one.tokens or (), temperature,
                    restriction=one.restriction,
                )
                for request, one in every
            ],
        )  # fmt: skip
        for (_, one), logprobs in zip(every, scored, strict=True):
            assert logprobs == pytest.approx(one.logprobs, abs=1e-4)
        assert plain.restriction is None
        assert all(one.restriction == Restriction(form) for one in answers)


def test_the_probabilities_of_all_answers_add_up_to_1(backbone: Backbone) -> None:
    """Every way to write one of the choices in tokens, each with its end."""
    form = AnswerFormat(choices=("ab", "c"))
    paths: list[tuple[int, ...]] = []

    def walk(tokens: tuple[int, ...]) -> None:
        guide = backbone.vocabulary.guide(form)
        for token in tokens:
            guide.read(token)
        bits = torch.from_numpy(guide.allowed())
        for token in range(backbone.vocabulary.size):
            if bits[token // 32] >> (token % 32) & 1:
                if token in backbone.eos_ids:
                    paths.append((*tokens, token))
                else:
                    walk((*tokens, token))

    walk(())
    assert len(paths) >= 2 * len(backbone.eos_ids)
    scored = score_requests(
        backbone, [ScoreRequest("p", (5, 60), path, 1.0, None, Restriction(form)) for path in paths]
    )
    assert sum(torch.tensor(one).sum().exp().item() for one in scored) == pytest.approx(1, abs=1e-5)


def allowed_by(guide: Guide, size: int) -> list[int]:
    bits = guide.allowed()
    return [token for token in range(size) if bits[token // 32] >> (token % 32) & 1]


def test_a_choice_is_written_as_the_tokenizer_writes_it(backbone: Backbone) -> None:
    """So the entropy of its tokens is that of the answers."""
    words, read = backbone.vocabulary, backbone.tokenizer
    long = next(
        one for one in range(words.size)
        if len(text := read.decode([one])) > 1 and text.isalpha() and token_ids(read, text) == [one]
    )  # fmt: skip
    text = read.decode([long])
    guide = words.guide(AnswerFormat(choices=(text, f"{text}!")))
    assert allowed_by(guide, words.size) == [long]  # and no token of its first letters
    assert len(allowed_by(words.guide(AnswerFormat(regex=f"{text}!?|#")), words.size)) > 1
    guide.read(long)
    (more,) = token_ids(read, "!")
    assert allowed_by(guide, words.size) == sorted([more, *backbone.eos_ids])
    guide.read(more)
    assert allowed_by(guide, words.size) == sorted(backbone.eos_ids)


def test_spaces_and_a_choice_follow_a_thinking(backbone: Backbone) -> None:
    words, read = backbone.vocabulary, backbone.tokenizer
    guide = words.guide(AnswerFormat(choices=("b", "c")), after_thinking=True)
    letters = [token_ids(read, one)[0] for one in "bc"]
    begun = allowed_by(guide, words.size)
    assert set(letters) < set(begun)
    spaces = set(begun) - set(letters)
    assert {read.decode([one]).strip(" \n") for one in spaces} == {""}
    guide.read(token_ids(read, "\n")[0])
    assert set(letters) < set(allowed_by(guide, words.size))
    guide.read(letters[0])
    assert allowed_by(guide, words.size) == sorted(backbone.eos_ids)


def test_a_tokenizer_that_puts_a_space_before_a_text_writes_a_choice_without_it() -> None:
    tokens = ["</s>", "\u2581", "a", "b", "ab", "\u2581ab"]
    own = Tokenizer(models.BPE({one: at for at, one in enumerate(tokens)}, [("a", "b")]))
    own.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    own.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )  # fmt: skip
    read = PreTrainedTokenizerFast(tokenizer_object=own, eos_token="</s>")
    assert token_ids(read, "ab") == [1, 4]
    assert list(Vocabulary.of(read, len(tokens), [0]).written("ab")) == [4]


def test_a_choice_that_is_called_like_a_special_token_is_spelled(backbone: Backbone) -> None:
    name = backbone.tokenizer.decode([backbone.eos_ids[0]])
    tokens = backbone.vocabulary.written(name)
    assert set(tokens).isdisjoint(backbone.eos_ids)
    assert backbone.tokenizer.decode(tokens) == name


def test_a_token_that_continues_no_choice_is_a_fault(backbone: Backbone) -> None:
    guide = backbone.vocabulary.guide(AnswerFormat(choices=("bet",)))
    with pytest.raises(FormatFault, match="token 5 continues none of the choices"):
        guide.read(5)


def by_hand(
    backbone: Backbone, rows: Rows, logits_LV: torch.Tensor, form: AnswerFormat
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (log-probability, entropy) of one row's tokens from its logits."""
    guide, logp, entropy = backbone.vocabulary.guide(form), [], []
    for logits_V, token in zip(logits_LV, rows.tokens_BL[0].tolist(), strict=True):
        bits = guide.allowed()
        places = [one for one in range(len(logits_V)) if bits[one // 32] >> (one % 32) & 1]
        own = torch.log_softmax(logits_V[places], dim=0)
        logp.append(own[places.index(token)])
        entropy.append(-(own.exp() * own).sum())
        guide.read(token)
    return torch.stack(logp), torch.stack(entropy)


@pytest.mark.parametrize("head", [True, False], ids=["trained head", "frozen head"])
@pytest.mark.parametrize("want_entropy", [True, False])
def test_the_gradient_is_that_of_the_tokens_that_were_allowed(
    backbone: Backbone, head: bool, want_entropy: bool
) -> None:
    tokens = token_ids(backbone.tokenizer, "-12/3")
    prompt = torch.tensor([[5, 60, 200]])
    tokens_BL = torch.tensor([[*tokens, backbone.eos_ids[0]]])
    mask_BL = torch.ones_like(tokens_BL, dtype=torch.bool)
    rows = Rows(
        prompt, torch.ones_like(prompt, dtype=torch.bool), torch.zeros(1, dtype=torch.int64),
        tokens_BL, mask_BL, restrictions=(Restriction(REGEX),),
    )  # fmt: skip
    model = backbone.model
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    model.get_output_embeddings().weight.requires_grad_(head)
    weights = [one for one in model.parameters() if one.requires_grad]

    def grads(logp_L: torch.Tensor, entropy_L: torch.Tensor) -> torch.Tensor:
        total = (logp_L * torch.arange(1.0, 1 + len(logp_L))).sum()
        if want_entropy:
            total = total + 0.3 * (entropy_L * torch.arange(1.0, 1 + len(logp_L))).sum()
        found = torch.autograd.grad(total, weights, allow_unused=True)
        return torch.cat([one.flatten() for one in found if one is not None])

    with backbone.policy(None):
        got_logp, got_entropy = forward(backbone, rows, torch.tensor([1.0]), want_entropy)
        got = grads(got_logp[0], got_entropy[0])
        whole = torch.cat([prompt, tokens_BL], dim=1)
        logits_LV = model(input_ids=whole).logits[0, prompt.shape[1] - 1 : -1]
        logp_L, entropy_L = by_hand(backbone, rows, logits_LV, REGEX)
        expected = grads(logp_L, entropy_L)
    torch.testing.assert_close(got_logp[0], logp_L, atol=1e-5, rtol=1e-5)
    if want_entropy:
        torch.testing.assert_close(got_entropy[0], entropy_L, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-3)


def test_logits_that_exist_give_the_same(backbone: Backbone) -> None:
    tokens = [*token_ids(backbone.tokenizer, "7/8"), backbone.eos_ids[0]]
    rows = Rows(
        *padded([[5, 60]], 0, "left", CPU), torch.zeros(1, dtype=torch.int64),
        *padded([tokens], 0, "right", CPU), restrictions=(Restriction(REGEX),),
    )  # fmt: skip
    allowed = allowed_at(backbone.vocabulary, [tokens], rows.restrictions, CPU)
    logits_MV = torch.randn(len(tokens), backbone.vocabulary.size)
    got_M, got_entropy_M = score_logits(
        logits_MV, torch.tensor(tokens), torch.ones(len(tokens)), True, allowed
    )
    logp_M, entropy_M = by_hand(backbone, rows, logits_MV, REGEX)
    torch.testing.assert_close(got_M, logp_M)
    torch.testing.assert_close(got_entropy_M, entropy_M)


def test_the_form_begins_behind_a_thinking(backbone: Backbone) -> None:
    settings = Decode(
        format=CHOICES, thinking=Thinking(max_tokens=4), max_new_tokens=64, temperature=1.5
    )
    prompts = [token_ids(backbone.tokenizer, text) for text in ("7?<think>", "8?")]
    asked, answers = sampled(backbone, settings, prompts)
    assert all(fits(CHOICES, one.text) for one in answers if one.stop == "stop")
    thought = [one for request, one in zip(asked, answers, strict=True) if request.prompt == 0]
    assert any(one.forced and one.stop == "stop" for one in thought)
    assert all(not one.restriction or one.restriction.first >= 4 for one in thought if one.forced)
    plain = [one for request, one in zip(asked, answers, strict=True) if request.prompt == 1]
    assert all(one.restriction == Restriction(CHOICES) and not one.thinking for one in plain)
    scored = score_requests(
        backbone,
        [
            ScoreRequest(
                "p", tuple(prompts[request.prompt]), one.tokens or (), 1.5, one.forced,
                one.restriction,
            )
            for request, one in zip(asked, answers, strict=True)
        ],
    )  # fmt: skip
    for one, logprobs in zip(answers, scored, strict=True):
        assert logprobs == pytest.approx(one.logprobs, abs=1e-4)


def test_rows_that_are_dealt_keep_their_forms() -> None:
    forms = (Restriction(REGEX), None, Restriction(CHOICES))
    zeros_BL = torch.zeros(3, 2)
    batch = Batch(
        torch.ones(1, 2, dtype=torch.int64), torch.ones(1, 2, dtype=torch.bool),
        torch.zeros(3, dtype=torch.int64), torch.ones(3, 2, dtype=torch.int64),
        torch.ones(3, 2, dtype=torch.bool), "p", zeros_BL, zeros_BL, torch.ones(3), torch.ones(3),
        restrictions=forms,
    )  # fmt: skip
    assert [part.restrictions for part in deal(batch, 2)] == [forms[:2], forms[2:]]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (AnswerFormat(regex="(a"), "decode.format: … (a"),
        (AnswerFormat(regex="a(?=b)"), "decode.format: … look"),
        (AnswerFormat(json_schema={"type": "nothing"}), "decode.format: … nothing"),
    ],
)
def test_a_form_that_is_none_is_refused(backbone: Backbone, form: AnswerFormat, said: str) -> None:
    with pytest.raises(ConfigError, match=facts(said)) as caught:
        backbone.vocabulary.guide(form)
    assert "\n" not in str(caught.value)


def test_a_model_without_an_end_is_refused(backbone: Backbone) -> None:
    with pytest.raises(ConfigError, match=r"needs a token that ends an answer.*end_tokens"):
        Vocabulary.of(backbone.tokenizer, 300, ())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "got nothing; expected one of"),
        ({"choices": ["a"], "regex": "b"}, "got choices and regex"),
        ({"choices": []}, "at least 1 item"),
        ({"choices": [""]}, "at least 1 character"),
    ],
)
def test_one_form_is_needed(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        AnswerFormat.model_validate(given)
