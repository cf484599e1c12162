import asyncio
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from codejudge import Limits, Sandbox, SandboxFault
from codejudge.suite import CaseResult, Verdict
from motet.core import Message, Reply
from motet.environments.check import check_environment
from motet.environments.registry import resolve
from motet.errors import ConfigError, EnvironmentFault
from motet_tasks.coding.generation import CodeGeneration
from tests.fixtures.messages import facts

PROMPT = """\
from typing import List


def total(xs: List[int]) -> int:
    '''Sum of squares.
    >>> total([7])
    49
    '''
"""
CHECK = """\
def check(candidate):
    assert candidate([]) == 0
    assert candidate([3]) == 9
    assert candidate([1, 2]) == 5
    assert candidate([1, -2, 3]) == 14
"""
ROW = {
    "task_id": "t/1",
    "prompt": PROMPT,
    "entry_point": "total",
    "canonical_solution": (
        "    squares = [x * x for x in xs]\n    whole = sum(squares)\n    return abs(whole)\n"
    ),
    "test": CHECK,
}
GRADING = ("total([]) == 0", "total([3]) == 9", "total([1, 2]) == 5", "total([1, -2, 3]) == 14")
AUX = "def aux(xs):\n    return [x * x for x in xs]"
MAIN = "def total(xs):\n    return sum(aux(xs))"
WRONG = "def total(xs):\n    return len(aux(xs))"
DATA = Path(__file__).parents[6] / "shared" / "data"


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1, limits=Limits(wall_seconds=3.0, cpu_seconds=1)) as running:
        yield running


def made(sandbox, turns=1, person=None, **options):
    return CodeGeneration(
        CodeGeneration.Options(**options), sandbox=sandbox, turns=turns, person=person
    )


def play(environment, *turns, row=ROW):
    """Play the given replies. Return the prompts and the transition of every turn."""

    async def run():
        state, prompts, transitions = await environment.start(environment.task(row), 0), [], []
        for said in turns:
            prompts.append(dict(environment.observe(state)))
            replies = {
                agent: Reply(text) for agent, text in zip(environment.agents, said, strict=True)
            }
            transitions.append(await environment.step(state, replies, 0))
            state = transitions[-1].state
        return [*prompts, dict(environment.observe(state))], transitions

    return asyncio.run(run())


def text_of(prompt):
    return prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)


# ------------------------------------------------------------ one turn


def test_it_has_a_name():
    assert resolve("code_generation") is CodeGeneration


def test_both_are_told_the_problem_their_role_and_what_the_partner_writes(sandbox):
    prompts, _ = play(made(sandbox))
    helper, main = (text_of(prompts[0][agent]) for agent in ("helper", "main"))
    assert all(ROW["prompt"].strip() in text for text in (helper, main))
    assert "`def aux(xs: List[int]):`" in helper
    assert "a partner writes `total`" in helper
    assert "`aux(xs)`" in main
    assert "a partner writes `aux`" in main
    assert isinstance(prompts[0]["main"][0], Message)


def test_a_turn_is_rewarded_alike_and_says_every_term(sandbox):
    _, (transition,) = play(made(sandbox), (AUX, MAIN))
    assert transition.rewards == {"helper": pytest.approx(4.0), "main": pytest.approx(4.0)}
    assert transition.terms == pytest.approx(
        {
            "aux_defined": 1.0,
            "main_defined": 1.0,
            "parses": 1.0,
            "tests_passed": 1.0,
            "calls_aux": 1.0,
            "beyond_wrapper": 1.0,
            "aux_ignored": 0.0,
            "success": 1.0,
            "needs_aux": 1.0,
            "levels": 4.0,
        }
    )
    assert transition.done


def test_what_is_around_the_code_does_not_matter(sandbox):
    said = (
        f"Sure:\n```python\n{AUX}\n\nprint(aux([1]))\n```",
        f"from helper import aux\n{MAIN}\n\nThat's it.",
    )
    assert play(made(sandbox), said)[1][0].rewards["main"] == pytest.approx(4.0)


