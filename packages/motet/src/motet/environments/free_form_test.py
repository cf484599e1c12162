import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from motet.core import Episode, Message, Reply, Round, Score, Task, ToolCall, Transition, walk
from motet.environments.free_form import Agents, FreeForm, FreeFormProgram, Transcript
from motet.errors import ConfigError, EnvironmentFault
from motet.rollout.collect import collect
from motet.settings import Plan, ToolUse
from tests.fixtures.fake_rollouts import KeySampler, team_of
from tests.fixtures.messages import facts, says

TASK = Task("t", {"question": "why?"})


def _play(
    program: FreeFormProgram,
    agents: tuple[str, ...],
    samples: tuple[int, ...],
    sampler: KeySampler | None = None,
) -> Episode:
    return _play_in(FreeForm(program, agents), Plan(samples=samples), sampler)


def _play_in(
    environment: FreeForm, plan: Plan | tuple[int, ...], sampler: KeySampler | None = None
) -> Episode:
    plan = plan if isinstance(plan, Plan) else Plan(samples=plan)
    team = team_of(tuple(environment.agents))
    run = collect(environment, [TASK], sampler or KeySampler(), team, plan, run_seed=5, tag="s")
    (episode,) = asyncio.run(asyncio.wait_for(run, 60.0))
    return episode


def _root(episode: Episode) -> Round:
    assert episode.root is not None, episode.fault
    return episode.root


def _paths(root: Round) -> list[list[tuple[str, ...]]]:
    """Return, for each path, the agents that acted at each turn."""
    paths = []
    for outcome in root.outcomes:
        below = _paths(outcome.next) if outcome.next is not None else [[]]
        paths += [[tuple(root.prompts), *path] for path in below]
    return paths


async def talk(task: Task, agents: Agents) -> Mapping[str, Any]:
    first = await agents.solver.ask(f"Q {task.fields['question']}")
    second = await agents.critic.ask((Message("user", first.text),))
    return {
        "rewards": {"solver": float(first.text), "critic": float(second.text)},
        "success": True,
    }


async def side_by_side(task: Task, agents: Agents) -> Mapping[str, Any]:
    left, right = await asyncio.gather(agents.left.ask("left"), agents.right.ask("right"))
    last = await agents.left.ask(f"{left.text} {right.text}")
    return {"rewards": float(last.text)}


async def loop(task: Task, agents: Agents) -> Mapping[str, Any]:
    heard: list[Message] = [Message("user", "start")]
    while len(heard) < 4:
        reply = await agents["solver"].ask(tuple(heard))
        heard.append(Message("assistant", reply.text))
    return {"rewards": float(len(heard))}


def test_every_question_is_a_round_and_only_the_last_is_rewarded() -> None:
    root = _root(_play(talk, ("solver", "critic"), (1, 1)))
    assert _paths(root) == [[("solver",), ("critic",)]]
    first, last = (round_.outcomes[0] for _, round_ in walk(root))
    said, answered = (
        root.samples["solver"][0].text,
        first.next.samples["critic"][0].text if first.next else "",
    )
    assert root.prompts == {"solver": "Q why?"}
    assert first.rewards == {"solver": 0.0, "critic": 0.0}
    assert last.rewards == {"solver": float(said), "critic": float(answered)}
    assert (last.terms, last.end) == ({"success": 1.0}, "done")


def test_questions_asked_side_by_side_are_one_round() -> None:
    root = _root(_play(side_by_side, ("left", "right"), (1, 1)))
    assert _paths(root) == [[("left", "right"), ("left",)]]
    below = root.outcomes[0].next
    assert below is not None
    assert (
        below.prompts["left"] == f"{root.samples['left'][0].text} {root.samples['right'][0].text}"
    )
    assert set(below.outcomes[0].rewards.values()) == {float(below.samples["left"][0].text)}


def test_a_task_group_is_one_round_too() -> None:
    async def grouped(task: Task, agents: Agents) -> Mapping[str, Any]:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(agents[name].ask(name)) for name in ("left", "right")]
        return {"rewards": float(sum(int(one.result().text) for one in asked))}

    root = _root(_play(grouped, ("left", "right"), (2,)))
    assert _paths(root) == [[("left", "right")]] * 2


