import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError

from motet.core import Reply, Task, Transition
from motet.environments.check import check_environment
from motet.environments.rules import Rule
from motet.errors import ConfigError
from motet_tasks.calls.game import FunctionCalling
from tests.fixtures.wide import widely

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "dict", "properties": {"city": {}, "days": {}}, "required": ["city"]},
}
PLAY: dict[str, Any] = {"name": "music.play", "parameters": {"properties": {"song": {}}}}
ROW: dict[str, Any] = {
    "id": "parallel_0",
    "official_category": "parallel",
    "task_type": "weather",
    "user_prompt": "How is the weather in Oslo and Bergen? And play Solveig's Song.",
    "function": [WEATHER, PLAY],
    "ground_truth": [
        {"get_weather": {"city": ["Oslo"]}},
        {"get_weather": {"city": ["Bergen"], "days": [1, ""]}},
        {"music.play": {"song": ["Solveig's Song", "Solveigs sang"]}},
    ],
}
OSLO, BERGEN = "get_weather(city='Oslo')", "get_weather(city='Bergen', days=1)"
SONG = 'music.play(song="Solveig\'s Song")'


def game(**options: Any) -> FunctionCalling:
    return FunctionCalling(FunctionCalling.Options(**options))


def task(row: dict[str, Any] = ROW, **options: Any) -> Task:
    (made,) = game(**options).task(row)
    return made


def play(*texts: str, row: dict[str, Any] = ROW, **options: Any) -> Transition:
    played = game(agents=len(texts), **options)

    async def once() -> Transition:
        state = await played.start(task(row), 0)
        replies = {agent: Reply(text) for agent, text in zip(played.agents, texts, strict=True)}
        return await played.step(state, replies, 0)

    return asyncio.run(once())


@pytest.mark.parametrize("agents", widely([1, 2, 3, 5], keep=[2, 5]))
@pytest.mark.parametrize("kind", ["set", "sequence"])
def test_it_keeps_the_rules_of_environments(agents: int, kind: str) -> None:
    played = game(agents=agents, score={"kind": kind})
    report = check_environment(played, [task()])
    assert report.rules[Rule.SUCCESS] > 0
    assert report.rules[Rule.SOLVED] > 0


def test_all_calls_between_two_agents_are_a_success() -> None:
    won = play(f"{OSLO}\n{BERGEN}", SONG)
    assert won.done
    assert won.success == 1.0
    assert won.rewards == {agent: pytest.approx(1.1) for agent in ("caller1", "caller2")}
    assert (won.metrics["calls/caller1"], won.metrics["calls/caller2"]) == (2.0, 1.0)
    scaled = play(f"{OSLO}\n{BERGEN}", SONG, reward={"scale": 4.0, "shift": -1.0})
    assert scaled.rewards["caller1"] == pytest.approx(3.4)


def test_one_agent_that_makes_all_calls_loses_the_balance() -> None:
    found = play(f"{OSLO}\n{BERGEN}\n{SONG}", "[]")
    # (3, 0) is two away from (2, 1): balance 1 - 2/3; half of the agents are silent.
    assert found.rewards["caller1"] == pytest.approx(1.1 - 0.15 * 2 / 3 - 0.15 / 2)
    assert found.success == 1.0


def test_an_optional_argument() -> None:
    texts = f"{OSLO}\nget_weather(city='Bergen')", SONG
    assert play(*texts).success == 0.0
    assert play(*texts, optional_arguments=True).success == 1.0


def test_the_weights_are_options() -> None:
    only = {"names": 1.0, "parsed": 0.0, "arguments": 0.0, "count": 0.0, "balance": 0.0}
    rest = {"exact": 0.0, "overlap": 0.0, "silent": 0.0, "extra": 0.0, "repeated": 0.0}
    assert play(OSLO, "", score={**only, **rest}).metrics["levels"] == pytest.approx(0.5)
    assert play(OSLO, "", score={**only, **rest, "kind": "sequence", "order": 0, "prefix": 0}
                ).metrics["levels"] == pytest.approx(0.5)  # fmt: skip
    with pytest.raises(ValidationError, match="which has no order"):
        game(score={"order": 0.5})


