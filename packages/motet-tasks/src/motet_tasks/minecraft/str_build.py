"""StrBuild: two agents place blocks so that a word appears, and no two adjacent blocks look alike.

Each agent has blocks of its own and sees only the target. The commands of `builder2` run after
those of `builder1`. The task, the reward and the feedback are those of LLM_Collab_Minecraft;
docs/minecraft.md lists the differences.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, model_validator

from motet.core import Demonstration, Drawing, Environment, Prompt, Reply, Task, Transition
from motet.environments.history import Exchange
from motet.environments.splits import part_of
from motet.errors import EnvironmentFault
from motet_tasks.minecraft.pictures import (
    SCHEMES,
    Picture,
    generated_patterns,
    generated_words,
    read_picture,
)
from motet_tasks.minecraft.turns import (
    AGAIN,
    BuildFeedback,
    BuildOptions,
    BuildState,
    at,
    joined,
    listed,
    paid,
    prompts_of,
    score_told,
    team_of,
)
from motet_tasks.rewards.buildings import BuildScore
from motet_tasks.rewards.minecraft import (
    BuildRules,
    Orders,
    Position,
    block_name,
    build,
    is_air,
    read_orders,
)

WORDS, PATTERNS = (192, 48), (960, 240)
"""Generated tasks of `train` and `eval`."""


class PictureFeedback(BuildFeedback):
    """What agents are told between turns."""

    mode: Literal["score_feedback", "position_feedback", "perfect_feedback"] = "score_feedback"
    """score_feedback: the score. position_feedback: the positions of all blocks. perfect_feedback:
    which cells each agent must correct, as published."""


class StrBuild(Environment[BuildState]):
    """Every turn is a whole build. All agents get the same reward.

    An episode ends with a perfect build (see `stop_when_solved`), or after the last of `turns`.
    """

    branches = True

    class Options(BuildOptions):
        """Options of StrBuild."""

        palettes: tuple[tuple[str, ...], ...] = (
            ("oak_planks", "stone"),
            ("white_concrete", "obsidian"),
        )
        """The blocks of builder1 and of builder2. A single builder has the first palette."""
        show_target: bool = True
        """Whether first prompts show the target. Without it, agents know only its size."""
        feedback: PictureFeedback = PictureFeedback()
        """What agents are told between turns."""
        spacing: NonNegativeInt = Field(1, le=100)
        """Empty columns between two letters."""
        z: int = Field(0, ge=-1_000_000, le=1_000_000)
        """The z of all blocks."""
        letters: int = Field(4, ge=2, le=8)
        """Maximum length of generated words."""
        size: tuple[int, int] | None = None
        """Width and height of random patterns, which are generated instead of words."""

        @model_validator(mode="after")
        def _check_palettes(self) -> Self:
            if len(self.palettes) < self.builders:
                raise ValueError(
                    f"got {len(self.palettes)} palettes for {self.builders} builders; expected one "
                    "for each"
                )
            if any(all(map(is_air, palette)) for palette in self.palettes):
                raise ValueError(
                    "got a palette without blocks; expected at least one that is no air"
                )
            if self.size is not None and not all(2 <= side <= 16 for side in self.size):
                raise ValueError(f"got size {self.size}; expected a width and a height of 2 to 16")
            return self

    def __init__(self, options: Options, *, turns: int = 1) -> None:
        """`turns` is the number of turns per task."""
        self.options = options
        self.agents: Sequence[str] = options.agents
        self.palettes = options.palettes[: options.builders]
        self._turns = turns

    def alone(self) -> "StrBuild":
        """Return the same pictures for one agent with the first palette, as published."""
        alone = self.options.model_copy(update={"builders": 1})
        return StrBuild(alone, turns=self._turns)

    def tasks(self, split: str) -> list[Task]:
        """Return the generated words or patterns of `train` or `eval`, always the same ones."""
        size = self.options.size
        train, held_out = WORDS if size is None else PATTERNS
        rows = (
            generated_words(train + held_out, self.options.letters)
            if size is None
            else generated_patterns(train + held_out, size, self.options.palettes)
        )
        parts = {"train": rows[:train], "eval": rows[train:]}
        return [self.task(row) for row in part_of("str_build", parts, split)]

    def task(self, row: Mapping[str, Any]) -> Task:
        """Raises: ConfigError if the row is no word and no picture."""
        return read_picture(row, self.options.spacing, self.options.z)

    async def start(self, task: Task, seed: int) -> BuildState:
        return self._begin(task)

    def observe(self, state: BuildState) -> Mapping[str, Prompt]:
        return prompts_of(state, self.options, self.options.feedback)

    async def step(self, state: BuildState, replies: Mapping[str, Reply], seed: int) -> Transition:
        picture = _picture(state)
        exchange = Exchange(state.asked, {agent: replies[agent].text for agent in self.agents})
        following = replace(state, turns=(*state.turns, exchange))
        orders, world, score = self._build(picture, exchange.replies)
        rejected = sum(one.rejected for one in orders)
        result = paid(following, self.options, score, rejected, self._turns)
        if result.done:
            return result
        asked = {agent: self._told(agent, picture, world, score) for agent in self.agents}
        return replace(result, state=replace(following, asked=asked))

    def _build(
        self, picture: Picture, texts: Mapping[str, str]
    ) -> tuple[list[Orders], dict[Position, str], BuildScore]:
        orders = [self._read(picture, agent, texts[agent]) for agent in self.agents]
        world = build(orders)
        return orders, world, picture.score(world, self.palettes)

    def _begin(self, task: Task) -> BuildState:
        state = BuildState(task.fields, {})
        picture = _picture(state)
        return replace(
            state, asked={agent: self._first_prompt(agent, picture) for agent in self.agents}
        )

    def _read(self, picture: Picture, agent: str, text: str) -> Orders:
        blocks = frozenset(map(block_name, self._palette(agent)))
        most = self.options.most_commands[agent]
        return read_orders(text, BuildRules("setblock", blocks, picture.area, most))

    def _palette(self, agent: str) -> tuple[str, ...]:
        return self.palettes[self.agents.index(agent)]

    # ------------------------------------------------------------ prompts

    def _first_prompt(self, agent: str, picture: Picture) -> str:
        shown = self.options.show_target
        target = "\n".join(picture.rows) if shown else ""
        if self.options.prompts == "raw":
            return f"{target}\n{agent}\n" if shown else f"{agent}\n"
        (x, y, z), (right, top, _) = picture.area.low, picture.area.high
        parts = [
            team_of(agent, self.options.builders, "one picture of blocks"),
            f"The target. # is a block and . is air. The left column is x = {x}, the lowest row is "
            f"y = {y}:\n{target}\nNo block belongs where the target has air."
            if shown
            else "",
            f"The area, corners included: from ({x}, {y}, {z}) to ({right}, {top}, {z}). x grows "
            "to the right, y grows upwards, z is the same everywhere.",
            listed("Your blocks:", self._palette(agent)),
            "Two blocks that share a side must not look alike.",
            "Answer with commands only, one per line, with whole numbers:\n/setblock x y z block",
        ]
        return joined(parts)

    def _told(
        self, agent: str, picture: Picture, world: Mapping[Position, str], score: BuildScore
    ) -> str:
        match self.options.feedback.mode:
            case "score_feedback":
                return joined([score_told(score), AGAIN])
            case "position_feedback":
                return joined([*self._positions(agent, picture), AGAIN])
            case "perfect_feedback":
                return joined([*self._corrections(agent, picture, world), AGAIN])

    def _positions(self, agent: str, picture: Picture) -> list[str]:
        most = self.options.most_commands[agent]
        return [
            listed("The target has blocks at:", map(at, picture.target)),
            f"Choose about {max(1, len(picture.target) // 2)} of these positions, if possible no "
            f"two that share a side. You may give {most} commands.",
            listed("Your blocks:", self._palette(agent)),
        ]

    def _corrections(
        self, agent: str, picture: Picture, world: Mapping[Position, str]
    ) -> list[str]:
        number, expected = self.agents.index(agent), picture.expected(self.palettes)
        wrong = [
            position
            for position in picture.target
            if expected[position][0] == number
            and world.get(position) != block_name(expected[position][1])
        ]
        extra = sorted(set(world) - set(expected), key=lambda p: (-p[1], p[0]))
        parts = [listed("You should have placed another block at:", map(at, wrong))]
        if agent == self.agents[-1]:
            parts.append(listed("There should be air at:", map(at, extra)))
        return parts

    # ------------------------------------------------------------ right answers

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return a random agent's part under a random one of SCHEMES. It does not show the
        other's."""
        draw = random.Random(seed)
        state, agent = self._begin(task), draw.choice(self.agents)
        part = self._part(_picture(state), draw.choice(SCHEMES), agent)
        return Demonstration(agent, self.observe(state)[agent], part)

    def solve(self, state: BuildState, seed: int) -> dict[str, str]:
        """Return the parts of the first of SCHEMES with the best score.

        Raises: EnvironmentFault if none has it with these palettes and max_commands.
        """
        picture = _picture(state)
        for scheme in SCHEMES:
            texts = {agent: self._part(picture, scheme, agent) for agent in self.agents}
            if self._build(picture, texts)[2].success:
                return texts
        raise EnvironmentFault(
            f"no known division of {'/'.join(picture.rows)} has the best score with these palettes "
            "and max_commands: allow more of them"
        )

    def convention(self, task: Task, agent: str, text: str) -> str:
        """Return which of SCHEMES the reply follows, or `other`."""
        picture, number = _picture(self._begin(task)), self.agents.index(agent)
        built = build([self._read(picture, agent, text)])
        divided = ((scheme, picture.divided(scheme, self.palettes)[number]) for scheme in SCHEMES)
        return next((scheme for scheme, part in divided if part == built), "other")

    def drawing(self, task: Task, texts: Mapping[str, str]) -> Drawing:
        picture = _picture(self._begin(task))
        world = self._build(picture, texts)[1]
        target = [["target" if mark == "#" else "" for mark in row] for row in picture.rows]
        (left, low, z), (right, top, _) = picture.area.low, picture.area.high
        built = [
            [world.get((x, y, z), "") for x in range(left, right + 1)]
            for y in range(top, low - 1, -1)
        ]
        return Drawing([{"target": target}, {"result": built}])

    def _part(self, picture: Picture, scheme: str, agent: str) -> str:
        return self._said(picture.divided(scheme, self.palettes)[self.agents.index(agent)])

    def _said(self, part: Mapping[Position, str]) -> str:
        """Return the commands. The slash is optional, and saves a small model a token."""
        verb = "/setblock" if self.options.prompts == "chat" else "setblock"
        return "\n".join(f"{verb} {x} {y} {z} {block}" for (x, y, z), block in part.items())


def _picture(state: BuildState) -> Picture:
    return Picture(tuple(state.fields["rows"]), state.fields["z"])
