"""The commands that play without training: evaluate, play."""

from motet.commands.console import print_json, say_on_stderr
from motet.commands.episodes import print_episode
from motet.commands.evaluation_tables import print_evaluation
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson, Traceback
from motet.errors import ConfigError, MotetError

_SAID_OTHERWISE = ("--team", "--traceback")
"""Options that the name of a kept evaluation says, or that change nothing that is played."""


@of_api("motet.api.evaluation:evaluate")
def evaluate(call: ApiCall, as_json: AsJson = False) -> None:
    """Play the held-out tasks and report metrics. docs/evaluation.md explains every metric.

    Example: motet evaluate runs/relay --samples 8 --pass-at 1,8
    """
    from motet.api.keeping import Keeper

    target = call.values["target"]
    keeper = Keeper([target])
    found = call()
    if as_json:
        print_json(found)
    else:
        print_evaluation(target, found)
    if found.faults and found.reward is None:
        raise MotetError(f"no game of {found.episodes} tasks came to its end, so nothing is kept")
    said = [*call.words(but=_SAID_OTHERWISE), *call.values["overrides"]]
    kind = "reference" if call.values["team"] == "reference" else "evaluation"
    say_on_stderr(keeper.keep(kind, said, found))


@of_api("motet.api.evaluation:play")
def play(call: ApiCall, traceback: Traceback = False) -> None:
    """Show how a team plays one task, or take part: as an agent, or by giving feedback between
    turns.

    Example: motet play runs/quickstart --task 3 --interactive aux
    """
    try:
        episode = call()
    except EOFError as error:
        raise ConfigError(
            "the input ended before the game; expected one line for every turn of "
            f"{call.values['interactive']}"
        ) from error
    print_episode(episode, traceback=traceback)
