"""Test the published keys of the comparator."""

import re
from typing import Any

import pytest

from motet.errors import ConfigError
from motet_published import comlrl_comparators
from motet_published.comlrl_preferences_test import ITERATIVE, plain, translated
from motet_published.keys import Unsupported

API = {
    "comparator_policy": "api",
    "comparator_api_url": "http://host:8000/v1/chat/completions",
    "comparator_api_format": "openai",
    "comparator_api_model": "big",
}


@pytest.mark.parametrize("trainer", ITERATIVE)
@pytest.mark.parametrize("policy", ["current", "online", "current_copy", "current-offload", None])
def test_the_present_team_needs_no_comparator(trainer, policy) -> None:
    assert plain(trainer, comparator_policy=policy)["comparator"] is None


@pytest.mark.parametrize("trainer", ITERATIVE)
def test_history_counts_from_the_team_before_the_last_iteration(trainer) -> None:
    """Iteration i compares with checkpoint i - k, which is written after iteration i - k. So k = 1
    is the present team."""
    past = plain(trainer, comparator_policy="history", comparator_history_k=3)["comparator"]
    assert past == {"name": "comlrl", "history": 2}
    for keys in ({}, {"comparator_history_k": 1}):
        assert plain(trainer, comparator_policy="previous", **keys)["comparator"] is None
        notes = translated(trainer, comparator_policy="previous", **keys).notes
        assert any("use comparator_history_k: 2" in note for note in notes)


@pytest.mark.parametrize("trainer", ITERATIVE)
def test_a_model_plays_for_all_agents(trainer) -> None:
    found = plain(
        trainer,
        comparator_policy="external",
        comparator_model_name="other/model",
        comparator_devices="cpu",
    )
    assert found["comparator"]["team"] == {"helper": "comparator", "main": "comparator"}
    assert found["policies"]["comparator"]["train"] == "frozen"
    base = found["models"]["comparator"]
    assert (base["path"], base["device"]) == ("other/model", "cpu")


def test_each_agent_may_have_a_model_of_its_own() -> None:
    found = plain(
        "madpo_iter", comparator_policy="model", comparator_agents=["some/one", "an/other"]
    )
    team = found["comparator"]["team"]
    assert team == {"helper": "comparator_helper", "main": "comparator_main"}
    paths = [found["models"][name]["path"] for name in team.values()]
    assert paths == ["some/one", "an/other"]


@pytest.mark.parametrize("trainer", ITERATIVE)
def test_a_chat_endpoint_plays_for_all_agents(trainer) -> None:
    found = plain(
        trainer,
        **API,
        comparator_api_key_env="BIG_KEY",
        comparator_api_timeout=30,
        comparator_api_extra_body={"seed": 7},
    )["comparator"]["endpoint"]
    assert (found["base_url"], found["model"]) == ("http://host:8000/v1", "big")
    assert (found["key_variable"], found["timeout_seconds"]) == ("BIG_KEY", 30)
    assert found["extra"] == {"seed": 7}
    assert plain(trainer, **API)["comparator"]["endpoint"]["timeout_seconds"] == 120, "as published"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"comparator_policy": "mine"}, "expected one of current, self, online"),
    ({"comparator_policy": "model"}, "it needs comparator_model_name or comparator_agents"),
    ({"comparator_policy": "api"}, "it needs comparator_api_url"),
    ({**API, "comparator_api_format": "anthropic"}, "expected openai"),
    ({**API, "comparator_api_format": None}, "got comparator_api_format generic, expected openai"),
    ({**API, "comparator_api_url": "http://host/v1"}, "expected an address that ends in /chat"),
    ({**API, "comparator_api_model": None}, "it needs comparator_api_model"),
    ({"comparator_history_k": 2}, "it is only for comparator_policy: history"),
    (
        {"comparator_policy": "api", "comparator_model_name": "m"},
        "it is only for comparator_policy: model",
    ),
    (
        {"comparator_policy": "model", "comparator_agents": ["one"]},
        "got 1 models for 2 agent(s), expected one each",
    ),
]


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_what_no_comparator_can_be_is_refused(keys, message) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        translated("madpo_iter", **keys)


@pytest.mark.parametrize("trainer", ITERATIVE)
def test_unsupported_keys_say_what_to_do(trainer) -> None:
    for key, rule in comlrl_comparators.KEYS.items():
        if isinstance(rule, Unsupported):
            name = key.removeprefix("trainer.")
            with pytest.raises(ConfigError, match=re.escape(f"{trainer}.{name}: {rule.why}")):
                translated(trainer, **{name: "unheard of"})
            for allowed in (None, *rule.allowed):
                assert plain(trainer, **{name: allowed}) == plain(trainer)


def test_keys_of_another_comparator_are_told() -> None:
    told = translated("madpo_iter", comparator_devices="cpu", comparator_api_timeout=60).notes
    assert any("comparator_devices needs comparator_policy: model" in note for note in told)
    assert any("comparator_api_timeout needs comparator_policy: api" in note for note in told)