def test_a_body_alone_goes_on_from_the_head(sandbox):
    said = (
        "    return [x * x for x in xs]\n\n\ndef main():\n    x = (",
        "    return sum(aux(xs))\n",
    )
    assert play(made(sandbox, prompts="raw"), said)[1][0].rewards["main"] == pytest.approx(4.0)


def test_the_reward_is_scaled_then_shifted_and_the_terms_are_not(sandbox):
    _, (transition,) = play(made(sandbox, reward={"scale": 0.5, "shift": -4.0}), (AUX, WRONG))
    # 1.5; one of four tests passes ([] has no squares); 1.5 for the call and for own work
    assert transition.terms["levels"] == pytest.approx(1.5 + 0.25 + 1.5)
    assert transition.rewards["main"] == pytest.approx(0.5 * 3.25 - 4.0)


def test_one_agent_has_no_helper_and_no_terms_of_one(sandbox):
    environment = made(sandbox, helpers=0)
    prompts, (transition,) = play(
        environment, ("def total(xs):\n    return sum(x * x for x in xs)",)
    )
    assert environment.agents == ("main",)
    assert "aux" not in text_of(prompts[0]["main"])
    assert transition.rewards == {"main": pytest.approx(2.1)}
    assert set(transition.terms) == {"main_defined", "parses", "tests_passed", "success", "levels"}


def test_alone_is_the_same_game_for_one(sandbox):
    team = made(sandbox, turns=3, reward={"shift": -1.0}, history="joint")
    alone = team.alone()
    assert alone.agents == ("main",)
    assert alone.task(ROW) == team.task(ROW)
    assert alone.options == team.options.model_copy(update={"helpers": 0})
    assert alone.turns.count == 3


def test_several_helpers_write_a_function_each(sandbox):
    environment = made(sandbox, helpers=2)
    assert environment.agents == ("helper1", "helper2", "main")
    first, second = AUX.replace("aux", "aux1"), "def aux2(xs):\n    return sum(xs)"
    prompts, (transition,) = play(
        environment, (first, second, "def total(xs):\n    return 0 + aux2(aux1(xs))")
    )
    assert transition.rewards["helper2"] == pytest.approx(4.0)
    assert "partners write `aux1` and `total`" in text_of(prompts[0]["helper2"])
    assert "`aux1(xs)` and `aux2(xs)`" in text_of(prompts[0]["main"])


def test_raw_prompts_end_where_a_base_model_goes_on(sandbox):
    prompts, _ = play(made(sandbox, prompts="raw"))
    assert prompts[0]["helper"].endswith("\ndef aux(xs: List[int]):\n")
    assert prompts[0]["main"].endswith(ROW["prompt"])
    compile(prompts[0]["helper"] + "    return xs\n", "helper", "exec")
    compile(prompts[0]["main"] + "    return xs\n", "main", "exec")


