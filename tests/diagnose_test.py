"""`motet diagnose`: useless agents and messages are found, and what changes nothing counts 0."""

import json
from dataclasses import replace

import pytest

import motet
import motet_compare
from motet.algorithms import resolve
from motet.commands.main import main
from motet.errors import ConfigError
from motet.evaluation.intervals import Estimate
from motet_compare.fidelity import needs_more
from motet_compare.information import SharedBits
from tests.small_runs import run_config

GAME = """
import motet


class Talk(motet.Environment):
    \"\"\"a speaks, then b. Only what a says counts, and b does not even read it.\"\"\"

    agents = ("a", "b")
    branches = True
    most_turns = 2

    def tasks(self, split):
        return [motet.Task(f"{split} {k}", {"k": k}) for k in range(6)]

    def start(self, task, seed):
        return (task.fields["k"],)

    def observe(self, state):
        return {"a": f"a {state[0]}: "} if len(state) == 1 else {"b": f"b {state[0]}: "}

    def step(self, state, replies, seed):
        (reply,) = replies.values()
        state = (*state, reply.text)
        said = float(len(state) == 3 and len(state[1]) % 2)
        done = len(state) == 3
        return motet.Transition(
            state, dict.fromkeys(self.agents, said), done, success=said if done else None
        )
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diagnose")
    (folder / "game.py").write_text(GAME)
    config = run_config(
        environment={"name": f"{folder}/game.py:Talk"},
        policies={
            "p": {"model": "tiny", "train": "full"},
            "q": {"model": "tiny", "train": "frozen"},
        },
        team={"a": "p", "b": "q"},
        warmup=None,
        rollout={"samples": [4, 1]},
        optimizer={"learning_rate": 1e-2},
        train={"steps": 2, "tasks_per_step": 2},
        evaluation={"samples": 2},
    )
    motet.train(config, runs=folder / "runs", show="silent")
    return folder / "runs" / "run"


@pytest.fixture(scope="module")
def found(run):
    return motet_compare.diagnose(run, show="silent")


def test_an_agent_that_is_not_trained_contributes_nothing_beside_its_start(found):
    start, _ = found.contributions
    assert start.stand_in == "start"
    for one in (start.agents["b"].shapley, start.agents["b"].lost, start.agents["b"].alone):
        assert (one.mean, one.low, one.high) == (0.0, 0.0, 0.0)
    assert start.agents["a"].shapley.mean == pytest.approx(start.whole.mean - start.replaced.mean)


def test_an_agent_whose_text_is_thrown_away_is_idle_and_rides_free(found):
    _, silent = found.contributions
    assert silent.stand_in == "silent"
    assert silent.whole.mean > 0.0
    assert silent.replaced.mean == 0.0
    assert silent.agents["a"].shapley.mean == silent.whole.mean
    assert silent.agents["b"].shapley.mean == 0.0
    assert "b" in found.idle
    assert found.unearned == {"a": 0.0, "b": 1.0}


def test_messages_that_nobody_reads_carry_nothing(found):
    assert [(one.sender, one.turn) for one in found.messages] == [("a", 1)] * 3
    assert {one.replaced for one in found.messages} == {"blank", "resampled", "shuffled"}
    assert [one.lost.mean for one in found.messages] == [0.0] * 3


def test_bits_of_messages_are_shown_where_different_messages_are_few(run, found, capsys):
    from motet_compare.command import print_diagnosis

    assert found.information == [], "b answers with any text"
    print_diagnosis(run, found)
    assert "no bits: too many different messages or answers" in capsys.readouterr().out
    bits = SharedBits("a", 1, "b", 2, 60, 3, 3, 1.25, (-0.03, 0.08), unread=0.01)
    print_diagnosis(run, replace(found, information=[bits]))
    said = " ".join(capsys.readouterr().out.split())
    assert "1.25" in said
    assert "-0.03 to 0.08" in said
    assert "0.01" in said


def test_the_distance_of_policies_is_that_of_their_own_log_probabilities(found):
    assert set(found.distances) == {"a", "b"}
    assert found.distances["a"]["b"].mean > 0.0, "a was trained, and b has the same start"


def test_agents_of_another_run_stand_in_too(run):
    """The same run as the other one: it brings all that the team brings."""
    few = {"tasks": 2, "samples": 1, "show": "silent"}
    found = motet_compare.diagnose(run, beside=run, **few)
    assert [one.stand_in for one in found.contributions] == ["start", "other", "silent"]
    other = found.contributions[1]
    assert {one.shapley.mean for one in other.agents.values()} == {0.0}
    assert other.replaced == other.whole
    assert "a" not in found.idle, "that another one can do its work makes no agent idle"
    with pytest.raises(ConfigError, match="another game"):
        motet_compare.diagnose("quickstart", beside=run, show="silent")
    with pytest.raises(ConfigError, match="run"):
        motet_compare.diagnose(run, beside="quickstart", show="silent")


def test_the_command_says_it_and_keeps_it(run, found, monkeypatch, capsys):
    from motet_compare.command import print_diagnosis

    print_diagnosis(run, found)
    said = " ".join(capsys.readouterr().out.split())
    assert "b would still get 100% of its reward if it said nothing" in said
    assert "no contribution shows of" in said
    with monkeypatch.context() as patch:
        patch.setattr("sys.argv", ["motet", "diagnose", str(run), "--tasks", "2", "--json"])
        with pytest.raises(SystemExit):
            main()
    told = json.loads(capsys.readouterr().out)
    assert told["games"] == 4
    assert "b" in told["idle"]
    assert list((run / "evaluations").glob("diagnosis*.json"))


def test_few_completions_are_not_correlated(run, found, capsys):
    from motet_compare.command import print_diagnosis

    for completions, said in (
        (20, "correlation of advantages"),
        (19, "19 completions are too few"),
    ):
        fidelity = replace(found.fidelity, all=Estimate(0.5, 0.1, 0.9), completions=completions)
        print_diagnosis(run, replace(found, fidelity=fidelity))
        shown = " ".join(capsys.readouterr().out.split())
        assert said in shown
        assert ("correlation of advantages" in shown) == (completions == 20)


def test_what_is_played_is_named_in_words(run, capfd):
    motet_compare.diagnose(run, tasks=2, samples=1)
    said = capfd.readouterr().err
    for stage in ("all saying nothing", "a, the others as before reinforcement learning",
                  "message of a at turn 1 shuffled", "effects of single answers"):  # fmt: skip
        assert stage in said


def test_a_config_has_no_start_beside_it(run):
    found = motet_compare.diagnose(run / "config.yaml", tasks=2, samples=1, show="silent")
    assert [one.stand_in for one in found.contributions] == ["silent"]
    assert (found.fidelity is not None, found.without_fidelity) == (True, "")
    with pytest.raises(ConfigError, match="tasks"):
        motet_compare.diagnose(run, tasks=0)


def test_a_diagnosis_says_why_it_measures_no_fidelity(run, capsys):
    from motet_compare.command import print_diagnosis

    config, few = run / "config.yaml", {"tasks": 2, "samples": 1, "show": "silent"}
    found = motet_compare.diagnose(config, ["algorithm={name: rae}"], **few)
    assert (found.fidelity, found.without_fidelity) == (None, "earlier steps")
    print_diagnosis(run, found)
    assert "no fidelity of credit: the advantages need earlier steps" in capsys.readouterr().out


FRAGILE = (
    GAME
    + """

