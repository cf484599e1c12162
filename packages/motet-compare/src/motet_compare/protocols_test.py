import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from codejudge import Sandbox
from motet.core import Environment, Message, OwnsTasks, Reply, Task, Team, Transition
from motet.environments.check import check_environment
from motet.environments.quickstart import Quickstart
from motet.environments.relay import Relay
from motet.errors import RewardFault
from motet.settings import Decode, Plan
from motet_compare.protocols import Discussion, Pipeline, lengthened, with_text

TASK = Task("t", {})


@dataclass(frozen=True)
class Board:
    """The state of `Table`: the replies of each turn that was played."""

    played: tuple[Mapping[str, str], ...] = ()


class Table(Environment[Board]):
    """The first agent earns 10; every other agent earns the number of replies of the turn.

    The game ends after `turns` turns.
    """

    branches = True

    def __init__(self, *acting, turns=99, agents=("a", "b", "c")):
        self.acting, self.turns, self.agents = acting, turns, agents
        self.seeds = []
        self.closed = []

    async def start(self, task, seed):
        return Board()

    def observe(self, state):
        acting = self.acting[min(len(state.played), len(self.acting) - 1)]
        return {agent: f"{agent}{len(state.played)}:" for agent in acting}

    async def step(self, state, replies, seed):
        self.seeds.append(seed)
        texts = {agent: reply.text for agent, reply in replies.items()}
        if "break" in texts.values():
            raise RewardFault("no score")
        after = Board((*state.played, texts))
        rewards = {
            agent: 10.0 if agent == self.agents[0] else float(len(texts)) for agent in self.agents
        }
        return Transition(after, rewards, len(after.played) == self.turns, success=1.0)

    async def close(self, state):
        self.closed.append(state)


def play(environment, *rounds):
    """Play the given replies, one mapping per Round. Return the prompts and the transitions."""

    async def run():
        begun = state = await environment.start(TASK, 0)
        prompts, transitions = [], []
        for number, texts in enumerate(rounds):
            prompts.append(dict(environment.observe(state)))
            replies = {agent: Reply(text) for agent, text in texts.items()}
            transitions.append(await environment.step(state, replies, number))
            state = transitions[-1].state
        await environment.close(begun)
        return prompts, transitions

    return asyncio.run(run())


# ------------------------------------------------------------ pipeline


def test_in_a_pipeline_a_later_agent_reads_the_earlier_ones_and_all_are_played_together():
    table = Table("cab")
    prompts, transitions = play(Pipeline(table), {"a": "x"}, {"b": "y"}, {"c": "z"})
    assert prompts == [
        {"a": "a0:"},
        {"b": "a has answered:\nx\n\nb0:"},
        {"c": "a has answered:\nx\n\nb has answered:\ny\n\nc0:"},
    ]
    assert [(one.rewards, one.done, one.terms) for one in transitions[:2]] == [
        (dict.fromkeys("abc", 0.0), False, {})
    ] * 2
    assert transitions[2].rewards == {"a": 10.0, "b": 3.0, "c": 3.0}
    assert transitions[2].state.inner.played == ({"a": "x", "b": "y", "c": "z"},)
    assert (table.seeds, table.closed) == ([2], [Board()])


def test_what_was_said_in_a_pipeline_is_forgotten_by_the_next_turn():
    prompts, _ = play(Pipeline(Table("ab")), {"a": "x"}, {"b": "y"}, {"a": "x"})
    assert prompts[2] == {"a": "a1:"}


def test_an_agent_that_acts_alone_needs_no_pipeline_and_no_discussion():
    for kind in (Pipeline, Discussion):
        table = Table("a", "bc", "b")
        prompts, transitions = play(kind(table), {"a": "x"})
        assert prompts == [{"a": "a0:"}]
        assert transitions[0].rewards == {"a": 10.0, "b": 1.0, "c": 1.0}
        assert set(kind(table).observe(transitions[0].state)) == (
            {"b"} if kind is Pipeline else {"b", "c"}
        )


# ------------------------------------------------------------ discussion


def test_in_a_discussion_all_draft_all_read_the_drafts_and_only_the_last_answers_count():
    table = Table("ab")
    prompts, transitions = play(
        Discussion(table), {"a": "x", "b": "y"}, {"a": "p", "b": "q"}, {"a": "r", "b": "s"}
    )
    again = "Answer again. Only this answer counts."
    assert prompts == [
        {"a": "a0:", "b": "b0:"},
        {
            "a": f"Your draft:\nx\n\nThe draft of b:\ny\n\n{again}\n\na0:",
            "b": f"Your draft:\ny\n\nThe draft of a:\nx\n\n{again}\n\nb0:",
        },
        {"a": "a1:", "b": "b1:"},
    ]
    assert (transitions[0].rewards, transitions[0].terms, transitions[0].done) == (
        dict.fromkeys("abc", 0.0),
        {},
        False,
    )
    assert transitions[1].state.inner.played == ({"a": "p", "b": "q"},)
    assert table.seeds == [1]


