import asyncio
import io
import json
import math
import os
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from motet.core import (
    Completion,
    Episode,
    Fault,
    Message,
    Outcome,
    Restriction,
    Round,
    Task,
    ToolCall,
    Transition,
    Usage,
)
from motet.errors import ConfigError
from motet.rollout.collect import collect
from motet.rollout.record import check_rounds, read_episodes, write_episode
from motet.settings import AnswerFormat, Plan
from tests.fixtures.fake_rollouts import PAIR, KeySampler, Talk
from tests.fixtures.messages import facts

# Includes lone surrogates: tokenizers never produce them, but the JSON of a dataset may.
TEXTS = st.text(st.characters(), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.builds(
    Message, st.sampled_from(["system", "user", "assistant"]), TEXTS, st.none() | TEXTS
)
PROMPTS = TEXTS | st.lists(MESSAGES, max_size=3).map(tuple)
FAULTS = st.builds(
    Fault, st.sampled_from(["environment", "reward", "sampler", "sandbox"]), TEXTS, TEXTS
)
COUNTS = st.none() | st.integers(0, 2**53)
AGENTS = st.sampled_from(["ann", "bob", "é"])


FORMS = st.sampled_from(
    [AnswerFormat(choices=("a", "b")), AnswerFormat(json_schema={"type": "object", "x": [1, {}]})]
)


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    tokens = draw(st.none() | st.lists(st.integers(0, 2**31), max_size=4).map(tuple))
    logprobs = (
        None
        if tokens is None
        else tuple(draw(st.lists(NUMBERS, min_size=len(tokens), max_size=len(tokens))))
    )
    return Completion(
        draw(TEXTS),
        draw(TEXTS),
        draw(st.sampled_from(["stop", "length"])),
        3,
        tokens,
        logprobs,
        0.7,
        thinking=draw(TEXTS),
        forced=draw(st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9))),
        restriction=draw(st.none() | st.builds(Restriction, FORMS, st.integers(0, 9))),
        usage=draw(st.none() | st.builds(Usage, COUNTS, COUNTS)),
    )


def outcomes(rounds: st.SearchStrategy[Round]) -> st.SearchStrategy[Outcome]:
    picks, rewards = st.dictionaries(AGENTS, st.integers(0, 9)), st.dictionaries(AGENTS, NUMBERS)
    ends = st.sampled_from(["done", "stopped", "limit", "pruned"])
    return (
        st.builds(Outcome, picks, rewards, st.dictionaries(TEXTS, NUMBERS, max_size=2), end=ends)
        | st.builds(Outcome, picks, st.just({}), fault=FAULTS)
        | st.builds(Outcome, picks, rewards, next=rounds)
    )


def rounds_of(inner: st.SearchStrategy[Round]) -> st.SearchStrategy[Round]:
    return st.builds(
        Round,
        st.integers(0, 5),
        st.dictionaries(AGENTS, PROMPTS, max_size=2),
        st.dictionaries(AGENTS, st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=2),
        st.dictionaries(AGENTS, st.lists(completions(), max_size=2).map(tuple), max_size=2),
        st.lists(outcomes(inner), max_size=2).map(tuple),
    )


LEAF = st.just(Round(0, {}, {}, {}, ()))
ROUNDS = st.recursive(LEAF, rounds_of, max_leaves=4)
TASKS = st.builds(Task, TEXTS, st.dictionaries(TEXTS, JSON, max_size=3))
EPISODES = st.builds(Episode, TEXTS, TASKS, ROUNDS, st.none() | ROUNDS) | st.builds(
    Episode, TEXTS, TASKS, st.none(), fault=FAULTS
)


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def _write(path: Path, *episodes: Episode) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for episode in episodes:
            write_episode(file, episode)
    return path


