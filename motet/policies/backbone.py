"""One base model, loaded once, and the policies that live on it.

A model computes in `dtype`, frozen or trained; what is trained has float32 masters where that is narrower. A fully trained policy
has a backbone of its own. Any number of LoRA policies share a frozen base, quantised or not; with the adapters off it is their KL
reference: no second copy. Dropout is 0 everywhere, so a policy plays and learns with the same probabilities.
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
from motet.policies import attention
from motet.policies.abilities import FAILURES, NONE, abilities_of, mixes_adapters
from motet.policies.adapters import Adapters, Mix
from motet.policies.attention_choice import Attention, check_attention
from motet.policies.folder import GENERATION, sampling_of
from motet.policies.loading import DTYPES, DType, check_dtype, load_model, load_tokenizer, resolve_device
from motet.policies.masters import Masters
from motet.policies.memory import is_out_of_memory
from motet.policies.quantized import Quantize, check_quantize
from motet.policies.recompute import blocks_of, recomputing
from motet.policies.score import score_hidden, score_logits
from motet.policies.stream import Stream
from motet.reading import read_json
from motet.settings import Lora


class Backbone:
    """A causal LM of transformers, its tokenizer, its device, and the adapters on it.

    `eos_ids` are all tokens that end an answer: the tokenizer's and the generation config's. `pad_id` never reaches a loss or
    an attention, so a model without a pad token gets its end-of-sequence token there and no new embedding.
    `context_length` counts prompt and answer together (tokens). With `checkpointing`, passes with gradients and without a cache
    keep only the input of each block. An `attention` other than auto is that of transformers as it is.
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
        self.pad_id = _pad_id(tokenizer, self.eos_ids, model.get_input_embeddings().num_embeddings)
        self._accepts = frozenset(inspect.signature(model.forward).parameters)
        self._trunk_accepts = frozenset(inspect.signature(model.base_model.forward).parameters)
        self._masters = Masters()
        self._adapters = Adapters(model, device)
        model.requires_grad_(trainable_full)
        model.eval()
        if (head := model.get_output_embeddings()) is not None:
            head.register_forward_pre_hook(_dense)
        self.abilities = NONE
        self.mixes_adapters = True
        """Whether rows may speak as their adapters by `mixing`."""
        self.sampling: dict[str, Any] = {}
        """What the model's makers say of how to sample it. It is saved with a full policy, and changes nothing here."""
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
    ) -> Self:
        """Reads a folder or a hub name (safetensors only, no remote code). ConfigError if it cannot work."""
        if trainable_full and quantize != "none":
            raise ConfigError(f"model {str(source)!r} is to be trained whole and has quantize {quantize}: use none")
        place = resolve_device(device)
        check_dtype(dtype, place, trainable_full)
        check_attention(attention, place, DTYPES[dtype])
        check_quantize(quantize, place)
        tokenizer, context_length = load_tokenizer(source)
        model = load_model(source, torch.float32 if trainable_full else DTYPES[dtype], place, quantize, attention)
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
                f"model {str(source)!r} has no blocks that can be computed again: use checkpointing: false"
            )
        loaded.abilities = abilities_of(loaded, source)
        loaded.sampling = sampling_of(source) if trainable_full else {}
        return loaded

    # ------------------------------------------------------------------------------------------------ running

    def logits(
        self,
        tokens_BL: torch.Tensor,
        mask_BK: torch.Tensor | None,
        positions_BL: torch.Tensor,
        keep: int,
        cache: Cache | None = None,
    ) -> tuple[torch.Tensor, Cache]:
        """Logits of the last `keep` of L positions, [B, keep, V], and the cache, grown by L.

        `mask_BK` covers what the cache holds and the L tokens; None where all of it may be seen. The active policy speaks, or
        those that are `mixing`. A model that has no word for positions (ALiBi) or for `logits_to_keep` is not given it.
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
        """What `score` makes log-probabilities of: hidden states where the language head is all that follows them, or logits."""
        if not self._plain_head:
            return self.logits(tokens_BL, mask_BK, positions_BL, keep, cache)
        hidden_BLH, cache = self.hidden(tokens_BL, mask_BK, positions_BL, cache, use_cache=True)
        return hidden_BLH[:, -keep:], cache

    def whole_states(
        self, tokens_BL: torch.Tensor, mask_BL: torch.Tensor, positions_BL: torch.Tensor, keep: int
    ) -> torch.Tensor:
        """What `score` reads, of rows that are read whole: no cache is made, so blocks can be computed again."""
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
        return output.logits[:, -keep:]

    def _recomputing(self) -> AbstractContextManager[None]:
        return recomputing(self.model) if self.checkpointing and torch.is_grad_enabled() else nullcontext()

    def stream_states(self, stream: Stream) -> torch.Tensor:
        """The states before each completion token of a stream, [M, H]."""
        no_mask = stream.tokens_1N.new_zeros((1, 1, 1, 1), dtype=torch.bool)  # four axes: then none of N x N is made
        with self._recomputing():
            output = self.model.base_model(
                input_ids=stream.tokens_1N,
                position_ids=stream.positions_1N,
                attention_mask=no_mask,
                use_cache=False,
                blocks=stream.blocks,
            )
        states_MH: torch.Tensor = output.last_hidden_state[0].index_select(0, stream.ends_M)
        return states_MH

    def score(
        self, states_NX: torch.Tensor, tokens_N: torch.Tensor, temperature_N: torch.Tensor, want_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probability of each token, entropy before it), float32 [N], nats; entropy 0 where it is not wanted."""
        if self._plain_head:
            return score_hidden(states_NX, self.model.get_output_embeddings(), tokens_N, temperature_N, want_entropy)
        return score_logits(states_NX, tokens_N, temperature_N, want_entropy)

    @contextmanager
    def plain_attention(self) -> Iterator[None]:
        """Inside, the model's attention is that of transformers."""
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
        """Whether answers may read their prompt where it stands once (`cache.share_prompts`)."""
        return self.abilities.shares_prompts

    @property
    def streams(self) -> bool:
        """Whether a micro-batch may be one row without padding (`stream_states`)."""
        return self.abilities.streams and self._plain_head

    @property
    def _plain_head(self) -> bool:
        # An adapter on the language head makes it another kind of layer.
        return self.abilities.ends_in_head and type(self.model.get_output_embeddings()) is nn.Linear

    @property
    @torch.no_grad()
    def width(self) -> int:
        """Numbers of one hidden state. Tried, because a config may name the width of its blocks, and OPT may project the last."""
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
        """The last hidden state of every position, [B, L, H], and the cache, grown by L; the language head is not computed."""
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

    # ------------------------------------------------------------------------------------------------ adapters

    @property
    def adapters(self) -> tuple[str, ...]:
        return self._adapters.names

    def add_adapter(self, name: str, lora: Lora, seed: int) -> None:
        """A new LoRA policy. It starts equal to the base; its other factor is drawn from `seed` alone."""
        self._check_frozen(name)
        self._adapters.add(name, lora, seed)
        self._came(name)

    def load_adapter(self, name: str, folder: str | Path) -> None:
        """A LoRA policy from a folder that `save_policy` or PEFT wrote."""
        self._check_frozen(name)
        self._adapters.load(name, folder)
        self._came(name)

    def _check_frozen(self, name: str) -> None:
        if self.trainable_full:
            raise ConfigError(f"adapter {name!r} needs a frozen base, got one that is fully trained: load it twice")

    def _came(self, name: str) -> None:
        """What follows when an adapter was added or loaded."""
        self._check_fits(name)
        self._keep_masters(self._weights_of(name))
        self.mixes_adapters = mixes_adapters(self)

    @torch.no_grad()
    def _check_fits(self, name: str) -> None:
        """PEFT also adapts linear layers that give more than one tensor, and then fails when they are used."""
        token = torch.zeros((1, 1), dtype=torch.int64, device=self.device)
        try:
            with self.policy(name):
                self.hidden(token, torch.ones_like(token, dtype=torch.bool), token)
        except FAILURES as error:
            if is_out_of_memory(error):
                raise
            raise ConfigError(
                f"adapter {name!r} does not fit this model ({type(self.model).__name__}; {type(error).__name__}: "
                f"{shortened(' '.join(str(error).split()), 300)}): name the linear layers that it may change, such as "
                f"lora.targets: [q_proj, v_proj]"
            ) from error

    def policy(self, adapter: str | None) -> AbstractContextManager[None]:
        """Plays as `adapter`, or as the bare base (None: the KL reference), and restores what was active before.

        A backward pass that recomputes activations (gradient checkpointing) must lie inside too.
        """
        return self._adapters.speaking(adapter)

    def mixing(self, names: Sequence[str]) -> AbstractContextManager[Mix]:
        """Inside, where the bare base is active, each row of a batch speaks as one of these adapters: see `Mix.rows`. With
        no names nothing changes.

        Without gradients, with the weights as they are at the start, and only where `mixes_adapters`.
        """
        return self._adapters.mixing(names)

    # ------------------------------------------------------------------------------------------------ weights

    def parameters_of(self, adapter: str | None) -> list[nn.Parameter]:
        """What training this policy moves, float32: all weights of a full policy (tied ones once), or one adapter's."""
        return [self._masters.of(weight) for weight in self._weights_of(adapter).values()]

    def trunk_parameters_of(self, adapter: str | None) -> list[nn.Parameter]:
        """The same without a language head of its own, which takes no part in hidden states."""
        return [self._masters.of(weight) for weight in self._trunk_of(adapter)]

    def follow_masters(self) -> None:
        """To be called when what `parameters_of` gave was moved: bfloat16 weights are made of their masters again."""
        self._masters.refresh()

    def rest_the_head(self, adapter: str | None) -> None:
        """No gradient goes to this policy's language head any more: nobody reads what it says."""
        read = {id(weight) for weight in self._trunk_of(adapter)}
        for weight in self._weights_of(adapter).values():
            weight.requires_grad_(id(weight) in read)

    def _trunk_of(self, adapter: str | None) -> list[nn.Parameter]:
        read = {id(weight) for weight in self.model.base_model.parameters()}
        return [weight for weight in self._weights_of(adapter).values() if id(weight) in read]

    def computing_weights_of(self, adapter: str) -> list[nn.Parameter]:
        """An adapter's weights in the type that it computes in; all that it changes of the base."""
        return list(self._adapters.weights_of(adapter).values())

    def _weights_of(self, adapter: str | None) -> dict[str, nn.Parameter]:
        """Name in the model -> trainable weight, as it computes."""
        if adapter is None:
            return dict(self.model.named_parameters()) if self.trainable_full else {}
        return self._adapters.weights_of(adapter)

    def _keep_masters(self, weights: Mapping[str, nn.Parameter]) -> None:
        """Trained weights compute in bfloat16 where the model does, but for those that its authors keep wide."""
        if self.dtype == torch.bfloat16:
            wide = [pattern.replace("*", ".*") for pattern in self.model._keep_in_fp32_modules_strict or ()]
            narrow = (w for name, w in weights.items() if not any(re.search(pattern, name) for pattern in wide))
            self._masters.adopt(narrow, self.dtype)

    def save_policy(self, adapter: str | None, folder: str | Path) -> None:
        """Writes a folder that plain transformers, or plain PEFT for an adapter, can load. The base itself never changes."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        if adapter is None:
            if self.adapters:
                raise ValueError("the base under adapters is as it was loaded: there is nothing to save")
            with self._masters.in_place():
                self.model.save_pretrained(folder)
            # transformers saves no numbers that it thinks contradict each other, so these are added to its file.
            place = Path(folder) / GENERATION
            said = {**read_json(place), **self.sampling} if place.is_file() else self.sampling
            place.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
            self.tokenizer.save_pretrained(folder)
            return
        with self._masters.in_place():
            self._adapters.save(adapter, folder)


@dataclass(frozen=True)
class Policy:
    """A player: a backbone, and an adapter on it or None for the backbone itself."""

    name: str
    backbone: Backbone
    adapter: str | None = None
    trainable: bool = True

    def active(self) -> AbstractContextManager[None]:
        """Inside, the backbone computes as this policy."""
        return self.backbone.policy(self.adapter)

    def parameters(self) -> list[nn.Parameter]:
        """What its optimiser moves; empty where it is frozen."""
        return self.backbone.parameters_of(self.adapter) if self.trainable else []

    def save(self, folder: str | Path) -> None:
        self.backbone.save_policy(self.adapter, folder)


def _dense(head: nn.Module, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """A model hands its language head a slice of all positions. PyTorch multiplies such a slice by copies of the head's weights,
    one for each row: 272 MB a row at a vocabulary of 151,936 and a width of 896, in bfloat16."""
    return tuple(part.contiguous() for part in given)


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    generation = model.generation_config
    listed = generation.eos_token_id if generation is not None else None
    ids = set(listed) if isinstance(listed, list | tuple) else {listed}
    return tuple(sorted((ids | {tokenizer.eos_token_id}) - {None}))


def _pad_id(tokenizer: PreTrainedTokenizerBase, eos_ids: tuple[int, ...], embeddings: int) -> int:
    """A token that the model has an embedding of: tokenizers may have been given one for padding that it has not."""
    wanted = (tokenizer.pad_token_id, *eos_ids)
    return next((token for token in wanted if token is not None and token < embeddings), 0)
