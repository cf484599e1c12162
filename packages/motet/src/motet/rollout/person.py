"""A sampler that asks a person for the replies of one agent."""

import asyncio
from collections.abc import Callable, Sequence

from motet.core import Completion, Fault, Message, OnAnswer, Prompt, Sampled, Sampler, SampleRequest
from motet.safety.visible import visible


class PersonSampler:
    """A `core.Sampler` that asks a person for the replies of `agent`, with `read(text)`.

    Another sampler provides all other completions.

    It returns no answers early: an environment that steps at the same time might use the same
    terminal.
    """

    def __init__(self, agent: str, others: Sampler, read: Callable[[str], str] = input) -> None:
        self._agent, self._others, self._read = agent, others, read

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        theirs = [request for request in requests if request.id[3] != self._agent]
        answers = (
            dict(zip((r.id for r in theirs), await self._others.sample(theirs), strict=True))
            if theirs
            else {}
        )
        return [answers[r.id] if r.id in answers else await self._typed(r) for r in requests]

    async def _typed(self, request: SampleRequest) -> Sampled:
        question = f"{visible(_shown(request.prompt))}\n{self._agent}> "
        texts = [await asyncio.to_thread(self._read, question) for _ in request.keys]
        return Sampled(
            (), tuple(Completion(f"person ({self._agent})", text, "stop") for text in texts)
        )


def _shown(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(_line(message) for message in prompt)


def _line(message: Message) -> str:
    return f"{message.name or message.role}: {message.shown}"
