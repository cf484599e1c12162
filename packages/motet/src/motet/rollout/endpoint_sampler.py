"""A sampler whose completions come from a model behind a chat endpoint."""

import asyncio
from collections.abc import Sequence
from typing import Any

from motet.clients.endpoint import Endpoint
from motet.clients.http_client import EndpointFault, Patience
from motet.clients.network import beside, together
from motet.core import Completion, Fault, Message, OnAnswer, Sampled, SampleRequest
from motet.rollout.answer_file import AnswerFile, key_of

SEEDS = 1 << 31
"""Servers take the seed of a completion modulo this."""


class EndpointSampler:
    """A `core.Sampler` that asks a chat endpoint for each completion.

    A prompt that is a string becomes one user message. The completions have no tokens, because
    those of the server's model mean nothing here. Requests wait in the thread of the network, so
    models of this process sample at the same time.
    """

    def __init__(self, endpoint: Endpoint, answers: AnswerFile | None = None) -> None:
        """`answers`: where answers are looked for first, and kept."""
        self._endpoint, self._answers = endpoint, answers
        self._patience = Patience(endpoint.server.url)

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        """Return completions in the order of the requests, each passed on as it comes.

        A request whose answer fails is a Fault. Raises: ServerAway if many fail in a row. A later
        call asks again: a server of answers outlives an endpoint that is away for a while.
        """
        here = asyncio.get_running_loop()

        async def asked(place: int, request: SampleRequest) -> Sampled | Fault:
            answer = await self._asked(request)
            if on_answer is not None:
                # The loop runs callbacks in order, so all have run before `sample` returns.
                here.call_soon_threadsafe(on_answer, place, answer)
            return answer

        return await beside(together(*(asked(*one) for one in enumerate(requests))))

    async def _asked(self, request: SampleRequest) -> Sampled | Fault:
        answers = await together(*(self._completion(request, key) for key in request.keys))
        faults = [one for one in answers if isinstance(one, Fault)]
        completions = tuple(one for one in answers if isinstance(one, Completion))
        return faults[0] if faults else Sampled((), completions)

    async def _completion(self, request: SampleRequest, key: int) -> Completion | Fault:
        asked = self._request(request, key)
        name = key_of(asked, key)
        answer = None if self._answers is None else self._answers.find(name)
        if answer is None:
            try:
                answer = await self._endpoint.answer(asked)
            except EndpointFault as fault:
                if fault.said_no:
                    self._patience.answered()
                else:
                    self._patience.failed(fault)
                return Fault("sampler", fault.cause, f"policy {request.policy}: {fault}")
            self._patience.answered()
            if self._answers is not None:
                self._answers.keep(name, answer)
        thinks = request.decode.thinking
        thinking, text = ("", answer.text) if thinks is None else thinks.parted(answer.text)
        return Completion(
            request.policy,
            answer.text if thinks is not None and thinks.shown else text,
            answer.stop,
            temperature=request.decode.temperature,
            thinking=thinking,
            usage=answer.usage,
            calls=answer.calls,
            unread=answer.unread,
        )

    def _request(self, request: SampleRequest, key: int) -> dict[str, Any]:
        """Return what is sent: the config's own fields come before those of `decode`."""
        prompt, decode = request.prompt, request.decode
        chat = (Message("user", prompt),) if isinstance(prompt, str) else prompt
        usual = {
            "temperature": decode.temperature,
            "top_p": decode.top_p,
            "max_tokens": decode.max_new_tokens,
            "stop": list(decode.stop) or None,
            "seed": key % SEEDS,
        }
        asked = self._endpoint.request(chat, usual)
        return asked | ({"temperature": 0.0} if request.greedy else {})
