"""What a user has to know at once, not at the end of a run.

The first fault of each cause is said when its game has ended. If no game ends within the rollout
plan, that is said after the first evaluation or step. If no game of the training succeeds, that is
said at its end.
"""

from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import TypeAlias

from motet.core import Episode, walk
from motet.rollout.summary import episode_stats, never_asked, never_ended
from motet.settings import Algorithm, Plan

EpisodeCounter: TypeAlias = Callable[[str, int], Callable[[Episode], None]]
"""(name of a stage, number of its games) -> a function that is called with each game."""


class Notices:
    """Says each notice once, and remembers it for the summary."""

    def __init__(self, say: Callable[[str], None], traceback: bool = False) -> None:
        """`traceback`: also say the whole traceback of a fault."""
        self._say, self._traceback = say, traceback
        self._known: set[str] = set()
        self._successes: list[float] = []
        self.lines: list[str] = []
        """Everything that was said, without tracebacks."""

    def say(self, line: str) -> None:
        """Say a line that was not said before."""
        if line not in self.lines:
            self.lines.append(line)
            self._say(line)

    def see(self, episode: Episode) -> None:
        """Say the first fault of each cause. Later ones are only counted."""
        for fault in episode_stats(episode).faults:
            cause = f"{fault.where}/{fault.cause}"
            if cause in self._known:
                continue
            self._known.add(cause)
            self.say(f"first fault, in episode {episode.id}: {fault}")
            if self._traceback and fault.trace:
                self._say(fault.trace.rstrip())

    def watching(self, counter: Callable[[str, int], Callable[[object], None]]) -> EpisodeCounter:
        """Return `counter` of a Progress, whose function also sees every episode that it counts."""

        def watched(name: str, total: int) -> Callable[[Episode], None]:
            count = counter(name, total)

            def ended(episode: Episode) -> None:
                self.see(episode)
                count(episode)

            return ended

        return watched

    def played(self, episodes: Sequence[Episode], plan: Plan) -> None:
        """Warn once if no game ended within the plan, or an agent never acted in it."""
        unasked = never_asked(episodes)
        if "ended" not in self._known and (unasked or never_ended(episodes)):
            self.say(too_few_turns(plan, unasked=unasked))
        self._known.add("ended")

    def stepped(self, figures: Mapping[str, float]) -> None:
        """Remember the success of a training step."""
        if "play/success" in figures:
            self._successes.append(figures["play/success"])

    def trained(self) -> None:
        """Warn if no game of `FEW` steps or more succeeded."""
        if len(self._successes) >= FEW and not any(self._successes):
            self.say(
                f"no game of {len(self._successes)} training steps succeeded: look at some (motet "
                "episodes), and at docs/reading_a_run.md (nothing is learned)"
            )

    def credited(self, episodes: Sequence[Episode], algorithm: Algorithm) -> None:
        """Warn once if averaging over the team leaves the same reward everywhere."""
        own_score = algorithm.pairs is not None or algorithm.returns == "discounted_sum"
        if algorithm.reward_sharing == "all" and not own_score and _averaged_away(episodes):
            self.say(AVERAGED_AWAY)


FEW = 5
"""Fewer training steps without a success are no reason to say so."""
AVERAGED_AWAY = (
    "the agents' rewards differ, but their mean is the same in all joint actions of a step, so "
    "algorithm.reward_sharing: all gives no agent a reason to change (a zero-sum reward): set "
    "algorithm.reward_sharing=own, with credit.view: own if there is a critic"
)


def _averaged_away(episodes: Sequence[Episode]) -> bool:
    rewards = [
        list(outcome.rewards.values())
        for episode in episodes
        if episode.root is not None
        for _, round_ in walk(episode.root)
        for outcome in round_.outcomes
        if outcome.fault is None
    ]
    means = [fsum(each) / len(each) for each in rewards]
    largest = max((abs(value) for each in rewards for value in each), default=0.0)
    apart = any(max(each) > min(each) for each in rewards)
    return apart and max(means) - min(means) <= 1e-9 * largest


def too_few_turns(plan: Plan, needed: int | None = None, unasked: Sequence[str] = ()) -> str:
    """Return the warning that no game ends within the plan.

    `needed`: the number of turns of a trial game, if one ended. `unasked`: agents that never acted.
    """
    turns = len(plan.samples)
    longer = ",".join(map(str, (*plan.samples, *[1] * ((needed or turns + 1) - turns))))
    found = (
        "no game ended" if needed is None else f"a trial game ended only after {needed} turns, not"
    )
    silent = f", and {', '.join(unasked)} never acted" if unasked else ""
    return (
        f"{found} within rollout.samples {list(plan.samples)} ({turns} "
        f"turn{'s' if turns > 1 else ''}){silent}: nothing that is rewarded only at the end is "
        f"ever earned. Set more turns, such as rollout.samples=[{longer}], or let step return "
        "done=True"
    )