def test_one_agent_asked_twice_side_by_side_answers_one_after_the_other() -> None:
    async def twice(task: Task, agents: Agents) -> Mapping[str, Any]:
        replies = await asyncio.gather(agents.solver.ask("a"), agents.solver.ask("b"))
        return {"rewards": 1.0, "metrics": {"replies": len(replies)}}

    root = _root(_play(twice, ("solver",), (1, 1)))
    assert [round_.prompts["solver"] for _, round_ in walk(root)] == ["a", "b"]


def test_a_loop_plays_as_many_rounds_as_it_asks() -> None:
    root = _root(_play(loop, ("solver",), (1, 1, 1, 1, 1)))
    rounds = [round_ for _, round_ in walk(root)]
    assert [len(round_.prompts["solver"]) for round_ in rounds] == [1, 2, 3]
    assert (rounds[-1].outcomes[0].end, rounds[-1].outcomes[0].rewards) == ("done", {"solver": 4.0})


def test_samples_of_a_task_are_paths_from_one_first_prompt() -> None:
    root = _root(_play(talk, ("solver", "critic"), (3, 1)))
    below = [outcome.next for outcome in root.outcomes]
    assert len(root.samples["solver"]) == 3
    assert [round_.prompts["critic"] for round_ in below if round_] == [
        (Message("user", sample.text),) for sample in root.samples["solver"]
    ]
    assert {len(round_.samples["critic"]) for round_ in below if round_} == {1}


def test_states_are_values_so_trees_work() -> None:
    root = _root(_play(side_by_side, ("left", "right"), (2, 3)))
    assert len(_paths(root)) == 6
    for _, round_ in walk(root):
        if round_.turn == 1:
            answers = [float(sample.text) for sample in round_.samples["left"]]
            assert [outcome.rewards["left"] for outcome in round_.outcomes] == answers


def test_a_program_may_wait_for_other_things() -> None:
    async def scored(task: Task, agents: Agents) -> Mapping[str, Any]:
        await tool()
        reply = await agents.solver.ask("x")
        await tool()
        return {"rewards": float(len(reply.text))}

    root = _root(_play(scored, ("solver",), (4,)))
    assert [outcome.rewards["solver"] for outcome in root.outcomes] == [3.0] * 4


def test_a_step_leaves_its_state_as_it_was() -> None:
    async def main() -> None:
        environment = FreeForm(talk, ["solver", "critic"])
        start = await environment.start(TASK, 0)
        one, two = [
            await environment.step(start, {"solver": Reply(text)}, 0) for text in ("1", "2")
        ]
        assert start.turns == ()
        assert (one.state.prompts, two.state.prompts) == (
            {"critic": (Message("user", "1"),)},
            {"critic": (Message("user", "2"),)},
        )
        assert (await environment.step(one.state, {"critic": Reply("7")}, 0)).rewards == {
            "solver": 1.0,
            "critic": 7.0,
        }

    asyncio.run(main())


# ------------------------------------------------------------------------------- runs of a program


class Counted:
    """A program that counts its runs, and those that ended with their cleanup."""

    def __init__(self, program: FreeFormProgram) -> None:
        self._program = program
        self.runs = self.ended = 0

    async def __call__(self, task: Task, agents: Agents) -> Mapping[str, Any]:
        self.runs += 1
        try:
            return await self._program(task, agents)
        finally:
            await asyncio.sleep(0)
            self.ended += 1


class RunAgain(FreeForm):
    """FreeForm that never lets a run go on."""

    async def start(self, task: Task, seed: int) -> Transcript:
        return replace(await super().start(task, seed), run=None)

    async def step(self, state: Transcript, replies: Mapping[str, Reply], seed: int) -> Transition:
        led_to = await super().step(state, replies, seed)
        return replace(led_to, state=replace(led_to.state, run=None))