def test_agents_read_the_functions_the_request_and_their_own_share() -> None:
    played = game(roles="odd_even")
    prompts = played.observe(asyncio.run(played.start(task(), 0)))
    first, second = (prompts[agent][0].content for agent in played.agents)
    for text in (first, second):
        assert '"name": "music.play"' in text
        assert "Oslo and Bergen?" in text
        assert "Solveigs sang" not in text
    assert "1, 3, 5" in first
    assert "2, 4, 6" in second


@pytest.mark.parametrize(
    ("roles", "same"),
    [("self_select", True), ("same_prompt", True), ("split_by_order", False), ("odd_even", False)],
)
def test_which_roles_differ_between_agents(roles: str, same: bool) -> None:
    played = game(roles=roles)
    prompts = played.observe(asyncio.run(played.start(task(), 0)))
    assert (len({prompt[0].content for prompt in prompts.values()}) == 1) == same


def test_rows_of_other_categories_and_types_are_left_out() -> None:
    assert game(categories=("parallel",), task_types=("weather",)).task(ROW)
    assert game(categories=("live_parallel",)).task(ROW) == []
    assert game(task_types=("music",)).task(ROW) == []
    assert game(categories=("parallel",)).task({**ROW, "official_category": None}) == []


def test_a_row_of_a_table_has_json_or_nulls() -> None:
    as_json = {**ROW, "function": json.dumps(ROW["function"]),
               "ground_truth": json.dumps(ROW["ground_truth"])}  # fmt: skip
    assert task(as_json).fields == task().fields
    arguments = {"song": ["x"], "city": None}
    wide = {**ROW, "ground_truth": [{"get_weather": None, "music.play": arguments}]}
    assert task(wide).fields["needed"] == [["music.play", {"song": ["x"]}]]
    text = {**ROW, "ground_truth": [{"music.play": '{"song": ["x"]}'}]}
    assert task(text).fields["needed"] == [["music.play", {"song": ["x"]}]]


def test_a_row_without_an_id_gets_one_of_its_content() -> None:
    bare = {key: value for key, value in ROW.items() if key != "id"}
    other = {**bare, "user_prompt": "Play something."}
    assert task(bare).id == task(bare).id != task(other).id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user_prompt": " "}, "as its 'user_prompt'; expected a text"),
        ({"function": "{"}, "as its 'function', which is no JSON"),
        ({"function": {"name": "f"}}, "expected a list of objects"),
        ({"function": [{"title": "f"}]}, "expected objects with a name each"),
        ({"function": [{"name": "f", "parameters": 3}]}, "and parameters with properties"),
        ({"function": [{"name": "f", "parameters": {"required": [[]]}}]}, "list of required"),
        ({"ground_truth": [{}]}, "expected a call in each object"),
        ({"ground_truth": "3"}, "expected a list of objects"),
    ],
)
def test_a_wrong_row_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task({**ROW, **change})


def test_a_missing_column_is_named() -> None:
    row = {("functions" if key == "function" else key): value for key, value in ROW.items()}
    with pytest.raises(ConfigError, match=r"no field 'function' \(did you mean 'functions'\?\)"):
        task(row)


def test_votes_count_equal_sets_of_calls() -> None:
    played = game()
    answer = played.answer(task(), {"caller1": f"{OSLO}\n{OSLO}", "caller2": SONG})
    assert answer == played.answer(task(), {"caller1": SONG, "caller2": OSLO})
    assert answer != played.answer(task(), {"caller1": SONG, "caller2": BERGEN})
    assert played.answer(task(), {"caller1": "[]", "caller2": ""}) is None