@pytest.fixture
def played() -> list[Episode]:
    tasks = [Task("x", {"n": 1}), Task("y", {})]
    sampler = KeySampler(refuse=lambda request: request.id[0] == "s:y")
    plan = Plan(samples=(2, 1))
    return asyncio.run(
        collect(Talk(), tasks, sampler, PAIR, plan, run_seed=1, tag="s", greedy_path=True)
    )


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(episodes=st.lists(EPISODES, max_size=2))
def test_an_episode_read_back_is_equal(tmp_path: Path, episodes: list[Episode]) -> None:
    recorded = read_episodes(_write(tmp_path / "e.jsonl", *episodes))
    assert recorded.episodes == tuple(episodes)
    assert not recorded.torn


def test_what_was_played_is_read_back_equal(tmp_path: Path, played: list[Episode]) -> None:
    assert [episode.root is None for episode in played] == [False, True]
    assert read_episodes(_write(tmp_path / "e.jsonl", *played)).episodes == tuple(played)


def test_numbers_and_prompts_keep_their_kind(tmp_path: Path) -> None:
    completion = Completion("p", "x", "stop", tokens=(1,), logprobs=(-1e-310,))
    prompts: dict[str, Any] = {"raw": "[]", "chat": (Message("user", "hi"),), "empty": ()}
    root = Round(
        0,
        prompts,
        {"raw": ()},
        {"raw": (completion,)},
        (Outcome({"raw": 0}, {"raw": -0.0}, end="done"),),
    )
    (episode,) = read_episodes(
        _write(tmp_path / "e.jsonl", Episode("e", Task("t", {"a": [1, 1.0, True]}), root))
    ).episodes
    assert episode.root is not None
    assert episode.root.prompts == prompts
    assert str(episode.root.outcomes[0].rewards["raw"]) == "-0.0"
    assert [type(value) for value in episode.task.fields["a"]] == [int, float, bool]
    assert episode.root.samples["raw"][0].logprobs == (-1e-310,)


def test_what_an_environment_says_is_recorded_under_the_names_of_ever(tmp_path: Path) -> None:
    led_to = Transition(
        None, {"a": 1.0}, True, {"long": 2}, success=True, right={"a": True}, bonus={"a": -1}
    ).checked(("a",))
    outcome = Outcome({"a": 0}, led_to.rewards, led_to.terms, end="done")
    sampled = {"a": (Completion("p", "x", "stop"),)}
    root = Round(0, {"a": "?"}, {"a": (1,)}, sampled, (outcome,))
    path = _write(tmp_path / "e.jsonl", Episode("e", Task("t", {}), root))
    terms = '"terms": {"right/a": 1.0, "success": 1.0, "long": 2.0, "personal/a": -1.0}'
    assert terms in path.read_text()
    (episode,) = read_episodes(path).episodes
    assert episode.root is not None
    (read,) = episode.root.outcomes
    assert (read.success, read.right, read.bonus) == (1.0, {"a": 1.0}, {"a": -1.0})


def test_every_episode_is_one_line_with_its_schema(played: list[Episode]) -> None:
    file = io.StringIO()
    write_episode(file, played[0])
    (line,) = file.getvalue().splitlines()
    fields = json.loads(line)
    assert (fields["schema"], fields["id"]) == (1, "s:x")


def test_a_torn_last_line_is_reported_and_left_out(tmp_path: Path, played: list[Episode]) -> None:
    path = _write(tmp_path / "e.jsonl", *played)
    whole = path.read_text()
    path.write_text(whole[:-20])
    recorded = read_episodes(path)
    assert recorded.torn
    assert recorded.episodes == tuple(played[:1])


def test_a_last_line_without_its_newline_still_counts(
    tmp_path: Path, played: list[Episode]
) -> None:
    path = _write(tmp_path / "e.jsonl", *played)
    path.write_text(path.read_text()[:-1])
    recorded = read_episodes(path)
    assert recorded.episodes == tuple(played)
    assert not recorded.torn


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"schema": 1, "id"', "one episode … JSON object … `schema`"),
        ("", "one episode … JSON object"),
        ("[1]", "one episode … JSON object"),
        ('{"id": "e"}', "one episode … JSON object … `schema`"),
        ('{"schema": 2, "id": "e"}', "schema 2 … Motet reads schema 1"),
        (
            '{"schema": 1, "id": "e", "task": {"id": "t"}, "root": null}',
            "task.fields … episode of schema 1",
        ),
    ],
)
def test_a_broken_or_newer_line_is_named(
    tmp_path: Path, played: list[Episode], line: str, said: str
) -> None:
    path = _write(tmp_path / "e.jsonl", *played)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ConfigError, match=facts(f"e.jsonl, line 3 … {said}")):
        read_episodes(path)


