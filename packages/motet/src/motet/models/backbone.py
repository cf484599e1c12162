"""One base model, loaded once, and the policies that use it.

A model computes in `dtype`, frozen or trained. If `dtype` is narrower than float32, trained weights
have float32 master copies: bfloat16 would round away an update of 5e-6. A fully trained policy has
its own backbone. Any number of LoRA policies share one frozen base, quantised or not; with the
adapters off, the base is their KL reference, so there is no second copy. Dropout is 0 everywhere: a
policy samples and learns with the same probabilities.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.errors import ConfigError, shortened
from motet.models.adapters import Adapters, Mix
from motet.models.capabilities import FAILURES, capabilities_of, mixes_adapters
from motet.models.causal_lm import CausalLM, blocks_of
from motet.models.chat_template import tokenizer_with
from motet.models.completions import EndToken
from motet.models.compute import (
    DTYPES,
    Attention,
    DType,
    Quantize,
    check_attention,
    check_dtype,
    check_quantize,
)
from motet.models.devices import resolve_device
from motet.models.folder import FILTERS, GENERATION, read_object, sampling_of
from motet.models.loading import load_model
from motet.models.memory import is_out_of_memory
from motet.models.parts import frozen, inside, trunk_of, unread_parts
from motet.models.shards import Ranks, Shards
from motet.safety.reading import read_json
from motet.settings import ChatTemplate, Lora

R = TypeVar("R")


class Backbone(CausalLM):
    """A causal LM and the policies on it: its own weights if they are trained, or adapters.

    With `trainable_full`, all weights are trained, and the backbone takes no adapters.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        context_length: int,
        *,
        device: torch.device,
        dtype: torch.dtype,
        trainable_full: bool,
        checkpointing: bool = False,
        attention: Attention = "auto",
        end_tokens: Sequence[EndToken] = (),
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            context_length,
            device=device,
            dtype=dtype,
            checkpointing=checkpointing,
            attention=attention,
            end_tokens=end_tokens,
        )
        self.trainable_full = trainable_full
        self._masters = Masters()
        self.shards: Shards | None = None
        """What holds the weights if several processes share them (`shard`)."""
        self.unread = unread_parts(model)
        """The parts of the model that no text reaches. They are kept, and never trained."""
        self._adapters = Adapters(model, device, self.unread)
        model.requires_grad_(trainable_full)
        frozen(model, self.unread)
        self.mixes_adapters = True
        """Whether we compute adapters ourselves, so that rows of one batch may use different ones
        (`mixing`).

        If false, PEFT computes them, one at a time.
        """
        self.sampling: dict[str, Any] = {}
        """The sampling settings that the model's authors recommend. They are saved with a full
        policy, and have no effect here.
        """
        if trainable_full:
            self._keep_masters(self._weights_of(None))

    @classmethod
    def load(
        cls,
        source: str | Path,
        *,
        device: str = "auto",
        dtype: DType = "float32",
        quantize: Quantize = "none",
        trainable_full: bool = False,
        checkpointing: bool = False,
        attention: Attention = "auto",
        chat_template: ChatTemplate | None = None,
        end_tokens: Sequence[EndToken] = (),
        ranks: Ranks | None = None,
    ) -> Self:
        """Load a folder or a hub name (safetensors only, no remote code).

        Args:
            chat_template: what replaces or completes the model's own template.
            end_tokens: tokens that end a completion, besides those of the model and its template.
            ranks: the processes among which the weights are divided (`shard`), all of which must
                load. Each reads only its part where the files allow that.

        Raises: ConfigError if the model cannot be used.
        """
        if trainable_full and quantize != "none":
            raise ConfigError(
                f"model {str(source)!r} has train: full and quantize {quantize}; expected "
                "quantize: none"
            )
        place = resolve_device(device)
        check_dtype(dtype, place, trainable_full)
        check_attention(attention, place, DTYPES[dtype])
        check_quantize(quantize, place)
        tokenizer, context_length = tokenizer_with(source, chat_template)
        hollow = None if ranks is None else ranks.hollow_model(source, attention)
        wide = torch.float32 if trainable_full else DTYPES[dtype]
        loaded = cls(
            load_model(source, wide, place, quantize, attention) if hollow is None else hollow,
            tokenizer,
            context_length,
            device=place,
            dtype=DTYPES[dtype],
            trainable_full=trainable_full,
            checkpointing=checkpointing,
            attention=attention,
            end_tokens=end_tokens,
        )
        if ranks is not None:
            loaded.shard(ranks)
            if hollow is not None:
                ranks.read_weights(hollow, source)
        if checkpointing and not any(blocks_of(loaded.model)):
            raise ConfigError(
                f"model {str(source)!r} has no blocks that support checkpointing: use "
                "checkpointing: false"
            )
        with torch.no_grad():
            loaded.capabilities = loaded.run(lambda: capabilities_of(loaded, source))
        loaded.sampling = sampling_of(source) if trainable_full else {}
        return loaded

    # ------------------------------------------------------------------------------------- adapters

    @property
    def adapters(self) -> tuple[str, ...]:
        return self._adapters.names

    def add_adapter(self, name: str, lora: Lora, seed: int) -> None:
        """Add a new LoRA policy. It starts equal to the base; `seed` alone decides its random
        factor.
        """
        self._check_frozen(name)
        self._adapters.add(name, lora, seed)
        self._came(name)

    def load_adapter(self, name: str, folder: str | Path) -> None:
        """Load a LoRA policy from a folder that `save_policy` or PEFT wrote."""
        self._check_frozen(name)
        self._adapters.load(name, folder)
        self._came(name)

    def _check_frozen(self, name: str) -> None:
        if self.trainable_full:
            raise ConfigError(
                f"adapter {name!r} needs a frozen base, got a fully trained one: define the model "
                "twice in models"
            )

    def _came(self, name: str) -> None:
        """Complete the setup of an adapter that was added or loaded."""
        self.mixes_adapters = False
        self._check_fits(name)
        self._keep_masters(self._weights_of(name))
        self.mixes_adapters = mixes_adapters(self, self._adapters)

    @torch.no_grad()
    def _check_fits(self, name: str) -> None:
        """Run the adapter once.

        PEFT also adapts linear layers that return more than one tensor, and then fails when they
        are used.

        Raises: ConfigError if the forward pass fails.
        """
        token = torch.zeros((1, 1), dtype=torch.int64, device=self.device)
        try:
            with self.policy(name):
                self.hidden(token, torch.ones_like(token, dtype=torch.bool), token)
        except FAILURES as error:
            if is_out_of_memory(error):
                raise
            raise ConfigError(
                f"adapter {name!r} does not fit this model ({type(self.model).__name__}; "
                f"{type(error).__name__}: {shortened(' '.join(str(error).split()), 300)}): set "
                "the names of its linear layers, such as lora.targets: [q_proj, v_proj]"
            ) from error

    def policy(self, adapter: str | None) -> AbstractContextManager[None]:
        """Activate `adapter`, or the bare base (None: the KL reference); restore the previous one
        at the end.

        A backward pass that recomputes activations (gradient checkpointing) must also run inside.
        """
        return self._adapters.active(adapter, by_peft=not self.mixes_adapters)

    def mixing(self, names: Sequence[str]) -> AbstractContextManager[Mix]:
        """Inside, with the bare base active, each row of a batch may use another adapter
        (`Mix.rows`).

        Without names, nothing changes. It works without gradients, with the weights as they are at
        the start, and only if `mixes_adapters`.
        """
        return self._adapters.mixing(names)

    # -------------------------------------------------------------------------------------- weights

    def parameters_of(self, adapter: str | None) -> list[nn.Parameter]:
        """Return the float32 parameters that the optimizer updates for this policy.

        These are all weights of a full policy (tied ones once), or the weights of one adapter.
        """
        return [self._masters.of(weight) for weight in self._weights_of(adapter).values()]

    def trunk_parameters_of(self, adapter: str | None) -> list[nn.Parameter]:
        """Return the same without a separate language head, which does not affect hidden states."""
        return [self._masters.of(weight) for weight in self._trunk_of(adapter)]

    def sync_from_master(self) -> None:
        """Copy the masters to the bfloat16 weights. Call it after an update of `parameters_of`."""
        self._masters.refresh()

    def freeze_lm_head(self, adapter: str | None) -> None:
        """Stop gradients to this policy's language head: a critic does not use its logits."""
        read = {id(weight) for weight in self._trunk_of(adapter)}
        for weight in self._weights_of(adapter).values():
            weight.requires_grad_(id(weight) in read)

    def _trunk_of(self, adapter: str | None) -> list[nn.Parameter]:
        read = {id(weight) for weight in trunk_of(self.model).parameters()}
        return [weight for weight in self._weights_of(adapter).values() if id(weight) in read]

    def _weights_of(self, adapter: str | None) -> dict[str, nn.Parameter]:
        """Map the name of each trainable weight in the model to the weight that the forward pass
        uses.
        """
        if adapter is None:
            weights = self.model.named_parameters() if self.trainable_full else ()
            return {name: one for name, one in weights if not inside(name, self.unread)}
        return self._adapters.weights_of(adapter)

    def _keep_masters(self, weights: Mapping[str, nn.Parameter]) -> None:
        """Make trained weights bfloat16 if the model is, except those that its authors keep in
        float32.
        """
        if self.dtype == torch.bfloat16:
            narrow = (w for name, w in weights.items() if not self._stays_wide(name))
            self._masters.adopt(narrow, self.dtype)

    def _stays_wide(self, name: str) -> bool:
        wide = self.model._keep_in_fp32_modules_strict or ()
        return any(re.search(pattern.replace("*", ".*"), name) for pattern in wide)

    def shard(self, ranks: Ranks) -> None:
        """Divide all weights among the processes of `ranks`.

        `parameters_of` then returns other parameters.

        Raises: ConfigError if the model mixes dtypes.
        """
        wide = [name for name in self._weights_of(None) if self._stays_wide(name)]
        if wide and self.dtype == torch.bfloat16:
            raise ConfigError(
                f"{type(self.model).__name__} keeps {wide[0]} in float32, so its weights cannot be "
                "divided among several processes in bfloat16: use dtype: float32, or one GPU per "
                "home"
            )
        with self._masters.in_place():
            self.shards = ranks.divide(self.model, self.dtype)
        self._masters = Masters()  # the shards are float32

    def run(self, compute: Callable[[], R]) -> R:
        """Compute something with gradients. If the weights are in shards, all processes must."""
        return compute() if self.shards is None else self.shards.run(compute)

    @property
    def saves(self) -> bool:
        """Whether `save_policy` writes: of the processes that share weights, the first one does."""
        return self.shards is None or self.shards.rank == 0

    def save_policy(self, adapter: str | None, folder: str | Path) -> None:
        """Write a folder that plain transformers can load, or plain PEFT for an adapter.

        If the weights are in shards, all processes must call it.

        Raises: ValueError for the base under adapters, which never changes.
        """
        state = None if self.shards is None else self.shards.whole()
        if not self.saves:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        if adapter is None:
            if self.adapters:
                raise ValueError(
                    "the base of adapters is unchanged, so there is nothing to save: save the "
                    "adapters"
                )
            with self._masters.in_place():
                save_model(self.model, self.tokenizer, self.sampling, folder, state)
            write_ends(folder, self.eos_ids)
            return
        with self._masters.in_place():
            self._adapters.save(adapter, folder)
        self.tokenizer.save_pretrained(folder)
        write_ends(folder, self.eos_ids)


