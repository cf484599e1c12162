"""Two agents answer one request; the second answer should be two to three times as long.

The reward counts characters only, so nothing of what is said matters. It is the smallest task with
a joint reward that any language model can learn. The rules are those of two examples of CoMLRL
(examples/story-len-ratio.py and tldr-len-ratio.py).
"""

import random
from collections.abc import Mapping, Sequence
from math import exp
from typing import Any, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.errors import ConfigError
from motet.settings import Settings
from motet.user_code.plugins import nearest
from motet_tasks.scaling import Scaling

SHORT, LONG = "short", "long"
FORMS = ("Write a story about", "Write a poem about", "Describe", "Explain to a child")
SUBJECTS = (
    "a lighthouse in the desert",
    "a clock that runs backwards",
    "the last bakery on Mars",
    "a dog that can read",
    "a library under the sea",
    "a train without rails",
    "the first snow of the year",
    "a city on a bridge",
)
SOLVED = 0.99
"""The least share of the highest reward that counts as success."""


class LengthRatio(Environment[str]):
    """One turn. Both agents get the same reward. The state is the request."""

    branches = True
    most_turns = 1

    class Options(Settings):
        """Options of the length ratio environment."""

        least: PositiveFloat = 2.0
        """Minimum length of the long answer, as a multiple of the short one's."""
        most: PositiveFloat = 3.0
        """Maximum length of the long answer, as a multiple of the short one's."""
        short_characters: PositiveInt | None = None
        """Also reward how close the short answer is to this many characters; then the score is from
        -1 to 1 and linear. Without it, the score is from 0 to 1: exp(-distance to the range)."""
        told: bool = False
        """Whether the prompts say how long the answers should be."""
        field: str = "prompt"
        """The field of a row that holds the request."""
        reward: Scaling = Scaling()
        """Maps the score to the reward."""
        held_out: float = Field(0.25, gt=0.0, lt=1.0)
        """Share of the embedded requests that are held out."""

        @model_validator(mode="after")
        def _range(self) -> Self:
            if self.most <= self.least:
                raise ValueError(f"most {self.most} is not above least {self.least}: raise it")
            return self

    def __init__(self, options: Options) -> None:
        self.options = options
        self.agents: Sequence[str] = (SHORT, LONG)

    def tasks(self, split: str) -> list[Task]:
        """Return the embedded requests of `train` or `eval`, always the same."""
        requests = [f"{form} {subject}." for form in FORMS for subject in SUBJECTS]
        random.Random(0).shuffle(requests)
        held_out = int(len(requests) * self.options.held_out)
        parts = {"train": requests[held_out:], "eval": requests[:held_out]}
        if split not in parts:
            raise ConfigError(f"no split {split!r}; expected one of {', '.join(parts)}")
        return [Task(request, {"request": request}) for request in parts[split]]

    def task(self, row: Mapping[str, Any]) -> Task:
        """Raises: ConfigError if the row has no request."""
        name = self.options.field
        if name not in row:
            raise ConfigError(
                f"a row has no field {name!r}{nearest(name, row)}; it has {', '.join(row)}: name "
                "the field in environment.field"
            )
        text = row[name]
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"a row has {text!r} as its {name!r}; expected a text")
        return Task(text, {"request": text})

    def chat_task(self, text: str) -> Task:
        return self.task({self.options.field: text})

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return both answers, the short one first."""
        return "\n\n".join(texts[agent].strip() for agent in self.agents)

    async def start(self, task: Task, seed: int) -> str:
        request: str = task.fields["request"]
        return request

    def observe(self, state: str) -> Mapping[str, Prompt]:
        return {agent: (Message("user", state + self._wish(agent)),) for agent in self.agents}

    async def step(self, state: str, replies: Mapping[str, Reply], seed: int) -> Transition:
        short, long = (len(replies[agent].text.rstrip()) for agent in self.agents)
        score = self._score(short, long)
        success = float(score >= SOLVED)
        ratio = long / short if short else 0.0
        metrics = {"ratio": ratio, "score": score, "success": success}
        rewards = dict.fromkeys(self.agents, self.options.reward.reward(score))
        return Transition(state, rewards, done=True, metrics=metrics, success=success)

    def solve(self, state: str, seed: int) -> dict[str, str]:
        """Return two texts of fitting lengths."""
        length = self.options.short_characters or 20
        ratio = (self.options.least + self.options.most) / 2
        return {SHORT: "a" * length, LONG: "a" * round(ratio * length)}

    def _wish(self, agent: str) -> str:
        if not self.options.told:
            return ""
        if agent == LONG:
            least, most = self.options.least, self.options.most
            return f"\n\nWrite {least:g} to {most:g} times as much as usual."
        length = self.options.short_characters
        return "\n\nBe brief." if length is None else f"\n\nUse about {length} characters."

    def _score(self, short: int, long: int) -> float:
        """Return the score of two lengths in characters."""
        least, most, target = self.options.least, self.options.most, self.options.short_characters
        if target is None:
            if short == 0:
                return 0.0
            return exp(-_distance(long / short, least, most))
        if short == 0 or long == 0:
            return -1.0
        ratio = long / short
        bound = least if ratio < least else most
        fit = max(-1.0, 1.0 - _distance(ratio, least, most) / bound)
        near = max(-1.0, 1.0 - abs(short - target) / max(target / 2, 1.0))
        return 0.5 * (fit + near)


def _distance(ratio: float, least: float, most: float) -> float:
    """Return the distance of a ratio to its range."""
    return max(least - ratio, ratio - most, 0.0)
