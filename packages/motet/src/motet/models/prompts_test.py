"""Prompts as tokens: templates, plain chats, strings, names, and prompts that are too long."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from motet.core import Chat, Message, Prompt
from motet.models import content, prompts
from motet.models.bounded_text import BadPrompt
from motet.models.prompts import LOOSEST, LongPrompt, encode, fit
from motet.models.tiny import EOS
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import BOS, TEMPLATE, make_tokenizer

ASK = Message("user", "the dog?")
CHAT: Chat = (Message("system", "quick"), ASK)


@pytest.fixture
def plain() -> PreTrainedTokenizerFast:
    return make_tokenizer("qwen3", chat_template=False, context=96, vocabulary=300)


@pytest.fixture
def templated() -> PreTrainedTokenizerFast:
    return make_tokenizer("qwen3", chat_template=True, context=96, vocabulary=300)


def test_a_chat_goes_through_the_template_and_asks_for_an_answer(
    templated: PreTrainedTokenizerFast,
) -> None:
    text = templated.decode(encode(templated, CHAT))
    assert text == "<bos>system\nquick<end><bos>user\nthe dog?<end><bos>assistant\n"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_a_template_reads_variables_and_what_was_thought(
    templated: PreTrainedTokenizerFast, name: str
) -> None:
    templated.chat_template = (
        f"{{% for m in messages %}}{{{{ m.role }}}}:{{{{ m.{name} }}}}:{{{{ m.content }}}}"
        "\n{% endfor %}{{ mood }}"
    )
    chat = (ASK, Message("assistant", "yes", thinking="<end>hm"), ASK)
    ids = encode(templated, chat, {"mood": "!"})
    assert templated.decode(ids) == "user::the dog?\nassistant:<end>hm:yes\nuser::the dog?\n!"
    assert templated.convert_tokens_to_ids("<end>") not in ids, "no text is a special token"


def test_a_chat_without_a_template_is_lines_of_role_and_content(
    plain: PreTrainedTokenizerFast,
) -> None:
    assert plain.decode(encode(plain, CHAT)) == "system: quick\nuser: the dog?\nassistant:"


def test_raw_text_gets_the_tokens_that_the_tokenizer_adds_and_no_others(
    plain: PreTrainedTokenizerFast,
) -> None:
    assert plain.decode(encode(plain, "the dog")) == "the dog"
    llama = make_tokenizer("llama", chat_template=True, context=96, vocabulary=300)
    assert encode(llama, "the dog")[0] == llama.bos_token_id
    assert encode(llama, CHAT).count(llama.bos_token_id) == 3, (
        "the template's, and none before them"
    )


def with_both_ends(chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """Return a tokenizer that puts `<bos>` before every string and `<eos>` behind it."""
    tokenizer = make_tokenizer("qwen3", chat_template=False, context=96, vocabulary=300)
    ends = [(name, tokenizer.convert_tokens_to_ids(name)) for name in (BOS, EOS)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A {EOS}", pair=f"{BOS} $A {EOS} $B {EOS}", special_tokens=ends
    )
    tokenizer.chat_template = chat_template
    assert tokenizer.decode(tokenizer("the dog")["input_ids"]) == "<bos>the dog<eos>"
    return tokenizer


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("the dog", "<bos>the dog"),
        ("", "<bos>"),
        ("<bos>the dog", "<bos><bos>the dog"),
        ("the dog<eos>", "<bos>the dog<eos>"),
        ("the<eos> dog", "<bos>the<eos> dog"),
    ],
)
def test_a_prompt_ends_in_no_token_of_the_tokenizers_and_begins_with_one_bos(
    text: str, read: str
) -> None:
    tokenizer = with_both_ends()
    ids = encode(tokenizer, text)
    assert tokenizer.decode(ids) == read
    assert ids.count(tokenizer.bos_token_id) == 1, "what the text spells is text"
    assert tokenizer.eos_token_id not in ids


def test_what_a_tokenizer_puts_before_a_text_is_found_where_it_reads_no_letters() -> None:
    digits = Tokenizer(BPE({BOS: 0, EOS: 1, "0": 2, "1": 3, "+": 4}, []))
    digits.post_processor = TemplateProcessing(
        single=f"{BOS} $A {EOS}", special_tokens=[(BOS, 0), (EOS, 1)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=digits, bos_token=BOS, eos_token=EOS)
    assert encode(tokenizer, "1+0") == (0, 3, 4, 2)


def test_what_a_tokenizer_puts_before_a_text_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = prompts.token_ids
    for module in (prompts, content):
        monkeypatch.setattr(
            module, "token_ids", lambda *of, **how: asked.append(of[1]) or ask(*of, **how)
        )
    tokenizer = with_both_ends()
    encode(tokenizer, "the dog")
    asked.clear()
    encode(tokenizer, "the fox")
    assert asked == ["the fox"]


def test_a_chat_has_no_token_behind_it_and_no_second_bos() -> None:
    lines = with_both_ends()
    assert lines.decode(encode(lines, CHAT)) == "<bos>system: quick\nuser: the dog?\nassistant:"
    templated = with_both_ends(
        "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
    )
    assert templated.decode(encode(templated, CHAT)) == "<bos>quickthe dog?"


@pytest.mark.parametrize("name", ["plain", "templated"])
def test_a_name_is_shown_in_the_content_where_nothing_else_shows_it(
    name: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    assert "alice: hello" in tokenizer.decode(
        encode(tokenizer, (Message("user", "hello", name="alice"),))
    )


def test_a_template_that_shows_names_shows_them_once(templated: PreTrainedTokenizerFast) -> None:
    templated.chat_template = TEMPLATE.replace(
        "message.role +", "message.role + (message.name or '') +"
    )
    text = templated.decode(encode(templated, (Message("user", "hello", name="alice"),)))
    assert text.startswith("<bos>useralice\nhello<end>")


def test_a_chat_that_the_template_refuses_is_a_fault(templated: PreTrainedTokenizerFast) -> None:
    templated.chat_template = "{{ raise_exception('no system here') }}"
    with pytest.raises(BadPrompt, match=facts("chat of system, user … no system here")):
        encode(templated, CHAT)


def test_a_prompt_without_tokens_is_a_fault(plain: PreTrainedTokenizerFast) -> None:
    with pytest.raises(BadPrompt, match="has no tokens"):
        encode(plain, "")


LONG: Chat = (
    Message("system", "quick"),
    Message("user", "first " * 10),
    Message("assistant", "second"),
    Message("user", "third"),
    Message("assistant", "fourth"),
    Message("user", "last"),
)


def test_a_prompt_that_fits_stays_whole(plain: PreTrainedTokenizerFast) -> None:
    whole = encode(plain, LONG)
    assert fit(plain, LONG, context=len(whole) + 5) == whole


def test_a_long_prompt_is_a_fault_only_where_no_token_of_an_answer_fits(
    plain: PreTrainedTokenizerFast,
) -> None:
    whole = encode(plain, LONG)
    assert fit(plain, LONG, context=len(whole) + 1) == whole
    said = f"prompt has {len(whole)} tokens, expected at most {len(whole) - 1}"
    with pytest.raises(LongPrompt, match=said):
        fit(plain, LONG, context=len(whole))


def test_a_prompt_far_too_long_is_refused_without_its_tokens(
    plain: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def reading(
        tokenizer: PreTrainedTokenizerFast, prompt: Prompt, variables: prompts.Variables
    ) -> tuple[int, ...]:
        read.append(len(prompt))
        return encode(tokenizer, prompt)

    monkeypatch.setattr(prompts, "encode", reading)
    with pytest.raises(LongPrompt, match=r"has 8,000,000 characters, expected at most 255 tokens"):
        fit(plain, "the dog " * 1_000_000, context=256)
    many = (Message("user", ""),) * 30_000
    with pytest.raises(LongPrompt, match=r"has 0 characters in 30,000 messages, expected at most"):
        fit(plain, many, context=256)
    assert read == []
    with pytest.raises(LongPrompt, match="tokens, expected at most 7 tokens"):
        fit(plain, "x" * LOOSEST * 8, context=8)
    assert read == [LOOSEST * 8]


def test_a_tokenizer_survives_its_folder(
    templated: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    templated.save_pretrained(tmp_path)
    assert encode(PreTrainedTokenizerFast.from_pretrained(tmp_path), CHAT) == encode(
        templated, CHAT
    )


def test_half_a_character_is_a_fault_that_names_its_place(
    plain: PreTrainedTokenizerFast, templated: PreTrainedTokenizerFast
) -> None:
    for words, prompt in (
        (plain, "the \ud800 dog"),
        (templated, (Message("user", "the \ud800 dog"),)),
    ):
        with pytest.raises(BadPrompt, match=r"a lone surrogate, '.ud800', in 'the .ud800 dog'"):
            encode(words, prompt)