@pytest.mark.parametrize("schema", [1, 1.1])
@pytest.mark.parametrize("inner", [('{"a":', "}"), ("[", "]"), ('{"$":"tuple","value":[', "]}")])
def test_fields_nested_too_deeply_are_named(
    tmp_path: Path, played: list[Episode], schema: float, inner: tuple[str, str]
) -> None:
    path = _write(tmp_path / "e.jsonl", played[0])
    line = json.loads(path.read_text())
    line["schema"], line["task"]["fields"] = schema, {"deep": "here"}
    deep = inner[0] * 400 + "1" + inner[1] * 400
    path.write_text(path.read_text() + json.dumps(line).replace('"here"', deep) + "\n")
    with pytest.raises(ConfigError, match=facts("line 2: task.fields … deeper than 302")):
        read_episodes(path)


def test_bytes_that_are_no_text_and_endless_lines_are_named(
    tmp_path: Path, played: list[Episode]
) -> None:
    path = _write(tmp_path / "e.jsonl", *played)
    whole = path.read_bytes()
    path.write_bytes(whole + b"\xff\xfe{}\n")
    with pytest.raises(
        ConfigError, match=r"e\.jsonl, line 3 is not UTF-8: .*; expected one episode"
    ):
        read_episodes(path)
    path.write_bytes(whole + b"\xff\xfe{")
    assert read_episodes(path).torn
    path.write_bytes(whole + b"[" * 100_000)
    assert read_episodes(path).torn
    os.truncate(path, 7 << 30)  # sparse: no byte of it is on the disk
    with pytest.raises(ConfigError, match="line 3 is longer than 256 MiB; expected shorter lines"):
        read_episodes(path)


@pytest.mark.parametrize("value", [object(), np.int64(3), {"a": [print]}, _deep(600)])
def test_what_no_row_holds_is_refused_and_nothing_is_written(value: object) -> None:
    file = io.StringIO()
    with pytest.raises(ConfigError, match=facts("episode e … recorded … values of a row")):
        write_episode(
            file, Episode("e", Task("t", {"x": value}), None, fault=Fault("reward", "x", "y"))
        )
    assert file.getvalue() == ""


def test_records_of_older_and_newer_versions_are_read(tmp_path):
    episode = Episode("s:t", Task("t", {}), None, fault=Fault("reward", "E", "x", "f.py:1", "T"))
    path = tmp_path / "episodes.jsonl"
    with path.open("w") as file:
        write_episode(file, episode)
    line = json.loads(path.read_text())
    assert (line["schema"], line["fault"]["place"]) == (1, "f.py:1")
    older = {**line, "fault": {key: line["fault"][key] for key in ("where", "cause", "message")}}
    newer = {**line, "mood": "fine", "fault": {**line["fault"], "since": 3}}
    path.write_text("".join(json.dumps(one) + "\n" for one in (older, newer)))
    first, second = read_episodes(path).episodes
    assert first == second == episode, "the place of a fault does not count"
    assert (first.fault.place, second.fault.place) == ("", "f.py:1")
    path.write_text(json.dumps({**line, "schema": 2}) + "\n")
    with pytest.raises(ConfigError, match=facts("schema 2 … Motet reads schema 1")):
        read_episodes(path)


@pytest.mark.parametrize(
    "fields",
    [
        {"when": date(2024, 1, 2), "of": (1, b"x"), "rate": math.nan, 7: {"$": "date"}},
        {"words": {"b", "a"}, "cost": Decimal("1.50"), "odd": "\ud800", "long": 10**5000},
    ],
)
def test_fields_that_json_does_not_have_come_back_equal(
    tmp_path: Path, fields: dict[Any, Any]
) -> None:
    episode = Episode("e", Task("t", fields), None, fault=Fault("reward", "x", "y"))
    path = _write(tmp_path / "e.jsonl", episode)
    assert read_episodes(path).episodes == (episode,)
    assert '"schema": 1.1' in path.read_text()  # an older version refuses the line by its schema


