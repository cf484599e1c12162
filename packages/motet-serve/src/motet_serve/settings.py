"""Settings of the chat server. This module imports nothing heavy."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from motet_serve.http.settings import ServerSettings, setting

SampledBy: TypeAlias = Literal["own", "vllm"]
"""What samples: Motet in this process, or vLLM engines in processes of their own."""
SAMPLED_BY = "Motet's own sampler, or vLLM engines, which need the extra cluster."


@dataclass(frozen=True, kw_only=True)
class TeamServerSettings(ServerSettings):
    """Settings of the server of a team: `motet serve`."""

    engine: SampledBy = setting("own", SAMPLED_BY)  # noqa: RUF009
    max_batch: int = setting(
        64, "Requests to models that one batch joins: one for each agent of an open answer."
    )
    max_queue: int = setting(
        512, "Number of open answers. A request for more than are free gets status 429."
    )