def test_ones_own_wording_replaces_the_environments(sandbox):
    wording = {
        "helper": "{head} for {{{entry_point}}}",
        "main": "{function}: {calls}, {partners}\n{problem}",
    }
    prompts, _ = play(made(sandbox, wording=wording))
    assert text_of(prompts[0]["helper"]) == "def aux(xs: List[int]): for {total}"
    assert text_of(prompts[0]["main"]).startswith(
        "total: `aux(xs)`, a partner writes `aux`\nfrom typing"
    )


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{problm}", "got {problm}, expected one of {problem}"),
        ("{problem!z}", "got {problem!z}, expected one of {problem}"),
        ("{problem:{head}}", "got {problem:{head}}, expected one of {problem}"),
        ("{", "braces"),
    ],
)
def test_a_wording_that_cannot_be_filled_is_refused(template, message):
    with pytest.raises(ValidationError) as refused:
        CodeGeneration.Options(wording={"main": template})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "rewritten",
    ["def cipher(s):\n    return s", "cipher = str", "from builtins import str as cipher"],
)
def test_nobody_passes_by_writing_anew_what_the_problem_gives_and_its_tests_use(sandbox, rewritten):
    row = {
        "prompt": (
            "def cipher(s):\n    return s[::-1]\n\n\ndef decipher(s):\n    '''Undo cipher.'''\n"
        ),
        "entry_point": "decipher",
        "test": (
            "def check(candidate):\n    assert candidate(cipher('abc')) == 'abc'\n"
            "    assert candidate('no') == 'on'\n"
        ),
    }
    aux, right = "def aux(s):\n    return s[::-1]", "def decipher(s):\n    return aux(s)[:]"
    _, (honest,) = play(made(sandbox), (aux, right), row=row)
    assert honest.terms["success"] == 1.0
    idle = "def decipher(s):\n    return aux(s)[::-1]"
    for helper, main in ((f"{rewritten}\n\n{aux}", idle), (aux, f"{rewritten}\n\n{idle}")):
        _, (cheat,) = play(made(sandbox), (helper, main), row=row)
        assert (cheat.terms["parses"], cheat.terms["tests_passed"]) == (1.0, 0.0)


@pytest.mark.parametrize("field", ["prompt", "test"])
def test_a_package_that_no_program_may_import_is_said_before_everybody_fails_for_it(sandbox, field):
    row = {**ROW, field: f"import os.path, numpy.linalg as la\n{ROW[field]}"}
    with pytest.raises(ConfigError, match=r"imports numpy, .*sandbox\.packages: \[numpy\]"):
        made(sandbox).task(row)
    with Sandbox(workers=1, packages=["numpy"]) as richer:
        assert made(richer).task(row).id == ROW["task_id"]


def test_a_row_that_is_no_problem_is_refused(sandbox):
    with pytest.raises(
        ConfigError, match=facts("question … expected … problem … prompt, entry_point")
    ):
        made(sandbox).task({"question": "?"})


def test_a_problem_that_asks_for_aux_itself_is_refused(sandbox):
    row = {**ROW, "prompt": PROMPT.replace("total", "aux"), "entry_point": "aux"}
    with pytest.raises(
        ConfigError,
        match=facts("problem t/1 … 'aux' … name of a helper"),
    ):
        made(sandbox).task(row)
    assert made(sandbox, helpers=0).task(row).id == "t/1"


def test_a_broken_sandbox_is_a_fault_and_never_a_zero():
    class Broken:
        packages = ()

        async def judge(self, sources, suite):
            raise SandboxFault("gone")

    with pytest.raises(SandboxFault):
        play(made(Broken()), (AUX, MAIN))


# ------------------------------------------------------------ turns


def test_the_episode_ends_when_all_tests_pass_or_with_the_last_turn(sandbox):
    assert play(made(sandbox, turns=2), (AUX, MAIN))[1][0].done
    assert [t.done for t in play(made(sandbox, turns=2), (AUX, WRONG), (AUX, WRONG))[1]] == [
        False,
        True,
    ]
    assert not play(made(sandbox, turns=2, stop_when_solved=False), (AUX, MAIN))[1][0].done


@pytest.mark.parametrize("mode", ["plain", "passed", "level_passed", "level_feedback"])
@pytest.mark.parametrize("history", ["own", "joint", "none"])
def test_by_default_no_prompt_shows_a_test_that_grades(sandbox, mode, history):
    prompts, _ = play(
        made(sandbox, turns=3, feedback={"mode": mode}, history=history), (AUX, WRONG), (AUX, WRONG)
    )
    for prompt in (prompt for turn in prompts for prompt in turn.values()):
        for test in GRADING:
            assert test not in text_of(prompt)
            assert test.replace("total", "candidate") not in text_of(prompt)


