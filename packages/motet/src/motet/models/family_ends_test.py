"""Completions of each family end where its template ends a turn, and docs/models.md says where."""

from collections.abc import Sequence

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from motet.core import Completion, Message
from motet.models.backbone import Backbone
from motet.models.bounded_text import token_ids
from motet.models.completions import CompletionEnds, completion_ends, turn_end
from motet.models.decode import DecodeRequest, decode
from motet.models.prompts import encode
from motet.models.thinking import begins_to_think
from motet.settings import Decode, Thinking
from tests.families import BEGIN, END, FAMILIES, NONE, PAGE, Family, table
from tests.fixtures.model_folders import make_model_folder

ASK = Message("user", "2+3?")
THINKERS = {name: one for name, one in FAMILIES.items() if one.thinking is not None}
SWITCHED = {name: one for name, one in THINKERS.items() if one.off is not None}
every = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
thinkers = pytest.mark.parametrize("family", THINKERS.values(), ids=THINKERS)
switched = pytest.mark.parametrize("family", SWITCHED.values(), ids=SWITCHED)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    folder = make_model_folder(tmp_path_factory.mktemp("models") / "m", vocabulary=320, context=512)
    return Backbone.load(folder)


def sampled(
    backbone: Backbone,
    words: PreTrainedTokenizerFast,
    prompt: Sequence[int],
    said: str,
    asked: Decode,
) -> Completion:
    """Return the completion of a model that says `said`, which its tokenizer has."""
    script = iter(token_ids(words, said))

    def says(
        tokens_BL: torch.Tensor, mask: object, positions: object, keep: int, *cache: object
    ) -> tuple[torch.Tensor, None]:
        logits_BKV = torch.full((len(tokens_BL), keep, 320), -100.0)
        logits_BKV[..., next(script)] = 0.0
        return logits_BKV, None

    ends = completion_ends("m", None, words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backbone, "tokenizer", words)
        patch.setattr(backbone, "eos_ids", ends.ids)
        patch.setattr(backbone, "logits", says)
        patch.setattr("motet.models.decode.give_room", lambda *_: None)
        (found,) = decode(backbone, [prompt], [DecodeRequest("p", 0, asked, key=0)])
    assert isinstance(found, Completion)
    return found


@every
def test_completions_end_where_the_template_ends_a_turn(family: Family) -> None:
    words = family.tokenizer()
    eos, *turn = words.convert_tokens_to_ids([family.eos, *family.ends])
    assert turn_end(words) == CompletionEnds(turn=tuple(turn))
    assert completion_ends("m", None, words).ids == tuple(sorted({eos, *turn}))


@every
def test_a_completion_has_its_end_in_its_tokens_and_not_in_its_text(
    family: Family, backbone: Backbone
) -> None:
    words = family.tokenizer()
    prompt = encode(words, (ASK,), family.off or NONE)
    for end in dict.fromkeys((*family.ends, family.eos)):
        closed = f"5{family.closing}{end}" if end in family.ends else f"5{end}"
        found = sampled(backbone, words, prompt, closed + "\nuser 6", Decode(max_new_tokens=24))
        assert (found.text, found.stop) == ("5", "stop")
        assert list(found.tokens or ()) == token_ids(words, closed), "and nothing behind it"


@thinkers
def test_thinking_is_told_from_the_answer_and_ends_nothing(
    family: Family, backbone: Backbone
) -> None:
    thinking = family.thinking
    assert thinking is not None
    words = family.tokenizer()
    prompt = encode(words, (ASK,), family.on or NONE)
    assert begins_to_think(words, prompt, thinking) == family.opens
    start = "" if family.opens else thinking.start
    said = f"{start}add{thinking.end}5{family.closing}{family.ends[-1]}"
    asked = Decode(thinking=thinking, max_new_tokens=60)
    found = sampled(backbone, words, prompt, said + "6", asked)
    assert (found.thinking, found.text, found.stop) == ("add", "5", "stop")
    assert list(found.tokens or ()) == token_ids(words, said)


@switched
def test_an_agent_does_not_think_where_its_variables_switch_it_off(
    family: Family, backbone: Backbone
) -> None:
    thinking = family.thinking
    assert thinking is not None
    assert family.off is not None
    words = family.tokenizer()
    chat = (Message("system", family.off_system), ASK) if family.off_system else (ASK,)
    prompt = encode(words, chat, family.off)
    assert prompt != encode(words, (ASK,), family.on or NONE)
    assert not begins_to_think(words, prompt, thinking)
    asked = Decode(thinking=thinking, max_new_tokens=60)
    found = sampled(backbone, words, prompt, f"5{family.closing}{family.ends[-1]}6", asked)
    assert (found.thinking, found.text) == ("", "5")


DIRECT = [
    ("gpt-oss", "<|channel|>final<|message|>", "5", ""),
    ("Muse Glimmer", " to=user<|message|>", "5", ""),
    ("gpt-oss", "<|channel|>analysis<|message|>", "", "5"),
    ("gpt-oss", "", "5", ""),
    ("Qwen 3, SmolLM 3", "", "5", ""),
]


@pytest.mark.parametrize(("name", "head", "text", "thought"), DIRECT)
def test_an_answer_without_thinking_has_the_header_of_an_answer(
    backbone: Backbone, name: str, head: str, text: str, thought: str
) -> None:
    family = FAMILIES[name]
    assert family.thinking is not None
    words = family.tokenizer()
    said = f"{head}5{family.ends[-1]}"
    asked = Decode(thinking=family.thinking, stop=("final", "user"), max_new_tokens=60)
    found = sampled(backbone, words, encode(words, (ASK,)), said, asked)
    assert (found.text, found.thinking, found.stop) == (text, thought, "stop")
    assert list(found.tokens or ()) == token_ids(words, said)


def test_a_budget_closes_channels_as_their_template_does(backbone: Backbone) -> None:
    family = FAMILIES["gpt-oss"]
    assert family.thinking is not None
    words = family.tokenizer()
    start, end = family.thinking.start, family.thinking.end
    size = len(token_ids(words, f"{start}add"))
    asked = Thinking(start=start, end=end, closing=end, max_tokens=size)
    prompt = encode(words, (ASK,))
    unread = "." * len(token_ids(words, end))
    said = f"{start}add{unread}5<|return|>"
    found = sampled(backbone, words, prompt, said, Decode(thinking=asked, max_new_tokens=60))
    assert words.decode(found.tokens or ()) == f"{start}add{end}5<|return|>"
    assert (found.thinking, found.text) == ("add", "5")


def test_the_page_has_the_table_of_these_families() -> None:
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip() == table()
