"""A sampler's call as rows, one per completion: their batches, and the requests they answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from motet.core import Completion, Fault, OnAnswer, Sampled, SampleRequest


@dataclass(frozen=True)
class CompletionRow:
    """One completion to sample or to score: its request, its index there, and its prompt."""

    request: int
    index: int
    prompt: tuple[int, ...]
    answer: int
    """The most tokens of the completion."""


def batches(
    rows: Sequence[CompletionRow], rows_per_batch: int, tokens_per_batch: int
) -> Iterator[list[CompletionRow]]:
    """Put rows of similar length together.

    A batch has at most `rows_per_batch` rows and, with padding, `tokens_per_batch` tokens of prompt
    and completion. A row above the token limit gets its own batch.
    """
    batch: list[CompletionRow] = []
    for row in sorted(rows, key=lambda row: (len(row.prompt), row.answer, row.request, row.index)):
        grown = [*batch, row]
        width = len(row.prompt) + max(other.answer for other in grown)
        if batch and (len(grown) > rows_per_batch or len(grown) * width > tokens_per_batch):
            yield batch
            grown = [row]
        batch = grown
    if batch:
        yield batch


class OpenRequests:
    """The requests of one call and their samples so far.

    A request is passed on when all of its keys have a completion.
    """

    def __init__(
        self,
        requests: Sequence[SampleRequest],
        prompts: Sequence[tuple[int, ...] | Fault],
        hand_out: OnAnswer,
    ) -> None:
        self.requests = requests
        self._hand_out = hand_out
        self._drawn: list[dict[int, Completion | Fault]] = [{} for _ in requests]
        self._answers: dict[int, Sampled | Fault] = {}
        for number, prompt in enumerate(prompts):
            if isinstance(prompt, Fault):
                self._end(number, prompt)

    def take(self, row: CompletionRow, answer: Completion | Fault) -> None:
        drawn = self._drawn[row.request]
        drawn[row.index] = answer
        if len(drawn) < len(self.requests[row.request].keys):
            return
        answers = [drawn[index] for index in range(len(drawn))]
        faults = [one for one in answers if isinstance(one, Fault)]
        completions = tuple(one for one in answers if isinstance(one, Completion))
        self._end(row.request, faults[0] if faults else Sampled(row.prompt, completions))

    def answers(self) -> list[Sampled | Fault]:
        """Return all results in the order of the requests, after the last was sampled."""
        return [self._answers[number] for number in range(len(self.requests))]

    def _end(self, number: int, answer: Sampled | Fault) -> None:
        self._answers[number] = answer
        self._hand_out(number, answer)