class Fragile(Talk):
    async def step(self, state, replies, seed):
        if "" in {reply.text for reply in replies.values()}:
            raise ValueError("nothing was said")
        return await super().step(state, replies, seed)


class Opposed(Talk):
    async def step(self, state, replies, seed):
        led_to = await super().step(state, replies, seed)
        won = 1.0 if led_to.success else -1.0
        return motet.Transition(
            led_to.state, {"a": won, "b": -won}, led_to.done, success=led_to.success
        )


class Alone(Talk):
    agents = ("a",)

    def observe(self, state):
        return {"a": "? "}
"""
)


@pytest.fixture(scope="module")
def fragile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fragile")
    (folder / "game.py").write_text(FRAGILE)

    def config(name):
        return run_config(
            environment={"name": f"{folder}/game.py:{name}"},
            warmup=None,
            rollout={"samples": [4, 1]},
            evaluation={"samples": 2},
        )

    return config


def test_games_that_fail_are_said_and_show_nothing_of_an_agent(fragile, capsys):
    """A mute agent makes every game fail, so nothing is known of either."""
    from motet_compare.command import print_diagnosis

    found = motet_compare.diagnose(fragile("Fragile"), tasks=2, show="silent")
    assert found.idle == []
    assert found.left_out["a, the others saying nothing"] == {"environment/ValueError": 2}
    print_diagnosis("run", found)
    shown = " ".join(capsys.readouterr().out.split())
    assert "faults, left out, of a, the others saying nothing: environment/ValueError 2" in shown
    assert "no contribution shows" not in shown


def test_players_who_win_what_the_other_loses_are_no_team(fragile):
    with pytest.raises(ConfigError, match=r"a wins what b loses.* motet crossplay"):
        motet_compare.diagnose(fragile("Opposed"), tasks=2, show="silent")


def test_a_fidelity_without_a_value_is_said(run, found, capsys):
    from motet_compare.command import print_diagnosis

    print_diagnosis(run, replace(found, fidelity=replace(found.fidelity, all=None, completions=99)))
    shown = " ".join(capsys.readouterr().out.split())
    assert "no fidelity of credit: the advantages, or what the completions change" in shown
    reason = needs_more(resolve("distillation", {}))
    assert reason == "rewards that are learned from"


def test_a_team_of_one_has_no_messages_and_no_partners(fragile, tmp_path):
    alone = fragile("Alone") | {"team": {"a": "p"}, "policies": {"p": {"model": "tiny"}}}
    with pytest.raises(ConfigError, match="spoken at turn 1, so nobody reads"):
        motet_compare.compare_messages(alone, blank_turn=1, show="silent")
    motet.train(alone, runs=tmp_path, show="silent")
    with pytest.raises(ConfigError, match="one agent, a, who plays with nobody"):
        motet_compare.crossplay([tmp_path / "run"] * 2)
