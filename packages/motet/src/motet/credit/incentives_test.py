"""Tests incentives on random trees against a direct implementation of their definition."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.algorithms import resolve
from motet.core import Completion, CreditState, Episode, Outcome, Round, Scores, Task, Team
from motet.core.terms import RIGHT
from motet.credit.assign import assign_credit
from motet.credit.returns import Forest, bonuses
from motet.errors import ConfigError
from motet.settings import Incentives
from tests.fixtures.messages import facts

SIZES = Incentives(alpha0=1.0, alpha1=10.0, beta0=100.0, beta1=1000.0)
"""Every sum of these values shows which of them it contains."""


# ------------------------------------------------------------ direct implementation


@dataclass
class Said:
    """One joint action of a debate: who was right, and the joint actions before and after it."""

    right: tuple[bool, ...]
    before: "Said | None" = None
    after: list["Said"] = field(default_factory=list)


def others_are_right(said: Said, agent: int) -> bool:
    """Return whether strictly more than half of the *other* agents are right. A tie is wrong."""
    others = [right for one, right in enumerate(said.right) if one != agent]
    return len([right for right in others if right]) > len(others) / 2


def for_my_answer(said: Said, agent: int, sizes: Incentives) -> float:
    """The bonus for one's own answer.

    Own answer wrong -> right: +α1 if the others were right before, +α0 if not. Own answer right ->
    wrong: −α1 if they were wrong, −α0 if right. In the published code α0 and α1 are swapped. The
    first turn has no such term, because there is no turn before it.
    """
    if said.before is None:
        return 0.0
    against, along = sizes.alpha0, sizes.alpha1
    if sizes.alphas == "code":
        against, along = along, against
    was, am, led = said.before.right[agent], said.right[agent], others_are_right(said.before, agent)
    if not was and am:
        return along if led else against
    if was and not am:
        return -against if led else -along
    return 0.0


def for_the_others(said: Said, agent: int, sizes: Incentives) -> float:
    """The bonus for the others' answers.

    The others wrong -> right at the next turn: +β1 if I was right, +β0 if I was wrong. Right ->
    wrong: −β1 if I was wrong, −β0 if I was right. It also applies at the first turn. With several
    next joint actions it is their mean; without a next turn it is 0.
    """
    terms = []
    for following in said.after:
        were, are, mine = (
            others_are_right(said, agent),
            others_are_right(following, agent),
            said.right[agent],
        )
        if not were and are:
            terms.append(sizes.beta1 if mine else sizes.beta0)
        elif were and not are:
            terms.append(-sizes.beta0 if mine else -sizes.beta1)
        else:
            terms.append(0.0)
    return sum(terms) / len(terms) if terms else 0.0


def brute_force(nodes: list[Said], agents: int, sizes: Incentives) -> list[list[float]]:
    return [
        [for_my_answer(n, a, sizes) + for_the_others(n, a, sizes) for n in nodes]
        for a in range(agents)
    ]


def got(nodes: list[Said], sizes: Incentives = SIZES) -> list[list[float]]:
    place = {id(node): index for index, node in enumerate(nodes)}
    parents = [-1 if node.before is None else place[id(node.before)] for node in nodes]
    turns: list[int] = []
    for parent in parents:
        turns.append(0 if parent < 0 else turns[parent] + 1)
    rounds = [parent + 1 for parent in parents]  # one Round below each joint action
    forest = Forest(
        *(torch.tensor(column) for column in (parents, rounds, turns, [False] * len(nodes)))
    )
    right_NJ = torch.tensor([node.right for node in nodes]).T
    return bonuses(right_NJ, forest, sizes).tolist()


def path(*turns: tuple[int, ...]) -> list[Said]:
    nodes: list[Said] = []
    for right in turns:
        node = Said(tuple(map(bool, right)), nodes[-1] if nodes else None)
        if nodes:
            nodes[-1].after.append(node)
        nodes.append(node)
    return nodes


@st.composite
def debates(draw) -> tuple[list[Said], int]:
    """A forest of up to three turns, one to three joint actions per Round, two to four agents.
    Parents come first."""
    agents, nodes = draw(st.integers(2, 4)), []

    def grow(before: Said | None, depth: int) -> None:
        for _ in range(draw(st.integers(1, 3))):
            node = Said(tuple(draw(st.booleans()) for _ in range(agents)), before)
            nodes.append(node)
            if before is not None:
                before.after.append(node)
            if depth < 2 and draw(st.booleans()):
                grow(node, depth + 1)

    grow(None, 0)
    return nodes, agents


@given(debates(), st.tuples(*[st.floats(0, 5)] * 4), st.sampled_from(["paper", "code"]))
@settings(max_examples=150, deadline=None)
def test_bonuses_on_random_trees_are_what_the_sentences_say(debate, sizes, alphas):
    nodes, agents = debate
    chosen = Incentives(
        alphas=alphas, **dict(zip(("alpha0", "alpha1", "beta0", "beta1"), sizes, strict=True))
    )
    expected = brute_force(nodes, agents, chosen)
    for row, wanted in zip(got(nodes, chosen), expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-9)


# ------------------------------------------------------------ by hand


@pytest.mark.parametrize(
    ("turns", "mine"),
    [
        (((0, 1), (1, 1)), [0, +10]),  # I adopted the others' right answer
        (((0, 0), (1, 0)), [0, +1]),  # I corrected my answer although the others were wrong
        (((1, 0), (0, 0)), [0, -10]),  # I adopted the others' wrong answer
        (((1, 1), (0, 1)), [0, -1]),  # I gave up the right answer although the others were right
        (((1, 0), (1, 1)), [+1000, 0]),  # I was right and the others became right
        (((0, 0), (0, 1)), [+100, 0]),  # I was wrong and the others became right
        (((0, 1), (0, 0)), [-1000, 0]),  # I was wrong and the others became wrong
        (((1, 1), (1, 0)), [-100, 0]),  # I was right and the others became wrong
        (((1, 1), (1, 1)), [0, 0]),
        (((0, 0), (0, 0)), [0, 0]),
    ],
)
def test_each_sentence_by_hand(turns, mine):
    assert got(path(*turns))[0] == mine


def test_the_first_turn_earns_for_what_it_does_to_the_others_and_the_last_does_not():
    persuades_twice = path((1, 0), (1, 1), (1, 0), (1, 1))
    assert got(persuades_twice)[0] == [1000, -100, 1000, 0]


def test_no_term_where_the_neighbouring_turn_was_not_played():
    assert got(path((1, 0))) == [[0.0], [0.0]]
    ended, went_on = path((1, 0)), path((1, 0), (1, 1))
    assert got([*ended, *went_on])[0] == [0, 1000, 0]


def test_half_of_the_others_is_a_tie_and_a_tie_is_wrong():
    # of the two others of agent 0, one is right, then both: wrong -> right
    assert got(path((1, 1, 0), (1, 1, 1)))[0] == [1000, 0]
    # one is right, then none: wrong -> wrong
    assert got(path((1, 1, 0), (1, 0, 0)))[0] == [0, 0]
    # of three others two are right: that is more than half
    assert got(path((1, 1, 0, 0), (1, 1, 1, 0)))[0] == [1000, 0]


def test_over_several_next_joint_actions_a_bonus_is_their_mean():
    root = Said((True, False))
    root.after = [Said((True, right), root) for right in (True, True, False, False)]
    assert got([root, *root.after])[0][0] == 500


def test_in_the_published_code_alpha0_and_alpha1_have_changed_places():
    code = SIZES.model_copy(update={"alphas": "code"})
    for turns, mine in [
        (((0, 1), (1, 1)), 1),
        (((0, 0), (1, 0)), 10),
        (((1, 0), (0, 0)), -1),
        (((1, 1), (0, 1)), -10),
    ]:
        assert got(path(*turns), code)[0][1] == mine


def test_an_agent_alone_goes_against_nobody_and_both_changes_of_mind_are_alpha0():
    alone = path((0,), (1,), (0,))
    assert got(alone) == [[0, 1, -1]]
    # The published code also uses one value for both: its alpha1.
    assert got(alone, SIZES.model_copy(update={"alphas": "code"})) == [[0, 10, -10]]


# ------------------------------------------------------------ in the advantages

TEAM = Team({"me": ("p",), "other": ("p",)}, decode={})


def turn(
    number: int, outcomes: list[tuple[Mapping[str, float], Mapping[str, float], Round | None]]
) -> Round:
    """Return a Round from (rewards, who was right, next Round) per joint action."""
    said = tuple(Completion("p", "x", "stop", tokens=(1,), logprobs=(-1.0,)) for _ in outcomes)
    return Round(
        number,
        dict.fromkeys(TEAM.agents, "?"),
        dict.fromkeys(TEAM.agents, (1,)),
        dict.fromkeys(TEAM.agents, said),
        tuple(
            Outcome(
                dict.fromkeys(TEAM.agents, index),
                rewards,
                {RIGHT + agent: value for agent, value in right.items()},
                following,
                None if following else "done",
            )
            for index, (rewards, right, following) in enumerate(outcomes)
        ),
    )


def answered(me: float, other: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return constant rewards, so that all differences come from incentives."""
    return {"me": 0.0, "other": 0.0}, {"me": me, "other": other}