def test_the_examples_of_the_task_are_what_feedback_shows(sandbox):
    prompts, _ = play(made(sandbox, turns=2), (AUX, WRONG))
    told = prompts[1]["main"][-1].content
    assert "- Failed: assert total([7]) == 49" in told
    assert "- OK: `total` calls `aux`" in told
    assert prompts[1]["main"][:-1] == (prompts[0]["main"][0], Message("assistant", WRONG))


def test_an_example_that_the_known_solution_shows_wrong_is_not_held_against_anybody(sandbox):
    row = {**ROW, "prompt": PROMPT.replace("    49\n", "    49\n    >>> total([2])\n    5\n")}
    prompts, _ = play(made(sandbox, turns=2), (AUX, WRONG), row=row)
    assert "assert total([7]) == 49" in text_of(prompts[1]["main"])
    assert "assert total([2]) == 5" not in text_of(prompts[1]["main"])
    unsolved = {field: value for field, value in row.items() if field != "canonical_solution"}
    prompts, _ = play(made(sandbox, turns=2), (AUX, WRONG), row=unsolved)
    assert "- Failed: assert total([2]) == 5" in text_of(prompts[1]["main"])


def test_a_slice_shows_tests_and_takes_them_out_of_the_grading(sandbox):
    only_first = "def total(xs):\n    return 0 if not xs else aux(xs) and 1"
    prompts, (transition,) = play(
        made(sandbox, turns=2, feedback={"sandbox_slice": 1}), (AUX, only_first)
    )
    assert transition.terms["tests_passed"] == 0.0
    told = text_of(prompts[1]["main"])
    assert GRADING[0] in told
    assert not any(test in told for test in GRADING[1:])
    graded = {"sandbox_slice": 1, "grade_shown": True}
    assert (
        play(made(sandbox, turns=2, feedback=graded), (AUX, only_first))[1][0].terms["tests_passed"]
        == 0.25
    )
    last = {"sandbox_slice": -2}
    assert GRADING[3] in text_of(
        play(made(sandbox, turns=2, feedback=last), (AUX, WRONG))[0][1]["helper"]
    )


def test_a_problem_with_one_test_keeps_it_for_grading(sandbox):
    row = {**ROW, "test": "def check(candidate):\n    assert candidate([3]) == 9\n"}
    prompts, _ = play(made(sandbox, turns=2, feedback={"sandbox_slice": 1}), (AUX, WRONG), row=row)
    assert GRADING[1] not in text_of(prompts[1]["main"])


def test_tests_that_the_prompt_shows_may_be_left_out_of_the_grading(sandbox):
    row = {**ROW, "test": f"{CHECK}    assert candidate([7]) == 49\n"}
    look_up = (AUX, "def total(xs):\n    return 49 if xs == [7] else None")
    for grade, share in ((True, 0.2), (False, 0.0)):
        _, (paid,) = play(made(sandbox, grade_examples=grade), look_up, row=row)
        assert paid.terms["tests_passed"] == share
    _, (paid,) = play(made(sandbox, grade_examples=False), (AUX, MAIN), row=row)
    assert paid.terms["success"] == 1.0


def test_neither_hears_the_other_unless_history_is_joint(sandbox):
    own, _ = play(made(sandbox, turns=2), (AUX, WRONG))
    assert "len(aux(xs))" not in text_of(own[1]["helper"])
    joint, _ = play(made(sandbox, turns=2, history="joint"), (AUX, WRONG))
    assert "len(aux(xs))" in text_of(joint[1]["helper"])
    alone, _ = play(made(sandbox, turns=2, history="none"), (AUX, WRONG))
    assert len(alone[1]["helper"]) == 1
    assert "Sum of squares" in text_of(alone[1]["helper"])


def test_raw_prompts_of_later_turns_are_programs_too(sandbox):
    prompts, _ = play(
        made(sandbox, turns=2, prompts="raw"), ("    return xs\n", "    return len(aux(xs))\n")
    )
    main = prompts[1]["main"]
    assert main.endswith("\ndef total(xs: List[int]) -> int:\n")
    assert "# - Failed: assert total([7]) == 49" in main
    compile(f"{main}    return 0\n", "main", "exec")


