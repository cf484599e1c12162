"""Settings of a verifier's server, some also of the in-process scorer. It imports nothing heavy."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from motet_serve.http.settings import ServerSettings, setting

Reads: TypeAlias = Literal["end", "mean", "lowest"]
"""How the score is computed from the values. end: the value after the whole answer. mean, lowest:
the mean or the lowest of the values after each step. The steps are the lines of the answer
(Lightman et al. 2023, arXiv 2305.20050; Wang et al. 2024, arXiv 2312.08935), so each step adds to
the score.
"""


@dataclass(frozen=True, kw_only=True)
class VerifierServerSettings(ServerSettings):
    """Settings of the server of a verifier: `motet verifier serve`."""

    device: str = setting("auto", "auto (cuda, else mps, else cpu), cpu, cuda, cuda:1, ...")
    reads: Reads = setting(  # noqa: RUF009
        "end", "The score: the value at the end, or the mean or lowest value after each line."
    )
    token_budget: int = setting(
        16384, "Tokens per batch, padding included, unless one row has more. More is faster but "
        "needs more memory.",
    )  # fmt: skip
    max_queue: int = setting(
        4096, "Number of open answers. A request for more than are free gets status 429."
    )