async def grouped(task: Task, agents: Agents) -> Mapping[str, Any]:
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(agents[name].ask(name)) for name in ("left", "right")]
    last = await agents.left.ask("".join(one.result().text for one in asked))
    return {"rewards": float(last.text)}


async def tool() -> None:
    """Return some turns of the event loop later, as the answer of a tool comes."""
    loop, answered = asyncio.get_running_loop(), asyncio.Event()

    def count(left: int) -> None:
        loop.call_soon(count, left - 1) if left else answered.set()

    count(20)
    await answered.wait()


async def in_parts(task: Task, agents: Agents) -> Mapping[str, Any]:
    """Side by side: two questions of one part, a question after a tool, and no question at all."""

    async def one() -> str:
        first = await agents.left.ask("left")
        return (await agents.left.ask(f"left {first.text}")).text

    async def other() -> str:
        await tool()
        return (await agents.right.ask("right")).text

    texts = await asyncio.gather(one(), other(), asyncio.sleep(0, "0"))
    return {"rewards": float("".join(texts))}


async def waited(task: Task, agents: Agents) -> Mapping[str, Any]:
    asked = [asyncio.create_task(agents[name].ask(name)) for name in ("left", "right")]
    await asyncio.wait(asked)
    last = await agents.right.ask(asked[0].result().text)
    return {"rewards": float(last.text)}


async def background(task: Task, agents: Agents) -> Mapping[str, Any]:
    asked = asyncio.create_task(agents.right.ask("right"))
    first = await agents.left.ask("left")
    return {"rewards": float(first.text) + float((await asked).text)}


async def in_time(task: Task, agents: Agents) -> Mapping[str, Any]:
    first = await asyncio.wait_for(agents.left.ask("left"), 600.0)
    async with asyncio.timeout(600.0):
        last = await agents.right.ask(first.text)
    return {"rewards": float(last.text)}


@pytest.mark.parametrize("samples", [(1, 1, 1), (3, 1, 1), (2, 2, 1), (1, 2, 2)])
@pytest.mark.parametrize(
    "program",
    [side_by_side, grouped, in_parts, waited, background, in_time],
    ids=lambda p: p.__name__,
)
def test_a_run_that_goes_on_gives_the_tree_that_runs_from_the_start_give(
    program: FreeFormProgram, samples: tuple[int, ...]
) -> None:
    agents = ("left", "right")
    again = _play_in(RunAgain(program, agents), samples)
    assert _play(program, agents, samples) == again
    assert again.root is not None


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_straight_dialogue_runs_its_program_once_and_each_part_once(turns: int) -> None:
    parts = []

    async def long(task: Task, agents: Agents) -> Mapping[str, Any]:
        for turn in range(turns):
            parts.append(turn)
            await agents.solver.ask(f"turn {turn}")
        return {"rewards": 1.0}

    counted = Counted(long)
    root = _root(_play(counted, ("solver",), (1,) * turns))
    assert [round_.prompts["solver"] for _, round_ in walk(root)] == [
        f"turn {turn}" for turn in range(turns)
    ]
    assert (counted.runs, counted.ended, parts) == (1, 1, list(range(turns)))


def test_questions_side_by_side_go_on_too() -> None:
    counted = Counted(side_by_side)
    _root(_play(counted, ("left", "right"), (1, 1)))
    assert (counted.runs, counted.ended) == (1, 1)


@pytest.mark.parametrize("program", [grouped, waited], ids=lambda p: p.__name__)
def test_other_waiting_runs_the_program_again_once(program: FreeFormProgram) -> None:
    counted = Counted(program)
    _root(_play(counted, ("left", "right"), (1, 1)))
    assert (counted.runs, counted.ended) == (2, 2)


@pytest.mark.parametrize(("samples", "runs"), [((4, 1, 1), 4), ((2, 3), 1 + 1 + 2 * 2)])
def test_a_program_runs_again_only_where_a_tree_branches(
    samples: tuple[int, ...], runs: int
) -> None:
    counted = Counted(loop)
    _root(_play(counted, ("solver",), samples))
    assert (counted.runs, counted.ended) == (runs, runs)