def test_fields_of_plain_json_are_recorded_as_ever(tmp_path: Path) -> None:
    plain = Episode("e", Task("t", {"a": [1, None, 2.5]}), None, fault=Fault("reward", "x", "y"))
    assert _write(tmp_path / "e.jsonl", plain).read_text().startswith('{"schema": 1, "id": "e"')
    line = (
        '{"schema": 1, "id": "e", "task": {"id": "t", "fields": {"v": {"$": "date", "value": 1}}}'
    )
    (tmp_path / "old.jsonl").write_text(line + ', "root": null, "fault": null}\n')
    (old,) = read_episodes(tmp_path / "old.jsonl").episodes
    assert old.task.fields == {"v": {"$": "date", "value": 1}}


def test_only_a_completion_of_an_endpoint_has_a_usage_in_its_record(tmp_path):
    said = (
        Completion("p", "x", "stop", tokens=(1,), logprobs=(-1.0,)),
        Completion("q", "y", "stop", usage=Usage()),
    )
    root = Round(0, {"a": "?"}, {"a": ()}, {"a": said}, ())
    path = _write(tmp_path / "e.jsonl", Episode("e", Task("t", {}), root))
    own, asked = json.loads(path.read_text())["root"]["samples"]["a"]
    assert "usage" not in own
    assert asked["usage"] == {"prompt_tokens": None, "completion_tokens": None}
    assert read_episodes(path).episodes[0].root == root


def test_a_game_of_the_most_turns_of_a_plan_is_recorded(tmp_path: Path) -> None:
    called = Message("assistant", "", calls=(ToolCall("f", {"a": [{"b": [1]}]}),))
    most = 127
    root: Round | None = None
    with pytest.raises(ValueError, match="at most 127"):
        Plan(samples=(1,) * (most + 1))
    for turn in reversed(range(len(Plan(samples=(1,) * most).samples))):
        outcome = Outcome({"a": 0}, {"a": 1.0}, next=root, end=None if root else "done")
        said = {"a": (Completion("p", "x", "stop"),)}
        root = Round(turn, {"a": (Message("user", "x"), called)}, {"a": ()}, said, (outcome,))
    game = Episode("e", Task("t", {}), root)
    assert read_episodes(_write(tmp_path / "e.jsonl", game)).episodes == (game,)


SAID = Completion("p", "x", "stop", tokens=(1,), logprobs=(-1.0,))


def one_round(samples: Mapping[str, tuple[Completion, ...]], *outcomes: Outcome) -> Episode:
    root = Round(0, {"a": "?"}, {"a": (1,)}, samples, outcomes)
    return Episode("e", Task("t", {}), root)


@pytest.mark.parametrize(
    ("episode", "said"),
    [
        (one_round({}), "prompts are of a, samples of nobody"),
        (
            one_round({"a": (SAID,)}, Outcome({"a": 1}, {"a": 1.0})),
            "sample 1 of a … one of 1",
        ),
        (
            one_round({"a": (SAID,)}, Outcome({"b": 0}, {"a": 1.0})),
            "sample 0 of b … one of 0",
        ),
        (one_round({"a": (SAID,)}, Outcome({"a": 0}, {})), "rewards nobody"),
        (
            one_round(
                {"a": (SAID,) * 2}, Outcome({"a": 0}, {"a": 1.0}), Outcome({"a": 1}, {"b": 1.0})
            ),
            "rewards b … every other",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_named(episode: Episode, said: str) -> None:
    with pytest.raises(ConfigError, match=facts(f"e.jsonl, line 1: Round one: … {said}")):
        check_rounds(episode, "e.jsonl, line 1")


def test_what_a_run_recorded_fits_together(played: list[Episode]) -> None:
    for episode in played:
        check_rounds(episode, "here")
    broken = Outcome({"a": 0}, {}, fault=Fault("reward", "TimeoutError", "no answer"))
    check_rounds(one_round({"a": (SAID,)}, broken), "here")
