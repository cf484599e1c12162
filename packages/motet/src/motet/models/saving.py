"""Save a whole model, so that plain transformers can load it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.models.folder_json import FILTERS, GENERATION, read_object
from motet.safety.reading import read_json


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sampling: Mapping[str, Any],
    folder: str | Path,
    state: dict[str, Tensor] | None = None,
) -> None:
    """Write the weights, the tokenizer and the sampling settings that its authors recommend.

    `state`: the whole weights by name, if the model holds only a part of each.
    """
    model.save_pretrained(folder, state_dict=state)
    # transformers does not save sampling settings that it considers contradictory, so we add them
    # to its file.
    place = Path(folder) / GENERATION
    said = {**read_json(place), **sampling} if place.is_file() else dict(sampling)
    place.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    tokenizer.save_pretrained(folder)


def write_ends(folder: str | Path, ids: Sequence[int]) -> None:
    """Write the tokens that end a completion, where `generate` and vLLM look for them.

    For an adapter the file has nothing else.

    Raises: ConfigError if the file names no tokens.
    """
    place = Path(folder) / GENERATION
    said = read_object(place) if place.is_file() else {}
    FILTERS[GENERATION](place, said)
    stored = said.get("eos_token_id")
    before = set(stored if isinstance(stored, list) else [stored]) - {None}
    if not before.issuperset(ids):
        whole = sorted({*ids, *before})
        said["eos_token_id"] = whole if len(whole) > 1 else whole[0]
    elif place.is_file():
        return
    place.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
