"""Notices are said once, at once, and kept for the summary."""

from dataclasses import replace

from motet.algorithms import resolve
from motet.core import Completion, Episode, Fault, Outcome, Round, Task
from motet.settings import Plan
from motet.trainer.notices import AVERAGED_AWAY, Notices, too_few_turns

TASK = Task("t", {})


def failed(name: str, cause: str) -> Episode:
    place = "game.py:12 in step: return scores[agent]"
    fault = Fault("environment", cause, "'ann'", place, "Traceback (most recent call last): ...\n")
    return Episode(name, TASK, None, fault=fault)


def played(end, terms=None) -> Episode:
    outcome = Outcome({"ann": 0}, {"ann": 0.0}, terms or {}, end=end)
    return Episode("1:t", TASK, Round(0, {"ann": "?"}, {"ann": (1,)}, {"ann": ()}, (outcome,)))


def test_the_first_fault_of_each_cause_is_said_at_once_with_its_place():
    said: list[str] = []
    notices = Notices(said.append)
    notices.see(failed("1:t", "KeyError"))
    assert said == [
        "first fault, in episode 1:t: environment/KeyError: 'ann' "
        "(game.py:12 in step: return scores[agent])"
    ]
    notices.see(failed("1:u", "KeyError"))
    assert len(said) == 1
    notices.see(failed("1:v", "ValueError"))
    assert notices.lines == said
    assert len(said) == 2


def test_with_traceback_all_of_it_is_said():
    said: list[str] = []
    Notices(said.append, traceback=True).see(failed("1:t", "KeyError"))
    assert said[1] == "Traceback (most recent call last): ..."


def test_a_watched_counter_sees_and_counts_every_episode():
    said, counted = [], []

    def counter(name, total):
        counted.append((name, total))
        return counted.append

    one = failed("1:t", "KeyError")
    ended = Notices(said.append).watching(counter)("evaluate", 2)
    ended(one)
    assert counted == [("evaluate", 2), one]
    assert said[0].startswith("first fault, in episode 1:t: environment/KeyError")


def test_no_end_within_the_plan_is_said_once():
    said: list[str] = []
    notices = Notices(said.append)
    plan = Plan(samples=(8,))
    notices.played([played("limit")], plan)
    notices.played([played("limit")], plan)
    assert said == [too_few_turns(plan)]
    assert "no game ended within rollout.samples [8] (1 turn)" in said[0]
    assert "rollout.samples=[8,1], or let step return done=True" in said[0]


def test_games_that_end_or_report_success_at_the_limit_need_no_warning():
    for episode in (played("done"), played("limit", {"success": 0.0}), failed("1:t", "KeyError")):
        said: list[str] = []
        Notices(said.append).played([episode], Plan(samples=(8,)))
        assert said == []


def test_an_agent_that_never_acts_within_the_plan_is_named():
    """A reward of the config reports success at every turn, also at one that is not the last."""
    said: list[str] = []
    outcome = Outcome({"ann": 0}, {"ann": 0.0, "bob": 0.0}, {"success": 0.0}, end="limit")
    said_by_ann = {"ann": (Completion("ann", "x", "stop"),)}
    root = Round(0, {"ann": "?"}, {"ann": (1,)}, said_by_ann, (outcome,))
    Notices(said.append).played([Episode("1:t", TASK, root)], Plan(samples=(8,)))
    assert "(1 turn), and bob never acted: nothing" in said[0]
    assert "rollout.samples=[8,1]" in said[0]
    ended = replace(root, outcomes=(replace(outcome, end="done"),))
    Notices(said.append).played([Episode("1:t", TASK, ended)], Plan(samples=(8,)))
    assert len(said) == 1


def test_a_training_without_a_success_is_said_at_its_end():
    for successes, lines in (([0.0] * 5, 1), ([0.0] * 4, 0), ([0.0, 0.0, 0.1, 0.0, 0.0], 0)):
        said: list[str] = []
        notices = Notices(said.append)
        for success in successes:
            notices.stepped({"play/success": success, "play/reward": 1.0})
        for _ in range(9):
            notices.stepped({"play/reward": 1.0})
        notices.trained()
        assert len(said) == lines, successes
        assert all("no game of 5 training steps succeeded" in line for line in said)


def test_a_trial_game_says_how_many_turns_are_needed():
    text = too_few_turns(Plan(samples=(8, 1)), needed=4)
    assert "ended only after 4 turns, not within rollout.samples [8, 1] (2 turns)" in text
    assert "rollout.samples=[8,1,1,1]" in text


def paid(*rewards: dict[str, float]) -> list[Episode]:
    outcomes = tuple(Outcome({}, each, {}, end="done") for each in rewards)
    return [Episode("1:t", TASK, Round(0, {}, {}, {}, outcomes))]


def test_an_average_that_leaves_the_same_reward_everywhere_is_said_once():
    zero_sum = paid({"a": 1.0, "b": -1.0}, {"a": -0.3, "b": 0.3})
    averaging = resolve("magrpo", {"reward_sharing": "all"})
    notices = Notices(lambda line: None)
    notices.credited(zero_sum, averaging)
    notices.credited(zero_sum, averaging)
    assert notices.lines == [AVERAGED_AWAY]


def test_rewards_that_an_average_keeps_apart_and_shared_rewards_need_no_warning():
    notices = Notices(lambda line: None)
    averaging = resolve("magrpo", {"reward_sharing": "all"})
    notices.credited(paid({"a": 1.0, "b": -1.0}, {"a": -0.3, "b": 0.3}), resolve("magrpo", {}))
    notices.credited(paid({"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 1.0}), averaging)
    notices.credited(paid({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0}), averaging)
    assert notices.lines == []
