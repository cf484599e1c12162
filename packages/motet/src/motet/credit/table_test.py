"""The table of a small tree, by hand: which joint actions and samples it has, and their shares."""

from motet.core import Completion, Fault, Outcome, Round
from motet.credit.table import Table

FAULT = Fault("sandbox", "died", "")
REWARDS = {"a": 1.0, "b": 1.0}


def round_of(turn: int, samples: int, *outcomes: Outcome) -> Round:
    made = tuple(
        Completion("p", "x", "stop", tokens=(1,), logprobs=(-1.0,)) for _ in range(samples)
    )
    return Round(
        turn,
        {"a": "?", "b": "?"},
        {"a": (1,), "b": (2,)},
        {"a": made, "b": made},
        outcomes,
    )


def action(first: int, second: int, **changes) -> Outcome:
    settings = {"end": "done"} | changes
    rewards = {} if "fault" in changes else REWARDS
    return Outcome({"a": first, "b": second}, rewards, **settings)


def tree() -> Round:
    """Of four joint actions one is expanded, one pruned, one ends early and one fails."""
    child = round_of(1, 1, action(0, 0, end="limit"))
    return round_of(
        0,
        3,
        action(0, 0, next=child, end=None),
        action(0, 1, end="pruned"),
        action(1, 1),
        action(2, 1, end=None, fault=FAULT),
    )


def test_failed_joint_actions_and_their_samples_are_left_out_and_parents_come_first() -> None:
    table = Table.of([("e", tree())], ["a", "b"], turns=2)
    assert [(s.id.path, s.id.agent, s.id.index, s.prompt_tokens) for s in table.samples] == [
        ((), "a", 0, (1,)),
        ((), "a", 1, (1,)),
        ((), "b", 0, (2,)),
        ((), "b", 1, (2,)),
        ((0,), "a", 0, (1,)),
        ((0,), "b", 0, (2,)),
    ]
    assert table.agent_S.tolist() == [0, 0, 1, 1, 0, 1]
    assert table.sample_NJ.tolist() == [[0, 0, 1, 4], [2, 3, 3, 5]]
    assert table.forest.parent_J.tolist() == [-1, -1, -1, 0]
    assert table.forest.round_J.tolist() == [0, 0, 0, 1]
    assert table.forest.turn_J.tolist() == [0, 0, 0, 1]
    assert table.forest.pruned_J.tolist() == [False, True, False, False]
    assert table.missing_J.tolist() == [0, 0, 1, 0]


def test_the_expanded_joint_action_carries_the_share_of_the_pruned_one() -> None:
    table = Table.of([("e", tree()), ("f", tree())], ["a", "b"], turns=2)
    shares = [s.share for s in table.samples if (s.id.episode, s.id.agent) == ("f", "a")]
    # Two tasks and two samples; then two of three joint actions had not ended.
    assert shares == [1 / 4, 1 / 4, 1 / 2 * (2 / 3)]


def test_an_agent_that_does_not_act_has_no_sample_in_a_joint_action() -> None:
    made = (Completion("p", "x", "stop", tokens=(1,), logprobs=(-1.0,)),)
    alone = Round(
        0, {"b": "?"}, {"b": (2,)}, {"b": made}, (Outcome({"b": 0}, REWARDS, end="done"),)
    )
    table = Table.of([("e", alone)], ["a", "b"], turns=1)
    assert table.sample_NJ.tolist() == [[-1], [0]]
    assert table.acts_NJ.tolist() == [[False], [True]]


def test_no_valid_joint_action_makes_an_empty_table() -> None:
    failed = round_of(0, 1, action(0, 0, end=None, fault=FAULT))
    for roots in ([], [("e", failed)]):
        table = Table.of(roots, ["a", "b"], turns=1)
        assert (table.samples, table.outcomes, table.sample_NJ.shape) == ([], [], (2, 0))
