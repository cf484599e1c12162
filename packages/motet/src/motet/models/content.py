"""What a text may become: the only place where texts and templates meet special tokens.

A chat template writes special tokens, such as <|im_start|>, around the messages of a chat. A
message may spell the same characters: a row of a dataset, feedback, or the answer of another agent.
A tokenizer reads both as the same token, so that the text of a message could close its turn and
open another one. Here the spelling in a text stays text: its characters become ordinary tokens.

A prompt whose messages spell no special token gets exactly the ids that transformers gives.

The characters of messages are told from those of the template by marks. A mark is one character of
Unicode's private planes that neither the chat nor the template has. It stands in the place of a
character of a message while the template runs, so a template may trim, cut, split and test a
message as usual. Where a marked spelling remains in the result, the text is cut behind its first
character, and the tokenizer sees the pieces one after the other.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.errors import SamplerFault
from motet.models.bounded_text import (
    BadPrompt,
    TemplateRefused,
    chat_text,
    strings_in,
    template_of,
    token_ids,
    token_spans,
)
from motet.models.tool_forms import form_of, probe_text

ChatRow = Mapping[str, Any]
"""A message as templates read it: role, content, perhaps a name, and perhaps calls, which are
nested values."""
Tools = Sequence[Mapping[str, Any]]
"""Descriptions of tools, as in OpenAI's API. They may be a stranger's."""
_KNOWN = frozenset(
    (
        "role", "content", "name", "reasoning_content", "thinking", "tool_calls", "tool_call_id",
        "type", "function", "id", "arguments", "description", "parameters", "properties",
        "required", "items", "enum", "anyOf", "oneOf", "default", "nullable",
        "additionalProperties",
    )
)  # fmt: skip
"""Keys of rows and tools that templates look for, so that they must stay as they are."""

_PRIVATE = range(0xF0000, 0xFFFFE)
_PRIVATE_USE = re.compile(f"[{chr(_PRIVATE[0])}-{chr(_PRIVATE[-1])}]")
_PROBE = ("zqz1", "zqz2", "zqz3", "zqz4")
"""Contents of a chat that shows what a template writes between messages."""


@dataclass(frozen=True)
class ControlTokens:
    """The tokens that no text may become."""

    spellings: Mapping[str, tuple[str, ...]]
    """The first two characters -> the spellings that begin so, the longest first."""
    ids: frozenset[int]
    """Without the token for unknown characters, which a text may become."""
    read_otherwise: bool
    """Whether the tokenizer may read other characters as one of these tokens: after it normalized
    them, or because the token is also a word of its vocabulary.
    """
    firsts: re.Pattern[str]
    """The first characters of the spellings."""
    keys: re.Pattern[str]
    """One character of each spelling, if possible a rare one."""

    def at(self, text: str, place: int) -> list[str]:
        """Return the spellings that begin at `place`, the longest first."""
        some = self.spellings.get(text[place : place + 2], ())
        return [one for one in some if text.startswith(one, place)]

    def begin(self, text: str) -> list[int]:
        """Return the places where a spelling begins."""
        places = (found.start() for found in self.firsts.finditer(text))
        return [place for place in places if self.at(text, place)]


def text_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the token ids of a text outside a chat, none of which is a special token.

    Raises: SamplerFault.
    """
    control = control_tokens(tokenizer)
    cuts = [place + 1 for place in _spelt(tokenizer, control, text)]
    return _pieces(tokenizer, control, text, cuts, [])


def chat_ids(
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[ChatRow],
    variables: Mapping[str, Any] = MappingProxyType({}),
    tools: Tools = (),
) -> list[int]:
    """Return the token ids of a chat in the tokenizer's template, ready for a completion.

    The template reads `variables` as its own, and shows `tools`.

    A last message of the assistant is continued: nothing follows its content. All special tokens
    are the template's own.

    Raises: SamplerFault; TemplateRefused.
    """
    control = control_tokens(tokenizer, tools=bool(tools) or _has_calls(rows))
    given = (*rows, *tools)
    spelt = {text: _spelt(tokenizer, control, text) for text in dict.fromkeys(_texts(given))}
    spells = any(spelt.values())
    own = _rendered(tokenizer, rows, variables, tools)
    if not spells and not _may_join(control, given):
        return token_ids(tokenizer, own)
    marks = _Marks(control, list(spelt), template_of(tokenizer, tools))

    def rendered(*, all_keys: bool) -> _Read:
        marked, offered = (
            [marks.marked(one, spelt, all_keys=all_keys) for one in some] for some in (rows, tools)
        )
        return marks.read(_rendered(tokenizer, marked, variables, offered))

    # Every character of a message that a special token could need is marked. This tells which
    # tokens the template writes, but a template that looks for <think> in a message finds none.
    whole = rendered(all_keys=True)
    if not spells and _written(control, own) == whole.written:
        return token_ids(tokenizer, own)
    # Only what is spelt is marked. If the template joins pieces of a message to a special token,
    # this shows more tokens than before.
    some = rendered(all_keys=False)
    safe = some if some.written == whole.written else whole
    return _pieces(tokenizer, control, safe.text, safe.cuts, safe.written)


