"""A sampler made of several, each for its own policies."""

from collections.abc import Mapping, Sequence

from motet.clients.network import together
from motet.core import Fault, OnAnswer, Sampled, Sampler, SampleRequest


class ManySamplers:
    """A `core.Sampler` that asks other samplers for the completions of some policies."""

    def __init__(self, usual: Sampler, others: Mapping[str, Sampler]) -> None:
        """`others`: policy -> its sampler."""
        self._usual, self._others = usual, others

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        """Return completions in the order of the requests. All samplers work at the same time.

        The usual one begins last: it may compute in this thread and keep the others from beginning.

        Raises: what the first sampler raised that failed, after the others were cancelled.
        """
        places: dict[Sampler, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(self._others.get(request.policy, self._usual), []).append(place)
        order = sorted(places, key=lambda sampler: sampler is self._usual)
        found = await together(
            *(
                sampler.sample(
                    [requests[n] for n in places[sampler]], placed(places[sampler], on_answer)
                )
                for sampler in order
            )
        )
        answers: dict[int, Sampled | Fault] = {}
        for sampler, own in zip(order, found, strict=True):
            answers |= zip(places[sampler], own, strict=True)
        return [answers[place] for place in range(len(requests))]


def placed(places: Sequence[int], on_answer: OnAnswer | None) -> OnAnswer | None:
    """Return `on_answer` for a sampler that got only the requests at these places."""
    return None if on_answer is None else lambda place, answer: on_answer(places[place], answer)