def test_after_the_last_turn_nobody_is_asked_and_nothing_more_is_run():
    class Counting:
        packages, judged = (), 0

        async def judge(self, sources, suite):
            self.judged += 1
            return Verdict(
                tuple(CaseResult(suite.cases[index].name, "failed") for index in suite.chosen)
            )

    class Person:
        asked = 0

        async def ask(self, question):
            self.asked += 1
            return "Try harder."

    judge, person = Counting(), Person()
    environment = made(judge, turns=2, person=person, feedback={"mode": "human"})
    prompts, _ = play(environment, (AUX, WRONG), (AUX, WRONG))
    assert (judge.judged, person.asked) == (3, 1)
    assert "Try harder." in text_of(prompts[1]["helper"])


# ------------------------------------------------------------ right answers


@pytest.mark.parametrize("options", [{}, {"helpers": 0}, {"helpers": 2}, {"prompts": "raw"}])
def test_the_known_solution_shared_out_earns_success(sandbox, options):
    environment = made(sandbox, **options)
    state = asyncio.run(environment.start(environment.task(ROW), 0))
    texts = environment.solve(state, 0)
    _, (transition,) = play(environment, [texts[agent] for agent in environment.agents])
    assert transition.terms["success"] == 1.0


def test_a_problem_without_a_solution_says_so(sandbox):
    environment = made(sandbox)
    row = {key: value for key, value in ROW.items() if key != "canonical_solution"}
    with pytest.raises(EnvironmentFault, match=facts("t/1 has no solution")):
        environment.solve(asyncio.run(environment.start(environment.task(row), 0)), 0)


def test_an_answer_is_the_whole_program_whatever_its_layout(sandbox):
    environment = made(sandbox)
    task = environment.task(ROW)
    plain = environment.answer(task, {"helper": AUX, "main": MAIN})
    again = {
        "helper": f"```python\n{AUX}  # squares\n```",
        "main": 'def total(xs):\n  """Doc."""\n\n  return (sum(aux(xs)))\nprint(1)',
    }
    assert environment.answer(task, again) == plain
    assert environment.answer(task, {"helper": AUX, "main": WRONG}) != plain
    assert environment.answer(task, {"helper": AUX, "main": "Sorry."}) is None


def test_it_keeps_every_rule_of_an_environment(sandbox):
    for environment in (
        made(sandbox),
        made(sandbox, turns=2, helpers=2, history="joint"),
        made(sandbox, prompts="raw"),
    ):
        checked = str(check_environment(environment, [environment.task(ROW)]))
        assert "have success 1" in checked
        assert "alone()" in checked


@pytest.mark.parametrize(
    ("data", "stride"), [("humaneval/test.jsonl", 20), ("mbpp/train.jsonl", 70)]
)
def test_benchmark_solutions_pass_and_emptied_ones_do_not(sandbox, data, stride):
    if not (DATA / data).is_file():
        pytest.skip(f"{DATA / data} is not there: benchmark data is not part of the project")
    environment = made(sandbox)
    for row in [json.loads(line) for line in (DATA / data).read_text().splitlines()][::stride]:
        texts = environment.solve(asyncio.run(environment.start(environment.task(row), 0)), 0)
        _, (right,) = play(environment, (texts["helper"], texts["main"]), row=row)
        assert right.terms["success"] == 1.0, row["task_id"]
        _, (emptied,) = play(
            environment, ("def aux(*xs, **ys):\n    return None", texts["main"]), row=row
        )
        assert emptied.terms["success"] == 0.0, row["task_id"]


def test_feedback_that_breaks_is_a_fault(sandbox):
    class Gone:
        async def ask(self, question):
            raise EnvironmentFault("nobody is there any more")

    with pytest.raises(EnvironmentFault, match="nobody is there"):
        play(made(sandbox, turns=2, person=Gone(), feedback={"mode": "human"}), (AUX, WRONG))