def spelt_tokens(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> list[str]:
    """Return the special tokens that `texts` spell, and that therefore stay text in a prompt."""
    control = control_tokens(tokenizer)
    found = (
        spelling
        for text in texts
        for place in control.begin(text)
        for spelling in control.at(text, place)[:1]
    )
    return list(dict.fromkeys(found))


def _pieces(
    tokenizer: PreTrainedTokenizerBase,
    control: ControlTokens,
    text: str,
    cuts: Sequence[int],
    written: Sequence[str],
) -> list[int]:
    if not cuts:
        return token_ids(tokenizer, text)
    ends = [0, *sorted(set(cuts)), len(text)]
    ids = [
        token
        for start, end in pairwise(ends)
        if start < end
        for token in token_ids(tokenizer, text[start:end])
    ]
    found = [token for token in ids if token in control.ids]
    if len(found) > len(written):
        raise BadPrompt(
            "a text contains characters that this tokenizer can read only as a special token: got "
            f"{tokenizer.convert_ids_to_tokens(found)}, expected {list(written)}, those of the "
            "chat template: repair the data"
        )
    return ids


def _texts(given: Any) -> Iterator[str]:
    """Yield every text of messages and tools, also the keys that are no template's own."""
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        yield from (name for name in given if name not in _KNOWN)
        yield from _texts(list(given.values()))
    elif isinstance(given, list | tuple):
        for one in given:
            yield from _texts(one)


def _has_calls(rows: Sequence[ChatRow]) -> bool:
    return any("tool_calls" in row or row.get("role") == "tool" for row in rows)


def _rendered(
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[ChatRow],
    variables: Mapping[str, Any],
    tools: Tools,
) -> str:
    """Render a chat, with the header of an answer or up to the end of the answer that has begun."""
    if not rows or rows[-1].get("role") != "assistant":
        return chat_text(tokenizer, rows, variables, tools=tools)
    used = strings_in((*rows, *tools))
    end = _unused(used, template_of(tokenizer, tools), 1, last=True)[0]
    begun = {**rows[-1], "content": rows[-1]["content"] + end}
    whole = chat_text(tokenizer, [*rows[:-1], begun], variables, answer=False, tools=tools)
    text, found, _ = whole.rpartition(end)
    if not found:
        raise TemplateRefused(
            "it does not show the last message, which is the assistant's and would be continued; "
            "expected a chat that ends with a message of the user"
        )
    return text


# ------------------------------------------------------------------------ what is spelt in a text


def _spelt(tokenizer: PreTrainedTokenizerBase, control: ControlTokens, text: str) -> list[int]:
    """Return the places in `text` where the tokenizer would begin to read a special token."""
    places = control.begin(text)
    if not control.read_otherwise or not text:
        return places
    read = token_spans(tokenizer, text)
    more = {start for token, start, end in read if token in control.ids and end - start > 1}
    return sorted(more.union(places))


def _may_join(control: ControlTokens, given: Any, key: str = "") -> bool:
    """Return whether parts of the messages and tools could form a special token in some
    template."""
    if isinstance(given, str):
        part = key == "name" and _is_part(control, given)
        return part or control.keys.search(given) is not None
    if isinstance(given, Mapping):
        names = (name for name in given if name not in _KNOWN)
        return any(_may_join(control, name, "name") for name in names) or any(
            _may_join(control, value, name) for name, value in given.items()
        )
    inner = given if isinstance(given, list | tuple) else ()
    return any(_may_join(control, one, key) for one in inner)


def _is_part(control: ControlTokens, name: str) -> bool:
    return any(name in one for some in control.spellings.values() for one in some)


def _written(control: ControlTokens, text: str) -> list[str]:
    return _Marks.without(control).read(text).written


@dataclass(frozen=True)
class _Read:
    """What a template made of a marked chat."""

    text: str
    cuts: list[int]
    """Places at which the text must be cut, so that no message becomes a special token."""
    written: list[str]
    """The special tokens of the template itself, in their order."""


class _Marks:
    """The marks of one chat: character -> its mark. A spelling's first character has another mark
    than other characters.
    """

    def __init__(self, control: ControlTokens, texts: Sequence[str], template: str) -> None:
        self._control = control
        characters = sorted(set().union(*texts))
        free = _unused(texts, template, 2 * len(characters))
        self._soft = dict(zip(characters, free, strict=False))
        self._firm = dict(zip(characters, free[len(characters) :], strict=True))
        self._back = {mark: one for kind in (self._soft, self._firm) for one, mark in kind.items()}
        self._unmark = str.maketrans(self._back)
        self._firm_marks = frozenset(self._firm.values())

    @classmethod
    def without(cls, control: ControlTokens) -> "_Marks":
        return cls(control, (), "")

    def marked(
        self, given: Any, spelt: Mapping[str, Sequence[int]], *, all_keys: bool, key: str = ""
    ) -> Any:
        """Return a message or a tool with marks at the places in `spelt`, which has those of each
        text; with `all_keys`, also at every character that a special token could need.
        """
        if isinstance(given, str):
            return self._one(key, given, spelt[given], all_keys)
        if isinstance(given, Mapping):
            return {
                name if name in _KNOWN else self._one("name", name, spelt[name], all_keys):
                self.marked(value, spelt, all_keys=all_keys, key=name)
                for name, value in given.items()
            }  # fmt: skip
        if isinstance(given, list | tuple):
            return [self.marked(one, spelt, all_keys=all_keys, key=key) for one in given]
        return given

    def _one(self, key: str, value: str, firm: Sequence[int], all_keys: bool) -> str:
        letters = list(value)
        if all_keys:
            for found in self._control.keys.finditer(value):
                letters[found.start()] = self._soft[value[found.start()]]
            if key == "name" and _is_part(self._control, value):
                letters[0] = self._soft[value[0]]
        for place in firm:
            letters[place] = self._firm[value[place]]
        return "".join(letters)

    def read(self, marked: str) -> _Read:
        """Take the marks out of a text, and tell the template's special tokens from the others."""
        places = {
            found.start() for found in _PRIVATE_USE.finditer(marked) if found[0] in self._back
        }
        cuts = [place + 1 for place in places if marked[place] in self._firm_marks]
        text = marked.translate(self._unmark) if places else marked
        written: list[str] = []
        end = 0
        for place in self._control.begin(text):
            if place < end:
                continue
            spellings = self._control.at(text, place)
            own = next((one for one in spellings if not _touches(place, one, places)), None)
            if own is not None:
                written.append(own)
                end = place + len(own)
            if own is None or own != spellings[0]:
                # A longer spelling begins here too, and has characters of a message.
                cuts.append(place + 1 if own is None else end)
        return _Read(text, cuts, written)


def _touches(place: int, spelling: str, places: set[int]) -> bool:
    return bool(places) and not places.isdisjoint(range(place, place + len(spelling)))


def _unused(texts: Iterable[str], template: str, count: int, *, last: bool = False) -> list[str]:
    """Return characters for private use that neither the texts nor the template have."""
    if not count:
        return []
    used = set(template).union(*texts)
    free = (
        chr(code) for code in (reversed(_PRIVATE) if last else _PRIVATE) if chr(code) not in used
    )
    found = list(islice(free, count))
    if len(found) < count:
        raise BadPrompt(
            "a chat uses too many of Unicode's characters for private use; expected ordinary texts"
        )
    return found


# -------------------------------------------------------------------------------- which tokens

_CONTROL: WeakKeyDictionary[PreTrainedTokenizerBase, dict[bool, tuple[object, ControlTokens]]] = (
    WeakKeyDictionary()
)


def control_tokens(tokenizer: PreTrainedTokenizerBase, *, tools: bool = False) -> ControlTokens:
    """Return the tokens that no text may become.

    These are all special tokens, and those that the chat template writes between the messages of a
    chat although the tokenizer does not call them special. A token for a part of an answer, such as
    <think>, is not one of them if the tokenizer does not call it special. With `tools`, the tokens
    that the template writes around calls and results are among them, too.
    """
    template = tokenizer.chat_template
    version = (str(template), len(tokenizer))
    made = _CONTROL.setdefault(tokenizer, {})
    if (known := made.get(tools)) is not None and known[0] == version:
        return known[1]
    added = tokenizer.added_tokens_decoder
    special = {one.content for one in added.values() if one.special}
    special.update(map(str, tokenizer.all_special_tokens))
    if template is not None:
        special |= _turn_tokens(tokenizer, {one.content for one in added.values()} - special)
    if template is not None and tools:
        special |= _tool_tokens(tokenizer, {one.content for one in added.values()} - special)
    # A text with the character of a token of one character cannot be written in another way.
    found = _control(tokenizer, {one for one in special if len(one) > 1})
    made[tools] = (version, found)
    return found


def _control(tokenizer: PreTrainedTokenizerBase, spellings: set[str]) -> ControlTokens:
    longest_first = tuple(sorted(spellings, key=lambda one: (-len(one), one)))
    vocabulary = tokenizer.get_vocab()
    ids = {one: vocabulary[one] for one in longest_first if one in vocabulary}
    begin: dict[str, tuple[str, ...]] = {}
    for one in longest_first:
        begin[one[:2]] = (*begin.get(one[:2], ()), one)
    return ControlTokens(
        begin,
        frozenset(ids.values()) - {tokenizer.unk_token_id},
        _reads_otherwise(tokenizer, ids),
        _any_of(one[0] for one in longest_first),
        _any_of(_key(one) for one in longest_first),
    )


def _key(spelling: str) -> str:
    rare = (one for one in spelling if not one.isalnum() and not one.isspace())
    return next(rare, spelling.lstrip()[:1] or spelling[0])


def _any_of(characters: Iterable[str]) -> re.Pattern[str]:
    found = "".join(sorted(set(characters)))
    return re.compile(f"[{re.escape(found)}]" if found else r"(?!)")


def _reads_otherwise(tokenizer: PreTrainedTokenizerBase, control: Mapping[str, int]) -> bool:
    if not tokenizer.is_fast:
        return False
    words = tokenizer.backend_tokenizer
    added = tokenizer.added_tokens_decoder
    if words.normalizer is not None and any(
        token in added and added[token].normalized for token in control.values()
    ):
        return True
    merges = type(words.model).__name__ == "BPE" and not words.model.ignore_merges
    return not merges and any(words.model.token_to_id(one) is not None for one in control)


def _turn_tokens(tokenizer: PreTrainedTokenizerBase, tokens: set[str]) -> set[str]:
    """Return those of `tokens` that the chat template writes between messages.

    A pair such as <think></think> that it opens and closes there is part of an answer.
    """
    tokens = {one for one in tokens if len(one) > 1}
    if not tokens:
        return set()
    any_token = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))
    found: set[str] = set()
    for part in _between(tokenizer):
        written = any_token.findall(part)
        inner = {
            one
            for place, one in enumerate(written)
            if f"{one[0]}/{one[1:]}" in written[place + 1 :]
        }
        found |= set(written) - inner - {f"{one[0]}/{one[1:]}" for one in inner}
    return found


def _tool_tokens(tokenizer: PreTrainedTokenizerBase, tokens: set[str]) -> set[str]:
    """Return those of `tokens` that the chat template writes for calls and results alone."""
    form = form_of(tokenizer)
    if not form.native:
        return set()
    asked = {"role": "user", "content": _PROBE[0]}
    said = {"role": "assistant", "content": _PROBE[1]}
    plain = ""
    for rows, answer in (([asked, said], False), ([asked, said, asked], True)):
        with suppress(SamplerFault):
            plain += chat_text(tokenizer, rows, answer=answer)
    written = probe_text(tokenizer, as_text=form.as_text)
    return {one for one in tokens if one in written and one not in plain}


def _between(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return what the template writes before and between the messages of a chat."""
    roles = ("system", "user", "assistant", "user")
    for chosen in (roles, roles[1:], roles[1:2]):
        rows = [
            {"role": role, "content": content}
            for role, content in zip(chosen, _PROBE, strict=False)
        ]
        try:
            text = chat_text(tokenizer, rows)
        except SamplerFault:
            continue
        parts = re.split("|".join(_PROBE), text)
        if len(parts) == len(rows) + 1:
            return parts[:-1]
    return []
