"""One base model, loaded once, and the policies that use it.

A model computes in `dtype`, frozen or trained. If `dtype` is narrower than float32, trained weights
have float32 master copies. A fully trained policy has its own backbone. Any number of LoRA policies
share one frozen base, quantised or not; with the adapters off, the base is their KL reference, so
there is no second copy. Dropout is 0 everywhere: a policy samples and learns with the same
probabilities.
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.errors import ConfigError, shortened
from motet.models import attention
from motet.models.adapters import Adapters, Mix
from motet.models.attention_choice import Attention, check_attention
from motet.models.capabilities import FAILURES, NONE, capabilities_of, mixes_adapters
from motet.models.chat_template import tokenizer_with
from motet.models.folder import GENERATION, sampling_of
from motet.models.loading import (
    DTYPES,
    DType,
    check_dtype,
    embeddings_of,
    load_model,
    resolve_device,
)
from motet.models.logprobs import score_hidden, score_logits
from motet.models.masters import Masters
from motet.models.memory import is_out_of_memory
from motet.models.quantized import Quantize, check_quantize
from motet.models.recompute import blocks_of, recomputing
from motet.models.sequence_packing import PackedRow
from motet.reading import read_json
from motet.settings import Lora


class Backbone:
    """A causal LM of transformers, its tokenizer, its device, and the adapters on it.

    `eos_ids` are all tokens that end a completion: those of the tokenizer and of the generation
    config. `pad_id` never reaches a loss or an attention, so a model without a pad token uses its
    end-of-sequence token and needs no new embedding. `context_length` is the limit of prompt and
    completion together, in tokens. With `checkpointing`, forward passes with gradients and without
    a cache keep only the input of each block. An `attention` other than auto is that of
    transformers, unchanged.
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
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.device = device
        self.dtype = dtype
        self.trainable_full = trainable_full
        self.checkpointing = checkpointing
        self.attention = attention
        self.context_length = context_length
        self.eos_ids = _eos_ids(model, tokenizer)
        self.pad_id = _pad_id(tokenizer, self.eos_ids, embeddings_of(model).num_embeddings)
        self._accepts = frozenset(inspect.signature(model.forward).parameters)
        self._trunk_accepts = frozenset(inspect.signature(model.base_model.forward).parameters)
        self._masters = Masters()
        self._adapters = Adapters(model, device)
        model.requires_grad_(trainable_full)
        model.eval()
        if (head := model.get_output_embeddings()) is not None:
            head.register_forward_pre_hook(_dense)
        self.capabilities = NONE
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
        chat_template: str | None = None,
    ) -> Self:
        """Load a folder or a hub name (safetensors only, no remote code).

        `chat_template` is a Jinja file that replaces the model's own template.

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
        model = load_model(
            source, torch.float32 if trainable_full else DTYPES[dtype], place, quantize, attention
        )
        loaded = cls(
            model,
            tokenizer,
            context_length,
            device=place,
            dtype=DTYPES[dtype],
            trainable_full=trainable_full,
            checkpointing=checkpointing,
            attention=attention,
        )
        if checkpointing and not any(blocks_of(model)):
            raise ConfigError(
                f"model {str(source)!r} has no blocks that support checkpointing: use "
                "checkpointing: false"
            )
        loaded.capabilities = capabilities_of(loaded, source)
        loaded.sampling = sampling_of(source) if trainable_full else {}
        return loaded

    # ------------------------------------------------------------------------------- forward passes

    def logits(
        self,
        tokens_BL: torch.Tensor,
        mask_BK: torch.Tensor | None,
        positions_BL: torch.Tensor,
        keep: int,
        cache: Cache | None = None,
    ) -> tuple[torch.Tensor, Cache]:
        """Return the logits of the last `keep` of L positions, [B, keep, V], and the cache, grown
        by L.

        `mask_BK` covers the cached tokens and the L new ones; None if all of them are visible. The
        active policy computes, or the adapters set by `mixing`. Positions (which ALiBi models lack)
        and `logits_to_keep` are passed only to models that accept them.
        """
        known = {"position_ids": positions_BL, "logits_to_keep": keep}
        output = self.model(
            input_ids=tokens_BL,
            attention_mask=mask_BK,
            past_key_values=cache,
            use_cache=True,
            **{key: value for key, value in known.items() if key in self._accepts},
        )
        return output.logits[:, -keep:], output.get("past_key_values")

    def states(
        self,
        tokens_BL: torch.Tensor,
        mask_BK: torch.Tensor,
        positions_BL: torch.Tensor,
        keep: int,
        cache: Cache | None = None,
    ) -> tuple[torch.Tensor, Cache]:
        """Return what `score` needs: hidden states if only the language head follows them, else
        logits.
        """
        if not self._plain_head:
            return self.logits(tokens_BL, mask_BK, positions_BL, keep, cache)
        hidden_BLH, grown = self.hidden(tokens_BL, mask_BK, positions_BL, cache, use_cache=True)
        assert grown is not None
        return hidden_BLH[:, -keep:], grown

    def whole_states(
        self, tokens_BL: torch.Tensor, mask_BL: torch.Tensor, positions_BL: torch.Tensor, keep: int
    ) -> torch.Tensor:
        """Return what `score` needs for complete rows.

        No cache is made, so gradient checkpointing can recompute the blocks.
        """
        if self._plain_head:
            return self.hidden(tokens_BL, mask_BL, positions_BL)[0][:, -keep:]
        known = {"position_ids": positions_BL, "logits_to_keep": keep}
        with self._recomputing():
            output = self.model(
                input_ids=tokens_BL,
                attention_mask=mask_BL,
                use_cache=False,
                **{key: value for key, value in known.items() if key in self._accepts},
            )
        logits_BLV: torch.Tensor = output.logits[:, -keep:]
        return logits_BLV

    def _recomputing(self) -> AbstractContextManager[None]:
        return (
            recomputing(self.model)
            if self.checkpointing and torch.is_grad_enabled()
            else nullcontext()
        )

    def packed_states(self, row: PackedRow) -> torch.Tensor:
        """Return the hidden states before each completion token of a packed row, [M, H]."""
        no_mask = row.tokens_1N.new_zeros(
            (1, 1, 1, 1),
            dtype=torch.bool,
            # Four axes: transformers then makes no N x N mask.
        )
        with self._recomputing():
            output = self.model.base_model(
                input_ids=row.tokens_1N,
                position_ids=row.positions_1N,
                attention_mask=no_mask,
                use_cache=False,
                blocks=row.blocks,
            )
        states_MH: torch.Tensor = output.last_hidden_state[0].index_select(0, row.ends_M)
        return states_MH

    def score(
        self,
        states_NX: torch.Tensor,
        tokens_N: torch.Tensor,
        temperature_N: torch.Tensor,
        want_entropy: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (log-probability of each token, entropy before it): float32 [N], nats.

        The entropy is 0 if `want_entropy` is false.
        """
        if self._plain_head:
            return score_hidden(
                states_NX, self.model.get_output_embeddings(), tokens_N, temperature_N, want_entropy
            )
        return score_logits(states_NX, tokens_N, temperature_N, want_entropy)

    @contextmanager
    def plain_attention(self) -> Iterator[None]:
        """Inside, the model uses the attention of transformers instead of ours."""
        before = self.model.config._attn_implementation
        if before != attention.NAME:
            yield
            return
        self.model.set_attn_implementation("sdpa")
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)

    @property
    def accepts_positions(self) -> bool:
        return "position_ids" in self._accepts

    @property
    def shares_prompts(self) -> bool:
        """Whether completions may read one copy of their prompt's cache (`cache.share_prompts`)."""
        return self.capabilities.shares_prompts

    @property
    def packs_sequences(self) -> bool:
        """Whether a micro-batch may be one packed row without padding (`packed_states`)."""
        return self.capabilities.packs_sequences and self._plain_head

    @property
    def _plain_head(self) -> bool:
        # An adapter on the language head changes the layer's type.
        return (
            self.capabilities.ends_in_head and type(self.model.get_output_embeddings()) is nn.Linear
        )

    @property
    @torch.no_grad()
    def width(self) -> int:
        """The size of one hidden state.

        It is measured, because a config may give the width of the blocks, and OPT may project the
        last state to another width.
        """
        token = torch.zeros((1, 1), dtype=torch.int64, device=self.device)
        return self.hidden(token, torch.ones_like(token, dtype=torch.bool), token)[0].shape[-1]

    def hidden(
        self,
        tokens_BL: torch.Tensor,
        mask_BK: torch.Tensor,
        positions_BL: torch.Tensor,
        cache: Cache | None = None,
        *,
        use_cache: bool = False,
    ) -> tuple[torch.Tensor, Cache | None]:
        """Return the last hidden state of every position, [B, L, H], and the cache, grown by L.

        The language head is not computed.
        """
        known = {"position_ids": positions_BL}
        with nullcontext() if use_cache else self._recomputing():
            output = self.model.base_model(
                input_ids=tokens_BL,
                attention_mask=mask_BK,
                past_key_values=cache,
                use_cache=use_cache,
                **{key: value for key, value in known.items() if key in self._trunk_accepts},
            )
        return output.last_hidden_state, output.past_key_values if use_cache else None

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
        self.mixes_adapters = mixes_adapters(self)

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
        read = {id(weight) for weight in self.model.base_model.parameters()}
        return [weight for weight in self._weights_of(adapter).values() if id(weight) in read]

    def computing_weights_of(self, adapter: str) -> list[nn.Parameter]:
        """Return an adapter's weights in the dtype of the forward pass: everything that the adapter
        adds.
        """
        return list(self._adapters.weights_of(adapter).values())

    def _weights_of(self, adapter: str | None) -> dict[str, nn.Parameter]:
        """Map the name of each trainable weight in the model to the weight that the forward pass
        uses.
        """
        if adapter is None:
            return dict(self.model.named_parameters()) if self.trainable_full else {}
        return self._adapters.weights_of(adapter)

    def _keep_masters(self, weights: Mapping[str, nn.Parameter]) -> None:
        """Make trained weights bfloat16 if the model is, except those that its authors keep in
        float32.
        """
        if self.dtype == torch.bfloat16:
            wide = [
                pattern.replace("*", ".*")
                for pattern in self.model._keep_in_fp32_modules_strict or ()
            ]
            narrow = (
                w
                for name, w in weights.items()
                if not any(re.search(pattern, name) for pattern in wide)
            )
            self._masters.adopt(narrow, self.dtype)

    def save_policy(self, adapter: str | None, folder: str | Path) -> None:
        """Write a folder that plain transformers can load, or plain PEFT for an adapter.

        Raises: ValueError for the base under adapters, which never changes.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        if adapter is None:
            if self.adapters:
                raise ValueError(
                    "the base of adapters is unchanged, so there is nothing to save: save the "
                    "adapters"
                )
            with self._masters.in_place():
                self.model.save_pretrained(folder)
            # transformers does not save sampling settings that it considers contradictory, so we
            # add them to its file.
            place = Path(folder) / GENERATION
            said = {**read_json(place), **self.sampling} if place.is_file() else self.sampling
            place.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
            self.tokenizer.save_pretrained(folder)
            return
        with self._masters.in_place():
            self._adapters.save(adapter, folder)
        self.tokenizer.save_pretrained(folder)


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

    def save(self, folder: str | Path) -> None:
        self.backbone.save_policy(self.adapter, folder)


def _dense(head: nn.Module, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Make the input of the language head contiguous.

    A model passes it a slice of all positions. PyTorch multiplies such a slice by copies of the
    head's weights, one copy for each row: 272 MB per row for a vocabulary of 151,936 and a width of
    896, in bfloat16.
    """
    return tuple(part.contiguous() for part in given)


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    generation = model.generation_config
    listed = generation.eos_token_id if generation is not None else None
    ids = set(listed) if isinstance(listed, list | tuple) else {listed}
    return tuple(sorted((ids | {tokenizer.eos_token_id}) - {None}))


def _pad_id(tokenizer: PreTrainedTokenizerBase, eos_ids: tuple[int, ...], embeddings: int) -> int:
    """Choose a pad token that the model has an embedding for: a tokenizer's own pad token may have
    none.
    """
    wanted = (tokenizer.pad_token_id, *eos_ids)
    return next((token for token in wanted if token is not None and token < embeddings), 0)
