"""Prints episodes as chats between named agents."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.text import Text

from motet.commands.console import listed, out
from motet.safety.visible import styled, visible

if TYPE_CHECKING:
    from motet.core import Completion, Episode, Fault, Message, Outcome, Prompt, SampleId


def print_episode(
    episode: "Episode",
    advantages: Mapping["SampleId", float] = MappingProxyType({}),
    *,
    traceback: bool = False,
) -> None:
    """Print an episode as a chat, Round by Round. All texts of models and environments are escaped.
    Answers and outcomes that read the same are one line with all their numbers.

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
            samples = round_.samples[agent]
            own = [
                advantages.get(SampleId(episode.id, path, agent, index))
                for index in range(len(samples))
            ]
            for numbers, (sample, advantage) in _equal(map(_said, samples, own), samples, own):
                notes = [numbers] if len(samples) > 1 else []
                notes += [] if advantage is None else [_shown(advantage)]
                notes += ["cut off"] if sample.stop == "length" else []
                head = (
                    f"{visible(agent)} ({', '.join(notes)}): " if notes else f"{visible(agent)}: "
                )
                thought = f"(thinks: {visible(sample.thinking)}) " if sample.thinking else ""
                line = Text.assemble(
                    (head, "cyan"),
                    (thought, "dim"),
                    (visible(sample.text), "green"),
                    (_calls(sample), "dim"),
                )
                out.print(line, soft_wrap=True)
        outcomes = round_.outcomes
        for numbers, (outcome,) in _equal(map(_paid, outcomes), outcomes):
            several = "s" * (not numbers.isdecimal())
            which = f"joint action{several} {numbers}: " if len(outcomes) > 1 else ""
            if outcome.fault is not None:
                _print_fault(outcome.fault, which, traceback)
                continue
            out.print(f"{which}{_paid(outcome)}", soft_wrap=True)


def _equal(keys: Iterable[str], *columns: Sequence[Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the first row of each key, and the numbers of all rows with this key: 0, 2-4."""
    rows: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        rows.setdefault(key, []).append(number)
    for numbers in rows.values():
        yield _ranges(numbers), tuple(column[numbers[0]] for column in columns)


def _ranges(numbers: Sequence[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    parts = [
        f"{each[0]}-{each[-1]}" if len(each) > 2 else ", ".join(map(str, each)) for each in ranges
    ]
    return ", ".join(parts)


def _said(sample: "Completion", advantage: float | None) -> str:
    """Return all that is printed of a completion."""
    shown = None if advantage is None else _shown(advantage)
    return repr((shown, sample.stop == "length", sample.thinking, sample.text, _calls(sample)))


def _shown(advantage: float) -> str:
    return f"advantage {0.0 if abs(advantage) < 1e-9 else advantage:+.3g}"


def _calls(sample: "Completion") -> str:
    calls = "".join(f" calls {visible(str(call))}" for call in sample.calls)
    return calls + (f" (call not readable: {visible(sample.unread)})" if sample.unread else "")


def _paid(outcome: "Outcome") -> str:
    if outcome.fault is not None:
        return f"fault {outcome.fault}"
    terms = f"; {listed(outcome.terms)}" if outcome.terms else ""
    end = f"; end: {outcome.end}" if outcome.end else ""
    return f"reward {listed(outcome.rewards)}{terms}{end}"


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
