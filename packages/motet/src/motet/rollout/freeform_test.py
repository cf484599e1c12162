import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from motet.core import Episode, Message, Reply, Round, Task, walk
from motet.errors import ConfigError
from motet.rollout.collect import collect
from motet.rollout.freeform import Agents, FreeForm, FreeFormProgram
from motet.settings import Plan
from tests.fixtures.fake_rollouts import KeySampler, team_of

TASK = Task("t", {"question": "why?"})


def _play(
    program: FreeFormProgram,
    agents: tuple[str, ...],
    samples: tuple[int, ...],
    sampler: KeySampler | None = None,
) -> Episode:
    environment, plan = FreeForm(program, agents), Plan(samples=samples)
    run = collect(
        environment, [TASK], sampler or KeySampler(), team_of(agents), plan, run_seed=5, tag="s"
    )
    (episode,) = asyncio.run(asyncio.wait_for(run, 10.0))
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
        "terms": {"success": 1.0},
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
        return {"rewards": 1.0, "terms": {"replies": float(len(replies))}}

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
        await asyncio.sleep(0.001)
        reply = await agents.solver.ask("x")
        return {"rewards": await asyncio.sleep(0.001, float(len(reply.text)))}

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


# ------------------------------------------------------------------------------------------- faults


def test_a_program_that_is_not_repeatable_is_found_out() -> None:
    asked = iter(range(100))

    async def drifts(task: Task, agents: Agents) -> Mapping[str, Any]:
        await agents.solver.ask(f"question {next(asked)}")
        return {"rewards": 1.0}

    fault = _play(drifts, ("solver",), (1,)).fault
    assert fault is not None
    assert fault.message.startswith(
        "the program asked solver 'question 1'; expected 'question 0' as before: the program is "
        "run again"
    )


def test_a_program_that_leaves_out_a_question_is_found_out() -> None:
    runs = iter([True, False])

    async def skips(task: Task, agents: Agents) -> Mapping[str, Any]:
        if next(runs):
            await agents.solver.ask("x")
        return {"rewards": 1.0}

    fault = _play(skips, ("solver",), (1,)).fault
    assert fault is not None
    assert fault.message.startswith("the program asked solver nothing; expected 'x' as before")


@pytest.mark.parametrize("result", [None, 1.0, {"reward": 1.0}, {"rewards": 1.0, "success": 1.0}])
def test_what_a_program_returns_is_checked(result: Any) -> None:
    async def returns(task: Task, agents: Agents) -> Any:
        await agents.solver.ask("x")
        return result

    fault = _play(returns, ("solver",), (1,)).fault
    assert fault is not None
    assert "expected a mapping with `rewards` and optional `terms`" in fault.message


def test_rewards_for_a_part_of_the_agents_are_a_fault() -> None:
    async def forgets(task: Task, agents: Agents) -> Mapping[str, Any]:
        await agents.solver.ask("x")
        return {"rewards": {"solver": 1.0}}

    fault = _play(forgets, ("solver", "critic"), (1,)).fault
    assert fault is not None
    assert "rewards for solver; expected one for every agent: solver, critic" in fault.message


def test_a_program_that_asks_nobody_is_a_fault() -> None:
    async def silent(task: Task, agents: Agents) -> Mapping[str, Any]:
        return {"rewards": 1.0}

    fault = _play(silent, ("solver",), (1,)).fault
    assert fault is not None
    assert "without asking any of solver" in fault.message


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