def test_a_dialogue_that_the_plan_cuts_off_is_unwound_with_its_cleanup() -> None:
    async def main() -> Counted:
        counted = Counted(loop)
        environment, plan = FreeForm(counted, ("solver",)), Plan(samples=(2, 2))
        team = team_of(("solver",))
        await collect(environment, [TASK], KeySampler(), team, plan, run_seed=5, tag="s")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return counted

    counted = asyncio.run(main())
    assert counted.runs == counted.ended == 4


def test_a_cleanup_that_fails_is_a_fault_of_the_episode() -> None:
    async def leaves(task: Task, agents: Agents) -> Mapping[str, Any]:
        try:
            await agents.solver.ask("x")
            await agents.solver.ask("y")
        finally:
            raise KeyError("left open")

    fault = _play(leaves, ("solver",), (1,)).fault
    assert fault is not None
    assert (fault.where, fault.cause) == ("environment", "KeyError")


def test_a_cancelled_rollout_ends_all_runs() -> None:
    class Slow(KeySampler):
        async def sample(self, requests: Any, on_answer: Any = None) -> Any:
            await asyncio.sleep(100.0)

    async def main() -> Counted:
        counted = Counted(talk)
        environment, plan = FreeForm(counted, ("solver", "critic")), Plan(samples=(2, 1))
        run = collect(environment, [TASK], Slow(), team_of(("solver", "critic")), plan, 5, "s")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run, 0.1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return counted

    counted = asyncio.run(main())
    assert counted.runs == counted.ended == 1


@pytest.mark.parametrize("blocks", [False, True])
def test_a_time_limit_ends_a_run_that_went_on(blocks: bool) -> None:
    async def hangs(task: Task, agents: Agents) -> Mapping[str, Any]:
        await agents.solver.ask("x")
        if blocks:
            time.sleep(60.0)
        await asyncio.sleep(60.0)
        return {"rewards": 1.0}

    counted = Counted(hangs)
    plan = Plan(samples=(2,), timeout_seconds=0.3, retries=0)
    fault = _play_in(FreeForm(counted, ("solver",)), plan).fault
    assert fault is not None
    assert (fault.where, fault.cause) == ("environment", "timeout")
    assert says(fault.message, "step … within 0.3 s")
    assert counted.runs == counted.ended == 2


def test_a_timeout_of_the_program_does_not_count_the_time_of_its_agents() -> None:
    scopes: list[asyncio.Timeout] = []

    class Slow(KeySampler):
        async def sample(self, requests: Any, on_answer: Any = None) -> Any:
            while scopes:
                scopes.pop().reschedule(0.0)
            for _ in range(10):
                await asyncio.sleep(0)
            return await super().sample(requests, on_answer)

    async def hurried(task: Task, agents: Agents) -> Mapping[str, Any]:
        async with asyncio.timeout(None) as scope:
            scopes.append(scope)
            first = await agents.solver.ask("x")
            last = await agents.solver.ask(first.text)
        return {"rewards": float(last.text)}

    counted = Counted(hurried)
    hurried_root = _root(_play(counted, ("solver",), (2, 1), Slow()))
    assert (counted.runs, counted.ended) == (5, 5)
    assert hurried_root == _root(_play(hurried, ("solver",), (2, 1)))


def test_a_step_that_lost_its_connection_is_taken_again_from_the_start(monkeypatch: Any) -> None:
    monkeypatch.setattr("motet.user_code.retries._FIRST_WAIT_SECONDS", 0.0)
    lost = iter([True, False])

    async def calls(task: Task, agents: Agents) -> Mapping[str, Any]:
        reply = await agents.solver.ask("x")
        if next(lost):
            raise ConnectionError("the server of the tool went away")
        return {"rewards": float(reply.text)}

    counted = Counted(calls)
    root = _root(_play(counted, ("solver",), (1,)))
    assert root.outcomes[0].rewards["solver"] == float(root.samples["solver"][0].text)
    assert (counted.runs, counted.ended) == (2, 2)


# ------------------------------------------------------------------------------------------- faults


