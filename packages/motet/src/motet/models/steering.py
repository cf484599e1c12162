"""Which tokens completions may or must have next, and where their answers begin: thinking, and
answers of a given form."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from motet.core import Fault, Restriction
from motet.models.causal_lm import CausalLM
from motet.models.formats import FormatFault, Guide, unpacked
from motet.models.thinking import Thinker
from motet.settings import Decode


class Steering:
    """The thinkers and guides of the rows that have one, by the numbers of the rows."""

    def __init__(
        self, backbone: CausalLM, prompts: Sequence[Sequence[int]], decodes: Sequence[Decode]
    ) -> None:
        """Create it for rows with these prompts, as tokens, and settings.

        Raises: ConfigError if a format is none, or without llguidance.
        """
        self._decodes = decodes
        self._thinkers: dict[int, Thinker] = {}
        self._guides: dict[int, Guide] = {}
        self._failed: dict[int, FormatFault] = {}
        for row, (prompt, decode) in enumerate(zip(prompts, decodes, strict=True)):
            if decode.thinking is not None:
                thinker = Thinker.of(backbone.tokenizer, prompt, decode.thinking)
                # With a format, what is no thinking is of its form from the first token on.
                if decode.format is None or thinker.state == "thinks":
                    self._thinkers[row] = thinker
            if decode.format is not None:
                thinks = row in self._thinkers
                self._guides[row] = backbone.vocabulary.guide(decode.format, after_thinking=thinks)

    def __bool__(self) -> bool:
        """Whether any row is steered."""
        return bool(self._thinkers or self._guides)

    def restrict(self, rows: Sequence[int], logits_BV: Tensor) -> None:
        """Forbid, in place, the tokens that the forms of the answers do not allow.

        Args:
            rows: the row at each place of the batch; -1 if it has ended.
        """
        masks: Mapping[int, np.ndarray] = {
            place: mask
            for place, row in self._answering(rows)
            if (mask := self._allowed(row)) is not None
        }
        if not masks:
            return
        bits_FW = torch.from_numpy(np.stack(list(masks.values()))).to(logits_BV.device)
        allowed_FV = unpacked(bits_FW, logits_BV.shape[1])
        places = list(masks)
        logits_BV[places] = logits_BV[places].masked_fill(~allowed_FV, -torch.inf)

    def put_in(self, rows: Sequence[int], token_B: Tensor, logp_B: Tensor) -> None:
        """Write the tokens that must come next over those that were drawn. They are certain."""
        for place, row in enumerate(rows):
            thinker = self._thinkers.get(row)
            if thinker is not None and thinker.to_come:
                token_B[place], logp_B[place] = thinker.to_come[0], 0.0

    def read(self, rows: Sequence[int], tokens_RL: Tensor, length: int) -> None:
        """Read the new token of each row.

        Args:
            rows: the row at each place of the batch; -1 if it has ended.
            tokens_RL: the tokens of every row, of which `length` are there and the last is new.
        """
        answering = [row for _, row in self._answering(rows)]
        new = tokens_RL[answering, length - 1].tolist() if answering else []
        for row, token in zip(answering, new, strict=True):
            try:
                self._guides[row].read(token)
            except FormatFault as fault:
                self._failed[row] = fault
        thinking = [
            (row, thinker)
            for row in rows
            if (thinker := self._thinkers.get(row)) is not None and thinker.state != "answers"
        ]
        if thinking:
            first = max(0, length - max(thinker.window(length) for _, thinker in thinking))
            tails = tokens_RL[[row for row, _ in thinking], first:length].tolist()
            for (_, thinker), tail in zip(thinking, tails, strict=True):
                thinker.read(tail, length)

    def answer_from(self, row: int) -> int | None:
        """Return the place of the first token of a row's answer; None while it thinks."""
        thinker = self._thinkers.get(row)
        if thinker is None:
            return 0
        return thinker.answer_from if thinker.state == "answers" else None

    def forced(self, row: int, length: int) -> tuple[int, int] | None:
        """Return `Completion.forced` of a row with so many tokens."""
        thinker = self._thinkers.get(row)
        if thinker is None or thinker.forced is None or thinker.forced[0] >= length:
            return None
        return thinker.forced[0], min(thinker.forced[1], length)

    def restriction(self, row: int) -> Restriction | None:
        """Return `Completion.restriction` of a row."""
        form, first = self._decodes[row].format, self.answer_from(row)
        if form is None or first is None:
            return None
        return Restriction(form, first, after_thinking=row in self._thinkers)

    def fault(self, row: int) -> Fault | None:
        """Return why a row has no answer of its form."""
        failed = self._failed.get(row)
        return None if failed is None else Fault("sampler", FormatFault.cause, str(failed))

    def _answering(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return (place, row) of each row that writes an answer of a form."""
        return [
            (place, row)
            for place, row in enumerate(rows)
            if row in self._guides and row not in self._failed and self.answer_from(row) is not None
        ]

    def _allowed(self, row: int) -> np.ndarray | None:
        try:
            return self._guides[row].allowed()
        except FormatFault as fault:
            self._failed[row] = fault
            return None
