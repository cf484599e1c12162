"""HouseBuild: two agents fill a house layer by layer, with limited resources and under attack.

Spiders hurt the team unless one agent gives the command /kill. The task, the reward and the
feedback are those of LLM_Collab_Minecraft; docs/minecraft.md lists the differences.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from pydantic import Field, NonNegativeInt, model_validator

from motet.core import Drawing, Environment, Prompt, Reply, Task, Transition
from motet.environments.history import Exchange
from motet.environments.splits import part_of
from motet.errors import EnvironmentFault
from motet.settings import Settings
from motet_tasks.minecraft.house_feedback import Built, HouseFeedback, house_told
from motet_tasks.minecraft.houses import House, Rectangle, generated_houses, read_house
from motet_tasks.minecraft.turns import (
    AGAIN,
    BuildOptions,
    BuildState,
    joined,
    listed,
    paid,
    prompts_of,
    team_of,
)
from motet_tasks.rewards.buildings import score_house, stock_of
from motet_tasks.rewards.minecraft import (
    BlockMap,
    BuildRules,
    Orders,
    block_name,
    build,
    is_air,
    read_orders,
)

HOUSES = (48, 12)
"""Generated houses of `train` and `eval`."""


class Spiders(Settings):
    """The attackers. Their attacks are drawn once, so they are the same in every episode."""

    count: NonNegativeInt = Field(0, le=100)
    """Number of spiders."""
    attack: tuple[int, int] = (0, 0)
    """The least and the most damage of one spider."""
    seed: int = 0
    """Draws the attacks. The published code draws them with the seed of the run."""

    @model_validator(mode="after")
    def _check_attack(self) -> Self:
        if not 0 <= self.attack[0] <= self.attack[1]:
            raise ValueError(f"got attack {self.attack}; expected two numbers, 0 <= least <= most")
        return self

    @property
    def attacks(self) -> list[int]:
        draw = random.Random(self.seed)
        return [draw.randint(*self.attack) for _ in range(self.count)]


class HouseBuild(Environment[BuildState]):
    """Every turn is a whole build. All agents get the same reward.

    An episode ends with a perfect build (see `stop_when_solved`), or after the last of `turns`.
    """

    branches = True

    class Options(BuildOptions):
        """Options of HouseBuild."""

        palettes: tuple[tuple[str, ...], ...] | None = None
        """The blocks of builder1 and of builder2. If unset, both have all blocks of the house."""
        limited_resources: bool = True
        """Whether each agent may place only its share of each block, and half as much again."""
        show_air: bool = False
        """Whether prompts also list the rectangles of air."""
        health: NonNegativeInt = 20
        """What the spiders' damage is compared with."""
        spiders: Spiders = Spiders()
        """The attackers."""
        feedback: HouseFeedback = HouseFeedback()
        """What agents are told between turns."""

        @model_validator(mode="after")
        def _check_options(self) -> Self:
            if self.palettes is not None and len(self.palettes) < self.builders:
                raise ValueError(
                    f"got {len(self.palettes)} palettes for {self.builders} builders; expected one "
                    "for each"
                )
            if self.feedback.mode == "resource_schedule" and not self.limited_resources:
                raise ValueError(
                    "got feedback mode resource_schedule without limited_resources; it says what "
                    "is left of them: set limited_resources: true, or another mode"
                )
            return self

    def __init__(self, options: Options, *, turns: int = 1) -> None:
        """`turns` is the number of turns per task."""
        self.options = options
        self.agents: Sequence[str] = options.agents
        self._turns = turns

    def alone(self) -> "HouseBuild":
        """Return the same houses for one agent with the first palette."""
        alone = self.options.model_copy(update={"builders": 1})
        return HouseBuild(alone, turns=self._turns)

    def tasks(self, split: str) -> list[Task]:
        """Return the generated houses of `train` or `eval`, always the same ones."""
        rows = generated_houses(sum(HOUSES))
        parts = {"train": rows[: HOUSES[0]], "eval": rows[HOUSES[0] :]}
        return [self.task(row) for row in part_of("house_build", parts, split)]

    def task(self, row: Mapping[str, Any]) -> Task:
        """Raises: ConfigError if the row is no house."""
        return read_house(row)

    async def start(self, task: Task, seed: int) -> BuildState:
        house = House.load(task.fields)
        asked = {agent: self._first_prompt(agent, house) for agent in self.agents}
        return BuildState(task.fields, asked)

    def observe(self, state: BuildState) -> Mapping[str, Prompt]:
        return prompts_of(state, self.options, self.options.feedback)

    async def step(self, state: BuildState, replies: Mapping[str, Reply], seed: int) -> Transition:
        house = House.load(state.fields)
        exchange = Exchange(state.asked, {agent: replies[agent].text for agent in self.agents})
        following = replace(state, turns=(*state.turns, exchange))
        built = self._build(house, exchange.replies)
        rejected = sum(one.rejected for one in built.orders.values())
        result = paid(following, self.options, built.score, rejected, self._turns)
        if result.done:
            return result
        asked = {
            agent: joined([*house_told(agent, built, self.options.feedback), AGAIN])
            for agent in self.agents
        }
        return replace(result, state=replace(following, asked=asked))

    def _build(self, house: House, texts: Mapping[str, str]) -> Built:
        blocks = {agent: frozenset(map(block_name, self._palette(agent, house))) for agent in texts}
        stock = self._stock(house)
        orders: dict[str, Orders] = {}
        for agent, text in texts.items():
            most = self.options.most_commands[agent]
            rules = BuildRules("fill", blocks[agent], house.box, most, stock, kill=True)
            orders[agent] = read_orders(text, rules)
        world = build(orders.values())
        score = score_house(
            house.target,
            world,
            damage=sum(self.options.spiders.attacks),
            health=self.options.health,
            killed=any(one.kills for one in orders.values()),
        )
        return Built(house, orders, world, score, blocks, stock, self.options.most_commands)

    def _palette(self, agent: str, house: House) -> list[str]:
        """Return the blocks of an agent, each once."""
        palettes = self.options.palettes
        given = house.inventory.values() if palettes is None else palettes[self.agents.index(agent)]
        return list(dict.fromkeys(given))

    def _stock(self, house: House) -> dict[str, int]:
        return stock_of(house.counts, len(self.agents)) if self.options.limited_resources else {}

    # ------------------------------------------------------------ prompts

    def _first_prompt(self, agent: str, house: House) -> str:
        layers = "\n".join(
            f"y = {y}: {', '.join(rectangles) or '(only air)'}"
            for y, rectangles in self._by_layer(house).items()
        )
        if self.options.prompts == "raw":
            return f"{layers}\n{agent}\n"
        low, high = house.box.low, house.box.high
        parts = [
            team_of(agent, self.options.builders, "one house"),
            "Its layers, from the ground up, as rectangles (x1, y, z1, x2, y, z2 block). "
            f"Everything else is air:\n{layers}",
            f"The area, corners included: from {low} to {high}.",
            listed("Your blocks:", self._palette(agent, house)),
            self._resources(house),
            self._threat(),
            "Answer with commands only, one per line, with whole numbers:\n"
            "/fill x1 y1 z1 x2 y2 z2 block\n/kill",
        ]
        return joined(parts)

    def _by_layer(self, house: House) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {
            y: [] for y in range(house.box.low[1], house.box.high[1] + 1)
        }
        for one in house.rectangles:
            if self.options.show_air or not is_air(one.block):
                corners = (one.x1, one.y, one.z1, one.x2, one.y, one.z2)
                found[one.y].append(f"({', '.join(map(str, corners))} {one.block})")
        return found

    def _resources(self, house: House) -> str:
        stock = self._stock(house)
        if not stock:
            return ""
        return listed(
            "You may place at most this many blocks, and any amount of air:",
            (f"{block}: {count}" for block, count in stock.items()),
        )

    def _threat(self) -> str:
        attacks = self.options.spiders.attacks
        if not attacks:
            return ""
        return (
            f"{len(attacks)} spiders are near. The team has {self.options.health} health; their "
            f"attacks are {attacks}, {sum(attacks)} in all. The command /kill, given by one agent, "
            "kills them."
        )

    # ------------------------------------------------------------ right answers

    def solve(self, state: BuildState, seed: int) -> dict[str, str]:
        """Return the rectangles of the house, divided so that no agent needs more than it may
        place. builder1 kills the spiders.

        Raises: EnvironmentFault if resources, palettes or max_commands do not allow the house.
        """
        house = House.load(state.fields)
        stock = {**house.counts, **self._stock(house)}
        left = {
            agent: {block: count * (block in allowed) for block, count in stock.items()}
            for agent in self.agents
            for allowed in [{*map(block_name, self._palette(agent, house))}]
        }
        parts: dict[str, list[str]] = {agent: [] for agent in self.agents}
        parts[self.agents[0]].append("/kill")
        for one in house.rectangles:
            if is_air(one.block):
                continue
            fits = any(left[agent][one.block] >= one.cells for agent in self.agents)
            for piece in [one] if fits else _single_cells(one):
                taker = max(self.agents, key=lambda agent: left[agent][piece.block])
                left[taker][piece.block] -= piece.cells
                parts[taker].append(_fill(piece))
        texts = {agent: "\n".join(lines) for agent, lines in parts.items()}
        if self._build(house, texts).score.success is False:
            raise EnvironmentFault(
                "no known division of this house keeps to the agents' resources, palettes and "
                "max_commands: allow more of them"
            )
        return texts

    def drawing(self, task: Task, texts: Mapping[str, str]) -> Drawing:
        """Return one panel per layer. The front of the house is the top row."""
        house = House.load(task.fields)
        world = self._build(house, texts).world
        return Drawing([_layers("target", house, house.target), _layers("result", house, world)])


def _layers(title: str, house: House, world: BlockMap) -> dict[str, list[list[str]]]:
    (left, low, front), (right, top, back) = house.box.low, house.box.high
    blocks = {position: "" if is_air(block) else block for position, block in world.items()}
    return {
        f"{title} y = {y}": [
            [blocks.get((x, y, z), "") for x in range(left, right + 1)]
            for z in range(front, back + 1)
        ]
        for y in range(low, top + 1)
    }


def _single_cells(one: Rectangle) -> list[Rectangle]:
    return [Rectangle(y, x, z, x, z, one.block) for x, y, z in one.area]


def _fill(one: Rectangle) -> str:
    return f"/fill {one.x1} {one.y} {one.z1} {one.x2} {one.y} {one.z2} {one.block}"
