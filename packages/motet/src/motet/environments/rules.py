"""The rules of environments that `check_environment` tests."""

from enum import StrEnum


class Rule(StrEnum):
    AGENTS = "`agents` are unique names, and `branches` is True or False"
    TASKS = "tasks have unique ids and plain JSON fields, and no eval task is a train task"
    SURVIVES = "no reply raises an exception; a wrong answer is a result"
    OBSERVES = (
        "observe(state) returns a string or a chat of Messages for one or more known agents, and "
        "the same prompts if called again"
    )
    STARTS = (
        "start(task, seed) called twice gives states with equal prompts: every path of an "
        "environment with branches = False has a start of its own"
    )
    TRANSITION = "step returns a Transition with a reward for every agent, and finite numbers"
    SUCCESS = "the last transition has `success`, and it is always in [0, 1]"
    VALUE = "a state can be copied, and the copy equals it (use a frozen dataclass)"
    BRANCHES = "two steps from one state return equal transitions (otherwise set branches = False)"
    UNCHANGED = "step does not change its argument `state` (otherwise set branches = False)"
    IN_TIME = "no method takes longer than timeout_seconds, whether it awaits, computes or sleeps"
    ENDS = "every episode ends"
    SOLVED = (
        "the replies of solve(state, seed) have success 1, and there is one for every acting agent"
    )
    DEMONSTRATES = (
        "demonstrate(task, seed) returns a prompt and a string for a known agent, and the same "
        "for the same seed"
    )
    CONVENTION = "convention(task, agent, text) returns a string for any text"
    ANSWER = "answer(task, texts) returns a string or None for any texts, the same if called again"
    DRAWS = "drawing(task, texts) returns titled grids of names for any texts"
    ALONE = (
        "alone() returns an environment with one agent that follows these rules on the same tasks"
    )
