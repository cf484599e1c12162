"""Writers of additional answers, and the prompts they get."""

import asyncio
import re
from collections.abc import Sequence
from typing import Protocol

from motet.clients.endpoint import Endpoint
from motet.clients.http_client import EndpointFault, Patience
from motet.core import Fault, Message, Prompt, Sampler, SampleRequest
from motet.settings import Decode

EXAMPLES = 3
"""Number of right answers that a writer's prompt shows."""
_LEAKS = re.compile(
    r"\b(re-?written|paraphrased|plausible but wrong|deliberate(ly)?|intentional(ly)?|as "
    r"(requested|instructed)"
    r"|here(?:'s| is) (a|an|another|the) "
    r"((different|new|alternative|wrong|incorrect|correct|rewritten|possible) )?"
    r"(answer|solution|version|attempt))\b",
    re.IGNORECASE,
)
"""Phrases that reveal that an answer was requested. A verifier would learn to recognise these
phrases instead of judging the answer.
"""


class AnswerWriter(Protocol):
    """Interface of everything that writes additional answers."""

    async def write(self, prompts: Sequence[Prompt], keys: Sequence[int]) -> list[str | Fault]:
        """Return one string per prompt, or the Fault if there is none.

        Each key seeds its prompt.
        """
        ...


class PolicyWriter:
    """A writer that samples from a policy of the team."""

    def __init__(self, sampler: Sampler, policy: str, decode: Decode) -> None:
        self._sampler, self._policy, self._decode = sampler, policy, decode

    async def write(self, prompts: Sequence[Prompt], keys: Sequence[int]) -> list[str | Fault]:
        requests = [
            SampleRequest((number,), self._policy, prompt, self._decode, (key,))
            for number, (prompt, key) in enumerate(zip(prompts, keys, strict=True))
        ]
        answers = await self._sampler.sample(requests)
        return [
            answer if isinstance(answer, Fault) else answer.completions[0].text
            for answer in answers
        ]


class EndpointWriter:
    """A writer that asks a model behind an endpoint. The keys do not influence what it writes."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._patience = endpoint, Patience("the expert")

    async def write(self, prompts: Sequence[Prompt], keys: Sequence[int]) -> list[str | Fault]:
        """Raises: http_client.ServerAway if the endpoint does not answer."""
        return list(await asyncio.gather(*(self._one(prompt) for prompt in prompts)))

    async def _one(self, prompt: Prompt) -> str | Fault:
        self._patience.check()
        try:
            text = await self._endpoint.ask(
                (Message("user", prompt),) if isinstance(prompt, str) else prompt
            )
        except EndpointFault as fault:
            if not fault.said_no:
                self._patience.failed(fault)
            return Fault("sampler", fault.cause, str(fault))
        self._patience.answered()
        return text


def leaks(text: str) -> bool:
    """Test whether a text reveals that it was requested."""
    return _LEAKS.search(text) is not None


def order_for(question: Prompt, right_ones: Sequence[str], right: bool) -> Prompt:
    """Return the prompt that asks a writer for one more answer.

    A question that is a raw string is returned unchanged: it is for a model that only continues
    text.
    """
    if isinstance(question, str):
        return question
    shown = "\n\n".join(f"Solution:\n{text}" for text in right_ones[:EXAMPLES])
    known = f"Solutions that are known to be right:\n\n{shown}\n\n" if shown else ""
    wanted = (
        "Solve it once more, by your own steps and in other words."
        if right
        else "Write what a student would hand in who reasons wrongly at one step: the logic of "
        "that step is mistaken, the arithmetic is not, and the final answer is another one than "
        "the right one. Do not point at the mistake."
    )
    form = (
        "End with the final answer in the form that the question asks for. Write the solution "
        "and nothing else."
    )
    return (*question[:-1], Message("user", f"{question[-1].content}\n\n{known}{wanted} {form}"))


def argument_for(question: Prompt, label: str) -> Prompt:
    """Return the prompt that asks a writer for reasons that lead to a label, right or wrong."""
    asked = (Message("user", question),) if isinstance(question, str) else question
    wanted = (
        f"Give the reasons for which the answer is {label}, as someone would who came to it by "
        f"themselves, and end with \\boxed{{{label}}}. Write the reasons and the answer and "
        "nothing else."
    )
    return (*asked[:-1], Message("user", f"{asked[-1].content}\n\n{wanted}"))
