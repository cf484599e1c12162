"""Default limits of scoring, shared by the server and the in-process scorer.

This module does not import torch.
"""

from dataclasses import dataclass

from motet_serve.http.limits import ServingLimits


@dataclass(frozen=True, kw_only=True)
class ScoringLimits(ServingLimits):
    """Limits of scoring.

    Raises: ConfigError if a limit is not above 0, or is infinite.
    """

    token_budget: int = 16384
    """Tokens in one batch, padding included: number of rows times the longest row. A row that is
    longer than this forms a batch of its own.
    """
    max_queue: int = 4096
    """Maximum number of open answers, over all requests. A single request is always accepted if the
    queue is empty.
    """