def debate(me: float, other: float, then_other: float, index: int = 0) -> Episode:
    after = turn(1, [(*answered(me, then_other), None)])
    return Episode(f"e{index}", Task("t", {}), turn(0, [(*answered(me, other), after)]))


def first_turn_advantages(episodes: list[Episode], **incentives: float) -> list[float]:
    algorithm = resolve(
        "mareinforce", {"returns": "discounted_sum", "gamma": 0.3, "incentives": incentives}
    )
    samples = assign_credit(episodes, Scores(), algorithm, CreditState(), TEAM, 2).samples
    return [sample.advantage for sample in samples if sample.turn == 0 and sample.id.agent == "me"]


@pytest.mark.parametrize("size", [0.5, 2.0])
def test_a_persuader_with_the_right_answer_is_preferred_and_a_misleader_is_not(size):
    persuades, idles = debate(1, 0, 1, 0), debate(1, 0, 0, 1)
    misleads, leaves = debate(0, 1, 0, 2), debate(0, 1, 1, 3)
    everyone = [persuades, idles, misleads, leaves]
    assert first_turn_advantages(everyone) == [0, 0, 0, 0]
    assert first_turn_advantages(everyone, beta1=size) == [size, 0, -size, 0]
    # β0 is for the opposite own answer. It does not punish the influence of an agent that was
    # wrong.
    assert first_turn_advantages(everyone, beta0=size) == [0, 0, 0, 0]