@dataclass(frozen=True)
class Policy:
    """A policy: a backbone and the name of an adapter on it; None for the backbone itself."""

    name: str
    backbone: Backbone
    adapter: str | None = None
    trainable: bool = True

    def active(self) -> AbstractContextManager[None]:
        """Inside, the backbone computes as this policy."""
        return self.backbone.policy(self.adapter)

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters that the optimizer updates; empty if the policy is frozen."""
        return self.backbone.parameters_of(self.adapter) if self.trainable else []

    def own_weights(self) -> list[nn.Parameter]:
        """Return the weights that only this policy has, trained or not."""
        if self.adapter is None:
            return list(self.backbone.model.parameters())
        return self.backbone.parameters_of(self.adapter)

    def save(self, folder: str | Path) -> None:
        self.backbone.save_policy(self.adapter, folder)


# ------------------------------------------------------------------------------------------ masters


class Masters:
    """The masters of some weights of one model.

    Training updates a master; the weight follows at the next `refresh`.
    """

    def __init__(self) -> None:
        self._of: dict[nn.Parameter, nn.Parameter] = {}

    def adopt(self, weights: Iterable[nn.Parameter], dtype: torch.dtype) -> None:
        """Convert these float32 weights to `dtype`, and keep masters of them."""
        for weight in weights:
            master = nn.Parameter(weight.detach())
            weight.data = weight.data.to(dtype)
            weight.register_post_accumulate_grad_hook(partial(_pass_on, master))
            self._of[weight] = master

    def of(self, weight: nn.Parameter) -> nn.Parameter:
        """Return what training updates: the master, or the weight itself if it has none."""
        return self._of[weight] if weight in self._of else weight

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the masters, after an update, to their weights."""
        for weight, master in self._of.items():
            weight.copy_(master)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model holds the masters themselves, so that they can be saved."""
        narrow = {weight: weight.data for weight in self._of}
        for weight, master in self._of.items():
            weight.data = master.data
        try:
            yield
        finally:
            for weight, data in narrow.items():
                weight.data = data


def _pass_on(master: nn.Parameter, weight: torch.Tensor) -> None:
    """Move a weight's gradient to its master.

    The hook refers to the master only: PyTorch keeps hooks where the garbage collector cannot find
    them.
    """
    assert weight.grad is not None
    if master.grad is None:
        master.grad = weight.grad.to(master.dtype)
    else:
        master.grad.add_(weight.grad)
    weight.grad = None


# ------------------------------------------------------------------------------------------- saving


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