# ------------------------------------------------------------ where it ends


@pytest.mark.parametrize(
    ("kind", "per_turn"),
    [(Pipeline, [{"a": "x"}, {"b": "y"}]), (Discussion, [{"a": "x", "b": "y"}] * 2)],
)
def test_a_game_ends_where_its_own_plan_would_end_it(kind, per_turn):
    """It counts the game's own turns, and ignores the zero reward of the Rounds in between."""
    _, transitions = play(kind(Table("ab", turns=2)), *per_turn * 2)
    assert [one.done for one in transitions] == [False, False, False, True]
    _, transitions = play(kind(Table("ab"), Plan(samples=(1, 1))), *per_turn * 2)
    assert [one.done for one in transitions] == [False, False, False, True]
    # two of three agents act, so the mean reward of a turn is (10 + 2 + 2) / 3
    _, transitions = play(kind(Table("ab"), Plan(samples=(1, 1), stop_at_reward=4.5)), *per_turn)
    assert [one.done for one in transitions] == [False, True]
    _, transitions = play(kind(Table("ab"), Plan(samples=(1, 1), stop_at_reward=-1.0)), *per_turn)
    assert [one.done for one in transitions] == [False, True]


def test_a_protocol_is_played_with_a_round_for_every_turn_and_its_own_end():
    plan = Plan(samples=(4, 2), stop_at_reward=-0.5)
    team = Team(
        {"a": ("first", "later"), "b": ("one",)}, dict.fromkeys("ab", Decode()), {"a": "Be brief."}
    )
    longer, players = lengthened(plan, team, 2)
    assert longer == plan.model_copy(update={"samples": (1,) * 4, "stop_at_reward": None})
    assert players == replace(
        team, agents={"a": ("first", "first", "later", "later"), "b": ("one", "one")}
    )
    assert [players.policy_of("a", turn) for turn in range(4)] == [
        team.policy_of("a", turn // 2) for turn in range(4)
    ]


# ------------------------------------------------------------ any environment


def test_a_chat_hears_in_its_last_question_and_a_raw_text_in_front():
    chat = (
        Message("system", "s"),
        Message("user", "q"),
        Message("assistant", "a"),
        Message("user", "r", "judge"),
    )
    assert with_text(chat, "heard") == (*chat[:3], Message("user", "r\n\nheard", "judge"))
    assert with_text(chat[:3], "heard") == (chat[0], Message("user", "q\n\nheard"), chat[2])
    assert with_text(chat[:1], "heard") == (chat[0], Message("user", "heard"))
    assert with_text("def main(", "heard") == "heard\n\ndef main("


@pytest.mark.parametrize("kind", [Pipeline, Discussion])
def test_a_fault_of_the_game_is_a_fault_of_the_protocol(kind):
    rounds = (
        [{"a": "break"}, {"b": "y"}]
        if kind is Pipeline
        else [{"a": "x", "b": "y"}, {"a": "break", "b": "y"}]
    )
    with pytest.raises(RewardFault, match="no score"):
        play(kind(Table("ab")), *rounds)


@pytest.mark.parametrize("kind", [Pipeline, Discussion])
def test_prompts_that_are_nobodys_are_left_to_whoever_plays(kind):
    state = asyncio.run(kind(Table("xy")).start(TASK, 0))
    assert set(kind(Table("xy")).observe(state)) == {"x", "y"}


@pytest.mark.parametrize("kind", [Pipeline, Discussion])
def test_the_embedded_games_keep_every_rule_under_a_protocol(kind):
    assert "have success 1" in str(check_environment(kind(Relay(Relay.Options()))))
    with Sandbox(workers=1) as sandbox:
        assert "have success 1" in str(
            check_environment(kind(Quickstart(Quickstart.Options(), sandbox=sandbox)))
        )


def test_a_protocol_can_do_what_the_game_can_and_no_more():
    class Voting(Table):
        def answer(self, task, texts):
            return texts["a"]

        def alone(self):
            return Table("a", agents=("a",))

    game = Pipeline(Voting("ab"))
    assert (game.answer(TASK, {"a": "x", "b": "y"}), game.alone().agents) == ("x", ("a",))
    assert not isinstance(game, OwnsTasks)
    assert Discussion(Table("ab")).branches is True
