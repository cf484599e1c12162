"""Prints episodes as chats between named agents."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.text import Text

from motet.commands.console import listed, out
from motet.safety.visible import styled, visible

if TYPE_CHECKING:
    from motet.core import Episode, Fault, Message, Prompt, SampleId


def print_episode(
    episode: "Episode",
    advantages: Mapping["SampleId", float] = MappingProxyType({}),
    *,
    traceback: bool = False,
) -> None:
    """Print an episode as a chat, Round by Round. All texts of models and environments are escaped.

    `traceback`: also print the whole traceback of every fault.
    """
    from motet.core import SampleId, walk
    from motet.rollout.summary import episode_stats

    reward = episode_stats(episode).reward
    said = "-" if reward is None else f"{reward:.3g}"
    out.print(
        styled(f"\nepisode {episode.id}", "bold", f"   task {episode.task.id}   reward {said}")
    )
    if episode.fault is not None:
        _print_fault(episode.fault, "", traceback)
    for path, round_ in walk(episode.root) if episode.root is not None else ():
        after = f" after joint actions {', '.join(map(str, path))}" if path else ""
        out.print(styled(f"turn {round_.turn + 1}", "bold", after))
        for agent, prompt in round_.prompts.items():
            for speaker, text in _spoken(prompt):
                out.print(styled(f"{speaker} to {agent}", "dim", f": {text}"), soft_wrap=True)
            for index, sample in enumerate(round_.samples[agent]):
                advantage = advantages.get(SampleId(episode.id, path, agent, index))
                notes = [str(index)] if len(round_.samples[agent]) > 1 else []
                notes += [] if advantage is None else [f"advantage {advantage:+.3g}"]
                notes += ["cut off"] if sample.stop == "length" else []
                head = (
                    f"{visible(agent)} ({', '.join(notes)}): " if notes else f"{visible(agent)}: "
                )
                thought = f"(thinks: {visible(sample.thinking)}) " if sample.thinking else ""
                calls = "".join(f" calls {visible(str(call))}" for call in sample.calls)
                calls += f" (call not readable: {visible(sample.unread)})" if sample.unread else ""
                line = Text.assemble(
                    (head, "cyan"),
                    (thought, "dim"),
                    (visible(sample.text), "green"),
                    (calls, "dim"),
                )
                out.print(line, soft_wrap=True)
        for index, outcome in enumerate(round_.outcomes):
            which = f"joint action {index}: " if len(round_.outcomes) > 1 else ""
            if outcome.fault is not None:
                _print_fault(outcome.fault, which, traceback)
                continue
            terms = f"; {listed(outcome.terms)}" if outcome.terms else ""
            end = f"; end: {outcome.end}" if outcome.end else ""
            out.print(f"{which}reward {listed(outcome.rewards)}{terms}{end}", soft_wrap=True)


def _print_fault(fault: "Fault", which: str, traceback: bool) -> None:
    out.print(Text.assemble(which, styled("fault", "red", f" {fault}")), soft_wrap=True)
    if traceback:
        out.print(fault.trace.rstrip(), soft_wrap=True)


def _spoken(prompt: "Prompt") -> list[tuple[str, str]]:
    """Return (speaker, text) of each message of a prompt."""
    if isinstance(prompt, str):
        return [("prompt", prompt)]
    return [(_speaker(message), message.shown) for message in prompt]


def _speaker(message: "Message") -> str:
    if message.role == "tool":
        return f"tool {message.name or ''}".strip()
    return message.name or message.role