def test_a_program_that_is_not_repeatable_is_found_out() -> None:
    asked = iter(range(100))

    async def drifts(task: Task, agents: Agents) -> Mapping[str, Any]:
        await agents.solver.ask(f"question {next(asked)}")
        return {"rewards": 1.0}

    first, again = _root(_play(drifts, ("solver",), (2,))).outcomes
    assert (first.fault, first.rewards) == (None, {"solver": 1.0})
    assert again.fault is not None
    assert says(again.fault.message, "solver 'question 1' … expected 'question 0' … run again")


def test_a_program_that_leaves_out_a_question_is_found_out() -> None:
    runs = iter([True, False])

    async def skips(task: Task, agents: Agents) -> Mapping[str, Any]:
        if next(runs):
            await agents.solver.ask("x")
        return {"rewards": 1.0}

    first, again = _root(_play(skips, ("solver",), (2,))).outcomes
    assert (first.fault, first.rewards) == (None, {"solver": 1.0})
    assert again.fault is not None
    assert says(again.fault.message, "solver nothing … expected 'x' … run again")


@pytest.mark.parametrize("result", [None, 1.0, {"reward": 1.0}, {"rewards": 1.0, "won": 1.0}])
def test_what_a_program_returns_is_checked(result: Any) -> None:
    async def returns(task: Task, agents: Agents) -> Any:
        await agents.solver.ask("x")
        return result

    fault = _play(returns, ("solver",), (1,)).fault
    assert fault is not None
    assert "expected a motet.Score, or a mapping with `rewards`" in fault.message


@pytest.mark.parametrize(
    "result",
    [
        Score({"solver": 0.5}, {"long": 3}, success=0.25, right={"solver": 1}, bonus={"solver": 2}),
        {"rewards": 0.5, "metrics": {"long": 3}, "success": 0.25, "right": {"solver": True},
         "bonus": {"solver": 2.0}},
    ],
    ids=["a score", "a dict"],
)  # fmt: skip
def test_a_program_may_say_all_that_a_score_says(result: Any) -> None:
    async def returns(task: Task, agents: Agents) -> Any:
        await agents.solver.ask("x")
        return result

    root = _play(returns, ("solver",), (1,)).root
    assert root is not None
    (end,) = root.outcomes
    assert (end.rewards, end.success, end.right, end.bonus) == (
        {"solver": 0.5},
        0.25,
        {"solver": 1.0},
        {"solver": 2.0},
    )
    assert end.terms["long"] == 3.0


def test_rewards_for_a_part_of_the_agents_are_a_fault() -> None:
    async def forgets(task: Task, agents: Agents) -> Mapping[str, Any]:
        await agents.solver.ask("x")
        return {"rewards": {"solver": 1.0}}

    fault = _play(forgets, ("solver", "critic"), (1,)).fault
    assert fault is not None
    assert says(fault.message, "rewards for solver … every agent … solver, critic")


def test_a_row_is_named_by_its_id_else_by_a_hash_and_a_person_types_one() -> None:
    game = FreeForm(talk, agents=["solver", "critic"])
    assert game.task({"id": 7, "question": "why?"}) == Task("7", {"id": 7, "question": "why?"})
    assert game.chat_task('{"question": "why?"}') == game.task({"question": "why?"})
    assert game.task({"question": "why?"}).id != game.task({"question": "how?"}).id
    assert game.chat_answer(TASK, {"solver": "a", "critic": " a "}) == "a"
    with pytest.raises(ConfigError, match=facts("'why?' … JSON object … chat_task … docs/serving")):
        game.chat_task("why?")


def test_a_program_that_asks_nobody_is_a_fault() -> None:
    async def silent(task: Task, agents: Agents) -> Mapping[str, Any]:
        return {"rewards": 1.0}

    fault = _play(silent, ("solver",), (1,)).fault
    assert fault is not None
    assert says(fault.message, "without asking … solver")


