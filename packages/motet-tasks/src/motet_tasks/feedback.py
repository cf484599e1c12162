"""External feedback: what the agents of a coding task read between two turns.

A mode is a function of an Attempt (feedback_modes.py), or a user's own function.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import model_validator

from motet.clients.http_client import EndpointFault
from motet.errors import ConfigError, EnvironmentFault
from motet.settings import Settings
from motet.user_code.plugins import is_reference, load_object, nearest
from motet.user_code.threads import call
from motet_tasks.feedback_modes import (
    MODES,
    WITHOUT_TESTS,
    Attempt,
    ExpertModel,
    FeedbackText,
    Mode,
    Person,
    expert_edits,
    human,
    joined,
)


class FeedbackOptions(Settings):
    """External feedback between turns."""

    mode: str = "level_feedback"
    """plain, passed, level_passed, level_feedback, expert_edits, human, or a custom function:
    package.module:NAME or ./file.py:NAME."""
    sandbox_slice: int | Literal["all"] = 0
    """How many of the grading tests may be shown. N: the first N. -N: the last N. all: every test.
    0: none; then the examples in the task's own text are shown instead."""
    grade_shown: bool = False
    """Whether shown tests still grade. If not, at least one test is kept hidden for grading."""
    restate_problem: bool | None = None
    """Whether later prompts repeat the task. If unset, only under history: none, where the prompt
    would not contain it otherwise."""
    restate_answer: bool | None = None
    """Whether later prompts repeat the agent's last answer. If unset, only under history: none."""

    @model_validator(mode="after")
    def _something_grades(self) -> Self:
        if self.sandbox_slice == "all" and not self.grade_shown:
            raise ValueError(
                "sandbox_slice all shows every test, and with grade_shown false no shown test "
                "grades: set grade_shown: true, or a smaller slice"
            )
        return self

    def divide(self, tests: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return which of the tests 0 to `tests` - 1 may be shown, and which of them grade."""
        everything = tuple(range(tests))
        if self.sandbox_slice == "all":
            return everything, everything
        count = min(abs(self.sandbox_slice), tests if self.grade_shown else max(0, tests - 1))
        shown = everything[:count] if self.sandbox_slice > 0 else everything[tests - count :]
        return shown, everything if self.grade_shown else tuple(
            index for index in everything if index not in shown
        )


class ExpertFault(EnvironmentFault):
    """The expert model returned no answer, or one that could not be read."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = f"expert_{cause}"


class Feedback:
    """Gives feedback in one mode."""

    def __init__(
        self,
        options: FeedbackOptions,
        *,
        expert: ExpertModel | None = None,
        person: Person | None = None,
    ) -> None:
        """Raises: ConfigError if the mode is unknown, if it needs an expert or a person that is
        missing, or if there is an expert that it does not ask."""
        self.name = options.mode
        self.reads_tests = options.mode not in WITHOUT_TESTS
        """Whether this mode uses the tests that may be shown and their results."""
        self._mode = _mode(options.mode, expert, person)

    async def give(self, attempt: Attempt) -> dict[str, str]:
        """Return each agent's feedback, with the request to revise.

        Raises: EnvironmentFault if the mode failed, for example because the expert did not answer.
        """
        feedback = await self._ask(attempt)
        texts = dict.fromkeys(attempt.writes, feedback) if isinstance(feedback, str) else feedback
        return {
            agent: joined(texts[agent] if agent in texts else "", _revise(what))
            for agent, what in attempt.writes.items()
        }

    async def _ask(self, attempt: Attempt) -> FeedbackText:
        try:
            feedback = await call(self._mode, attempt)
        except EndpointFault as fault:
            raise ExpertFault(fault.cause, f"feedback {self.name}: {fault}") from fault
        except EnvironmentFault:
            raise
        except Exception as error:
            raise EnvironmentFault(
                f"feedback {self.name}: {type(error).__name__}: {error}"
            ) from error
        return _checked(feedback, self.name, attempt.writes)


def _checked(feedback: Any, name: str, agents: Mapping[str, str]) -> FeedbackText:
    if isinstance(feedback, str):
        return feedback
    if not isinstance(feedback, Mapping) or not all(
        isinstance(text, str) for text in feedback.values()
    ):
        got = f"{type(feedback).__name__} {feedback!r}"[:200]
        raise EnvironmentFault(
            f"feedback {name} returned {got}; expected a string, or a string per agent"
        )
    unknown = [agent for agent in feedback if agent not in agents]
    if unknown:
        raise EnvironmentFault(
            f"feedback {name} names agent {unknown[0]!r}; the agents are {', '.join(agents)}"
        )
    return feedback


def _mode(name: str, expert: ExpertModel | None, person: Person | None) -> Mode:
    if name == "expert_edits":
        if expert is None:
            raise ConfigError(
                "feedback.mode is expert_edits, but the config has no expert: add a section with "
                "at least\nexpert: {base_url: http://localhost:8000/v1, model: NAME}"
            )
        return lambda attempt: expert_edits(attempt, expert)
    if expert is not None:
        raise ConfigError(
            f"feedback.mode is {name}, so the expert is never used: set feedback.mode: "
            "expert_edits, or drop expert"
        )
    if name == "human":
        if person is None:
            raise ConfigError(
                "feedback.mode is human, but there is no terminal: start the command in a "
                "terminal, or choose another mode"
            )
        return lambda attempt: human(attempt, person)
    if name in MODES:
        return MODES[name]
    return _own(name)


def _own(name: str) -> Mode:
    if not is_reference(name):
        known = (*MODES, "expert_edits", "human")
        raise ConfigError(
            f"feedback.mode is {name!r}{nearest(name, known)}; expected one of {', '.join(known)}, "
            f"package.module:NAME or ./file.py:NAME"
        )
    try:
        found = load_object(name)
    except ConfigError as error:
        raise ConfigError(f"feedback.mode: {error}") from error
    if isinstance(found, type) or not callable(found):
        raise ConfigError(
            f"feedback.mode is {name!r}, which is not a function; expected def "
            f"{name.rpartition(':')[2]}(attempt): ..."
        )
    mode: Mode = found
    return mode


def _revise(what: str) -> str:
    return f"Revise {what}: write all of it again, in the same form as before."
