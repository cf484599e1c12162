"""The folders of policies and base models in an export: links or copies, without loading them."""

import json
import os
import shutil
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peft import LoraConfig

from motet.errors import ConfigError
from motet.models import adapter_folder
from motet.models.folder import (
    CONFIG_FILE,
    GENERATION,
    LINKED,
    NAMES,
    SAID,
    inside,
    library,
    weight_files,
)
from motet.safety.reading import WEIGHTS, read_json
from motet.settings import Settings

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

_NAMES = NAMES | {"_name_or_path", "_attn_implementation", "_experts_implementation"}
"""Keys of JSON files that name where a model was loaded from, or code that is not in the export."""
TOKENIZER_FILES = tuple(name for name in (*SAID, *LINKED) if name not in (CONFIG_FILE, GENERATION))
"""Files that a tokenizer may have."""
_LICENCES = ("LICENSE*", "LICENCE*", "NOTICE*", "COPYING*")


class PolicyFolder(Settings):
    """A policy in an export."""

    name: str
    adapter: bool
    """Whether the folder is a LoRA adapter, not a whole model."""
    merged: bool = False
    """Whether it was a LoRA adapter that was merged into its base."""
    base: str | None = None
    """What an adapter is loaded on: a name of the hub, or the folder in the export."""
    rank: int | None = None
    """The rank of an adapter, which vLLM must know."""
    turn_text: tuple[str, ...] = ()
    """Strings that also end a completion. No library reads them from a folder."""


def copy_adapter(source: Path, into: Path, base: str) -> int:
    """Copy an adapter without its tokenizer. It then names `base` as its base model.

    Returns: its rank.

    Raises: ConfigError if a file is missing; OSError.
    """
    into.mkdir(parents=True)
    config = adapter_folder.allowed_keys(source)
    config.setdefault("r", LoraConfig.r)
    kind = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "lora_dropout": 0.0}
    _write(
        into / adapter_folder.FILE,
        {"base_model_name_or_path": base, "inference_mode": True, **kind, **config},
    )
    _place(adapter_folder.weights_of(source), into / adapter_folder.TENSORS)
    ranks: list[int] = [config["r"], *(config.get("rank_pattern") or {}).values()]
    return max(ranks)


def copy_model(source: Path, into: Path) -> None:
    """Copy the files of a model and its tokenizer, and the licence if one is beside them.

    Raises: ConfigError if a file is missing; OSError.
    """
    into.mkdir(parents=True)
    if not (source / CONFIG_FILE).is_file():
        raise ConfigError(f"{source} has no {CONFIG_FILE}; expected the folder of a model")
    _copy_files(source, into, (*SAID, *LINKED))
    for name in weight_files(source):
        _place(inside(source, name, WEIGHTS), into / name)
    for pattern in _LICENCES:
        for file in source.glob(pattern):
            if file.is_file():
                shutil.copyfile(inside(source, file.name), into / file.name)


def _copy_files(source: Path, into: Path, names: Iterable[str]) -> None:
    for name in names:
        if not (source / name).is_file():
            continue
        if name.endswith(".json") and name in SAID:
            _write(into / name, _without_names(read_json(inside(source, name))))
        else:
            (into / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(inside(source, name, WEIGHTS), into / name)


def _without_names(said: Any) -> Any:
    """Drop the folders of this machine in which a library found the model, and names of code."""
    if not isinstance(said, dict):
        return said
    return {key: _without_names(value) for key, value in said.items() if key not in _NAMES}


def write_tokenizer(tokenizer: "PreTrainedTokenizerBase", into: Path) -> None:
    """Write the tokenizer with which a policy plays, which need not be that of its folder: a policy
    on an adapter that others made reads with the tokenizer of its base, and with the chat template
    of the run.
    """
    for name in TOKENIZER_FILES:
        (into / name).unlink(missing_ok=True)
    tokenizer.save_pretrained(into)
    for name in TOKENIZER_FILES:
        if name in SAID and (into / name).is_file():
            _write(into / name, _without_names(read_json(into / name)))


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _place(source: Path, into: Path) -> None:
    """Link a file of weights, or copy it if the file system has no links or is another one."""
    with suppress(OSError):
        os.link(source, into)
        return
    shutil.copyfile(source, into)


def merge(base: str | Path, adapter: Path, into: Path, dtype: str) -> None:
    """Add an adapter to its base in float32, and save the result in `dtype` as a whole model, with
    the tokenizer of the base.

    If the adapter changes the embeddings or the language head, and the base uses one weight for
    both, the result has two: else the change of one would be a change of both.

    Raises: ConfigError if the base cannot be loaded, or if the sum is not finite; OSError.
    """
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file

    from motet.models.adapters import quiet_peft
    from motet.models.backbone import save_model
    from motet.models.compute import DTYPES
    from motet.models.folder import sampling_of
    from motet.models.loading import load_model, load_tokenizer

    model: Any = load_model(base, torch.float32, torch.device("cpu"))
    config = adapter_folder.config_of(adapter, [name for name, _ in model.named_modules() if name])
    saved = load_file(adapter_folder.weights_of(adapter))
    adapter_folder.check_ranks(adapter, config, (one.shape for one in saved.values()))
    what = f"adapter {str(adapter)!r}"
    with quiet_peft(), library(what, "an adapter that PEFT can merge: drop --merge"):
        warnings.filterwarnings("ignore", "Model (has|with) .*tie_word_embeddings")  # `_untie`
        adapted = PeftModel.from_pretrained(model, str(adapter), config=config)
        _untie(adapted)
        merged = adapted.merge_and_unload(safe_merge=True)
    tokenizer = load_tokenizer(base)[0]
    save_model(merged.to(DTYPES[dtype]), tokenizer, sampling_of(base), into)


def _untie(adapted: Any) -> None:
    """Give the language head a weight of its own if an adapter changes it or the embeddings."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from torch import nn

    model: Any = adapted.get_base_model()
    ends = model.get_input_embeddings(), model.get_output_embeddings()
    if not any(isinstance(one, BaseTunerLayer) for one in ends):
        return
    first, head = (getattr(one, "base_layer", one) for one in ends)
    if first.weight is not head.weight:
        return
    head.weight = nn.Parameter(head.weight.detach().clone())
    for config in (model.config, model.config.get_text_config()):
        config.tie_word_embeddings = False