def test_a_bug_in_a_program_is_a_fault_of_its_class() -> None:
    async def buggy(task: Task, agents: Agents) -> Mapping[str, Any]:
        reply = await agents.solver.ask("x")
        return {"rewards": task.fields[reply.text]}

    fault = _play(buggy, ("solver",), (1,)).fault
    assert fault is not None
    assert (fault.where, fault.cause) == ("environment", "KeyError")


def test_a_misspelt_agent_stops_the_run() -> None:
    async def misspelt(task: Task, agents: Agents) -> Mapping[str, Any]:
        return {"rewards": float((await agents.solvr.ask("x")).text)}

    with pytest.raises(ConfigError, match="asks agent 'solvr'; agents are: solver"):
        _play(misspelt, ("solver",), (1,))


def test_a_program_cannot_catch_the_pause_by_accident() -> None:
    async def careful(task: Task, agents: Agents) -> Mapping[str, Any]:
        try:
            reply = await agents.solver.ask("x")
        except Exception:  # noqa: BLE001 - tests a program that catches too much
            return {"rewards": -1.0}
        return {"rewards": float(reply.text)}

    root = _root(_play(careful, ("solver",), (1,)))
    assert root.outcomes[0].rewards["solver"] == float(root.samples["solver"][0].text)


@dataclass(frozen=True)
class Adds:
    """A tool."""

    name: str = "add"
    description: str = "Adds."
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})

    def __call__(self, a, b):
        return a + b


def test_a_question_may_offer_tools_and_its_reply_is_the_answer_after_the_calls():
    async def program(task, agents):
        reply = await agents.a.ask("3 + 4?", tools=[Adds()])
        return Score(float(reply.text == "7"))

    async def play():
        environment = FreeForm(program, ["a"])
        state = await environment.start(Task("t", {}), 0)
        first = environment.observe(state)["a"]
        call = Reply("", calls=(ToolCall("add", {"a": 3, "b": 4}),))
        moved = await environment.step(state, {"a": call}, 0)
        second = environment.observe(moved.state)["a"]
        again = await environment.step(state, {"a": call}, 0)
        ended = [await environment.step(one.state, {"a": Reply("7")}, 0) for one in (moved, again)]
        await environment.close(state)
        return first, second, ended

    first, second, ended = asyncio.run(play())
    assert (first[0].content, first[0].tools[0].name) == ("3 + 4?", "add")
    assert second[:1] == first
    assert [message.role for message in second[1:]] == ["assistant", "tool"]
    assert second[-1].content == "7"
    assert [(one.done, one.rewards) for one in ended] == [(True, {"a": 1.0})] * 2


def test_a_question_with_a_bare_function_says_how_to_make_a_tool_of_it():
    async def program(task, agents):
        return Score(float((await agents.a.ask("?", tools=[len])).text == "7"))

    with pytest.raises(EnvironmentFault, match=r"without name.* write @motet.tool"):
        asyncio.run(FreeForm(program, ["a"]).start(Task("t", {}), 0))


def test_a_question_with_something_else_than_a_list_of_tools_says_so():
    async def program(task, agents):
        return Score(float((await agents.a.ask("?", tools=Adds())).text == "7"))

    with pytest.raises(EnvironmentFault, match=r"a is asked with tools=.* expected a list"):
        asyncio.run(FreeForm(program, ["a"]).start(Task("t", {}), 0))


def test_a_program_has_the_limits_of_its_run():
    async def program(task, agents):
        reply = await agents.a.ask("3 + 4?", tools=[Adds()])
        return Score(float(bool(reply.calls)))

    async def play(rounds):
        environment = FreeForm(program, ["a"])
        environment.limits = ToolUse(rounds=rounds)
        state = await environment.start(Task("t", {}), 0)
        call = Reply("", calls=(ToolCall("add", {"a": 3, "b": 4}),))
        turns = 0
        while True:
            moved = await environment.step(state, {"a": call}, 0)
            turns, state = turns + 1, moved.state
            if moved.done:
                return turns, moved.rewards

    assert asyncio.run(play(1)) == (2, {"a": 1.0})
    assert asyncio.run(play(3)) == (4, {"a": 1.0})
