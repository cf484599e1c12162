"""The command `motet episodes`: recorded episodes as a chat between named agents."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from motet.commands.console import listed, out
from motet.commands.from_api import ApiCall, of_api
from motet.safety.visible import styled, visible

if TYPE_CHECKING:
    from motet.api.recorded import RecordedEpisode
    from motet.core import Path as TreePath
    from motet.core import Prompt, Round


@of_api("motet.api.recorded:episodes")
def episodes(
    call: ApiCall,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the whole traceback of every fault.")
    ] = False,
) -> None:
    """Show recorded episodes as chats, with rewards and advantages. Nothing is played again.

    Example: motet episodes runs/quickstart --step 12 --worst 5
    """
    found, asked = call(), call.values
    for one in found:
        print_recorded(one, traceback)
    if not found:
        out.print(f"{asked['run']} has no such episode" + " with a fault" * asked["faults"])
    elif not asked["evaluation"] and not any(one.advantages for one in found):
        out.print(
            "no advantages: they need more than the recorded rewards (a critic, a KL penalty in "
            "the reward, a moving average, a learned reward, pairs), or code that the run names, "
            "which is not loaded, or the episodes do not fit the config"
        )


def print_recorded(recorded: "RecordedEpisode", traceback: bool = False) -> None:
    """Print one episode. All texts of models and environments are escaped."""
    from motet.core import walk

    episode, reward = recorded.episode, recorded.reward
    said = "-" if reward is None else f"{reward:.3g}"
    out.print(
        styled(f"\nepisode {episode.id}", "bold", f"   task {episode.task.id}   reward {said}")
    )
    if episode.fault is not None:
        out.print(styled("fault", "red", f" {episode.fault}"), soft_wrap=True)
        if traceback:
            out.print(episode.fault.trace, soft_wrap=True)
    if episode.root is None:
        return
    for path, round_ in walk(episode.root):
        after = f" after joint actions {', '.join(map(str, path))}" if path else ""
        out.print(styled(f"turn {round_.turn + 1}", "bold", after))
        _print_samples(recorded, path, round_)
        _print_outcomes(round_, traceback)


def _print_samples(recorded: "RecordedEpisode", path: "TreePath", round_: "Round") -> None:
    from motet.core import SampleId

    for agent, prompt in round_.prompts.items():
        for speaker, text in _spoken(prompt):
            out.print(styled(f"{speaker} to {agent}", "dim", f": {text}"), soft_wrap=True)
        for index, sample in enumerate(round_.samples[agent]):
            advantage = recorded.advantages.get(
                SampleId(recorded.episode.id, path, agent, index), None
            )
            earned = "" if advantage is None else f", advantage {advantage:+.3g}"
            cut = ", cut off" if sample.stop == "length" else ""
            head = Text(f"{visible(agent)} ({index}{earned}{cut}): ", "cyan")
            out.print(Text.assemble(head, (visible(sample.text), "green")), soft_wrap=True)


def _print_outcomes(round_: "Round", traceback: bool) -> None:
    for index, outcome in enumerate(round_.outcomes):
        if outcome.fault is not None:
            ended = styled("fault", "red", f" {outcome.fault}")
        else:
            terms = f"; {listed(outcome.terms)}" if outcome.terms else ""
            end = f"; end: {outcome.end}" if outcome.end else ""
            ended = Text(visible(f"reward {listed(outcome.rewards)}{terms}{end}"))
        out.print(Text.assemble(f"joint action {index}: ", ended), soft_wrap=True)
        if traceback and outcome.fault is not None:
            out.print(outcome.fault.trace, soft_wrap=True)


def _spoken(prompt: "Prompt") -> list[tuple[str, str]]:
    """Return (speaker, text) of each message of a prompt."""
    if isinstance(prompt, str):
        return [("prompt", prompt)]
    return [(message.name or message.role, message.content) for message in prompt]
