"""Samplers for what no local model samples: a person's agent, and policies behind endpoints."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from motet.clients.endpoint import Endpoint
from motet.clients.http_client import EndpointFault, Patience
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
    return f"{message.name or message.role}: {message.content}"


class EndpointPolicies:
    """A `core.Sampler` that asks an endpoint for the completions of some policies.

    Another sampler provides all other completions. A prompt that is a string becomes one user
    message. The completions have no tokens, because those of the server's model mean nothing here.
    """

    def __init__(self, others: Sampler, endpoints: Mapping[str, Endpoint]) -> None:
        """Create the sampler. `endpoints`: policy -> its endpoint."""
        self._others, self._endpoints = others, endpoints
        self._patience = Patience("the comparator's endpoint")

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        """Return completions in the order of the requests.

        A request that the endpoint fails is a Fault. Raises: ServerAway if it fails in many
        requests in a row.
        """
        away = [n for n, request in enumerate(requests) if request.policy in self._endpoints]
        here = [n for n in range(len(requests)) if n not in set(away)]

        def passed_on(place: int, answer: Sampled | Fault) -> None:
            if on_answer is not None:
                on_answer(here[place], answer)

        answers: dict[int, Sampled | Fault] = {}
        if here:
            own = await self._others.sample([requests[n] for n in here], passed_on)
            answers |= zip(here, own, strict=True)
        asked = await asyncio.gather(*(self._asked(requests[n]) for n in away))
        answers |= zip(away, asked, strict=True)
        return [answers[n] for n in range(len(requests))]

    async def _asked(self, request: SampleRequest) -> Sampled | Fault:
        endpoint, prompt, decode = self._endpoints[request.policy], request.prompt, request.decode
        chat = (Message("user", prompt),) if isinstance(prompt, str) else prompt
        settings = {
            "temperature": decode.temperature,
            "top_p": decode.top_p,
            "max_tokens": decode.max_new_tokens,
        }
        self._patience.check()
        try:
            replies = await asyncio.gather(*(endpoint.reply(chat, settings) for _ in request.keys))
        except EndpointFault as fault:
            if not fault.said_no:
                self._patience.failed(fault)
            return Fault("sampler", fault.cause, f"policy {request.policy}: {fault}")
        self._patience.answered()
        return Sampled((), tuple(Completion(request.policy, one.text, one.stop) for one in replies))
