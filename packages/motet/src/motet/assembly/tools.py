"""The tools of a run's agents: from the names in a config, from its environment, from servers."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from motet.assembly.services import Services
from motet.config.schema import RunConfig
from motet.config.sections import McpServer
from motet.core import Environment, class_name
from motet.core.tools import Tool, wrong_tool
from motet.environments.free_form import FreeForm
from motet.environments.python_tool import PythonTool
from motet.environments.tool_use import ToolGame
from motet.environments.wrapper import Wrapper
from motet.errors import ConfigError
from motet.models.function_tools import tool
from motet.settings import ToolUse
from motet.user_code.plugins import load_object


def with_tools(
    config: RunConfig, environment: Environment[Any], services: Services
) -> tuple[Environment[Any], list[str]]:
    """Return the environment in which its agents may call their tools, and what there is to say
    about them. Without tools, it is the environment itself.

    Raises: ConfigError.
    """
    found: dict[str, list[Tool]] = {}
    said: list[str] = []
    for agent in environment.agents:
        own: list[Tool] = []
        for place, item in enumerate(config.team[agent].tools):
            where = f"team.{agent}.tools.{place}"
            more, notes = _tools(item, where, config, services)
            own += more
            said += notes
        for given in environment.tools.get(agent, ()):
            own.append(as_tool(given, f"{class_name(environment)}.tools of agent {agent}"))
        if own:
            _check_names(agent, own)
            if config.decode_of(agent).format is not None:
                raise ConfigError(
                    f"agent {agent} has tools and decode.format, which allows no call of them: "
                    "drop one (team.AGENT.decode.format=null, or team.AGENT.tools=[])"
                )
            found[agent] = own
    asking = asks_itself(environment)
    if asking is not None:
        asking.limits = config.tools
    if not found:
        if asking is None:
            _refuse_limits(config)
        return environment, []
    turns = len(config.rollout.samples)
    _check_turns(config, environment, found)
    game = ToolGame(environment, found, config.tools, turns)
    return game, [*_notes(config, found), *dict.fromkeys(said)]


def asks_itself(environment: Environment[Any]) -> FreeForm | None:
    """Return the program whose questions may offer tools, if the environment is one."""
    inner = environment
    while isinstance(inner, Wrapper):
        inner = inner.environment
    return inner if isinstance(inner, FreeForm) else None


def _tools(
    item: str | McpServer, where: str, config: RunConfig, services: Services
) -> tuple[list[Tool], list[str]]:
    """Return the tools of one entry of a config, and what there is to say about it."""
    if isinstance(item, McpServer):
        return services.tools_of(item, where, config.tools)
    if item == "python":
        return [PythonTool(services["sandbox"])], []
    try:
        given = load_object(item)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return [as_tool(given, where)], []


def as_tool(given: Any, where: str) -> Tool:
    """Return a function or an object as a tool. Raises: ConfigError."""
    if inspect.isfunction(given) or inspect.ismethod(given):
        try:
            given = tool(given)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
    wrong = wrong_tool(given)
    if wrong:
        raise ConfigError(f"{where}: got {wrong}")
    made: Tool = given
    return made


def _check_names(agent: str, tools: Sequence[Tool]) -> None:
    names = [one.name for one in tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"agent {agent} has two tools with the name {twice[0]!r}; expected different names: "
            "drop one, or rename it"
        )


def _refuse_limits(config: RunConfig) -> None:
    usual = ToolUse()
    set_ = [
        key for key in ToolUse.model_fields if getattr(config.tools, key) != getattr(usual, key)
    ]
    if set_:
        raise ConfigError(
            f"tools.{set_[0]}: got {getattr(config.tools, set_[0])}, which has no effect, because "
            "no agent has tools: set team.AGENT.tools, or leave it out"
        )


def _check_turns(
    config: RunConfig, environment: Environment[Any], tools: Mapping[str, Sequence[Tool]]
) -> None:
    """Raises: ConfigError if the plan has no turn in which a result could be read."""
    samples, usual = list(config.rollout.samples), environment.most_turns or 1
    if len(samples) <= usual:
        longer = samples + [1] * (usual + 2 - len(samples))
        raise ConfigError(
            f"rollout.samples {samples} has {len(samples)} turn(s), but agent {next(iter(tools))} "
            f"has tools, and the game has {usual} turn(s) without any call; expected one more turn "
            f"for each round of calls, such as {longer}"
        )


def _notes(config: RunConfig, tools: Mapping[str, Sequence[Tool]]) -> list[str]:
    turns, rounds = len(config.rollout.samples), config.tools.rounds
    return [
        f"agent {agent} may call {', '.join(one.name for one in own)} in at most "
        f"{min(rounds, turns - 1)} round(s) before an answer (tools.rounds {rounds}, "
        f"rollout.samples of {turns} turns)"
        for agent, own in tools.items()
    ]