@pytest.mark.parametrize("returns", ["tree", "discounted_sum", "last", "current"])
def test_a_bonus_of_a_later_turn_does_not_change_the_turn_before(returns):
    comes_round = turn(1, [(*answered(1, 1), None)])
    episode = Episode("e", Task("t", {}), turn(0, [(*answered(0, 1), comes_round)]))

    def by_turn(**incentives: float) -> list[float]:
        algorithm = resolve("mareinforce", {"returns": returns, "incentives": incentives})
        samples = assign_credit([episode], Scores(), algorithm, CreditState(), TEAM, 2).samples
        return [sample.advantage for sample in samples if sample.id.agent == "me"]

    assert by_turn() == [0, 0]
    assert by_turn(alpha1=3.0) == [0, 3]


def test_who_asks_for_incentives_must_be_told_who_was_right():
    mute = Outcome(dict.fromkeys(TEAM.agents, 0), dict.fromkeys(TEAM.agents, 1.0), {}, None, "done")
    root = turn(0, [(*answered(1, 1), None)])
    episode = Episode(
        "e", Task("t", {}), Round(0, root.prompts, root.prompt_tokens, root.samples, (mute,))
    )
    algorithm = resolve("mareinforce", {"incentives": {"beta1": 1.0}})
    with pytest.raises(ConfigError, match=facts("of me … right=")):
        assign_credit([episode], Scores(), algorithm, CreditState(), TEAM, 1)
