"""The LoRA policies on one frozen base, by PEFT: adding, loading and saving them, and which of them speaks."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import linear
from transformers.modeling_utils import PreTrainedModel

from motet.errors import ConfigError, shortened
from motet.policies import adapter_folder
from motet.policies.folder import library
from motet.settings import Lora
from motet.visible import on_one_line

WEIGHTS = adapter_folder.TENSORS
_Columns: TypeAlias = tuple[tuple[str, float], ...]
"""PEFT's name and scaling of the adapter of each column."""


class Adapters:
    """Adapters on `model` by the names of their policies. At first, and where None is active, the bare base speaks."""

    def __init__(self, model: PreTrainedModel, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._peft: PeftModel | None = None
        self._inner: dict[str, str] = {}
        self._active: str | None = None
        self._layers: list[LoraLayer] = []
        self._modules = [module for module, _ in model.named_modules() if module]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._inner)

    # ------------------------------------------------------------------------------------------------ coming and going

    def add(self, name: str, lora: Lora, seed: int) -> None:
        targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
        config = LoraConfig(
            base_model_name_or_path=self._model.name_or_path,
            task_type="CAUSAL_LM",
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=targets,
            lora_dropout=0.0,
        )
        self._inject(name, config, seed)

    def load(self, name: str, folder: str | Path) -> None:
        """Raises: ConfigError where the folder holds no adapter, or one of another model."""
        weights = adapter_folder.weights_of(folder)
        config = adapter_folder.config_of(folder, self._modules)
        with library(f"adapter {str(folder)!r}", "a LoRA adapter that PEFT saved"):
            saved = load_file(weights)
        saved = self._without_base(folder, saved)
        self._check_size(folder, config, saved)
        config.base_model_name_or_path = self._model.name_or_path
        self._inject(name, config, seed=0)
        inner = self._inner[name]
        needed = set(get_peft_model_state_dict(self._peft, adapter_name=inner, save_embedding_layers=False))
        for what, keys in (("no place for", set(saved) - needed), ("no weights for", needed - set(saved))):
            if keys:
                named = ", ".join(on_one_line(shortened(key, 200)) for key in sorted(keys)[:3])
                raise ConfigError(f"adapter {str(folder)!r} fits another model: {what} {named}")
        with library(f"adapter {str(folder)!r}", "a LoRA adapter of this model"):
            set_peft_model_state_dict(self._peft, saved, adapter_name=inner)

    def _without_base(self, folder: str | Path, saved: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Without the embeddings that PEFT saves beside an adapter of them. Raises: ConfigError where they are not the base's."""
        own = {name.replace(".base_layer.", "."): weight for name, weight in self._model.named_parameters()}
        for key in [key for key in saved if ".base_layer." in key and ".lora_" not in key]:
            name = key.removeprefix("base_model.model.").replace(".base_layer.", ".")
            if name not in own or not torch.equal(saved[key].to(own[name].dtype), own[name].cpu()):
                raise ConfigError(
                    f"adapter {str(folder)!r} changes {on_one_line(shortened(name, 200))} of its base, which belongs to every "
                    f"adapter on it; expected an adapter of this model"
                )
            saved = {other: weight for other, weight in saved.items() if other != key}
        return dict(saved)

    def _check_size(self, folder: str | Path, config: LoraConfig, saved: Mapping[str, torch.Tensor]) -> None:
        """Before memory is taken for it. Raises: ConfigError where no matrix in the file has the rank of the config."""
        ranks = {min(matrix.shape) for matrix in saved.values() if matrix.ndim == 2}
        said = {config.r, *(config.rank_pattern or {}).values()}
        if max(said) > max(ranks, default=0):
            raise ConfigError(
                f"adapter {str(folder)!r} says rank {max(said)}, and its weights have at most {max(ranks, default=0)}; expected "
                f"the config of these weights"
            )

    def _inject(self, name: str, config: LoraConfig, seed: int) -> None:
        if name in self._inner:
            raise ConfigError(f"adapter {name!r} is already on this backbone: {', '.join(self._inner)}")
        # PEFT forbids dots in a name and mistakes a name like "lora" for its own prefix, so it gets names of ours.
        inner = f"policy{len(self._inner)}"
        config.inference_mode = False
        with torch.random.fork_rng(devices=[self._device] if self._device.type == "cuda" else []), _quiet():
            torch.manual_seed(seed)
            try:
                if self._peft is None:
                    self._peft = PeftModel(self._model, config, adapter_name=inner)
                else:
                    self._peft.add_adapter(inner, config)
            except (MemoryError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # whatever PEFT meets in a config or a model that is a stranger's
                said = " ".join(str(error).split()) or type(error).__name__
                raise ConfigError(f"adapter {name!r} does not fit this model: {shortened(said, 600)}") from error
        self._inner[name] = inner
        self._layers = [module for module in self._model.modules() if isinstance(module, LoraLayer)]
        for adapter in self._inner:
            for weight in self.weights_of(adapter).values():
                weight.requires_grad_(True)
        self._switch(self._active)
        self._peft.eval()

    def weights_of(self, name: str) -> dict[str, nn.Parameter]:
        """Name in the model -> weight, as it computes."""
        part = f".{self._inner[name]}."
        # An adapter of an embedding ends with the name: lora_embedding_A.NAME.
        return {where: weight for where, weight in self._model.named_parameters() if part in f"{where}."}

    def save(self, name: str, folder: str | Path) -> None:
        """Writes what PEFT can load, into a folder that exists."""
        inner = self._inner[name]
        state = get_peft_model_state_dict(self._peft, adapter_name=inner, save_embedding_layers=False)
        save_file({key: tensor.contiguous().cpu() for key, tensor in state.items()}, Path(folder) / WEIGHTS)
        self._peft.peft_config[inner].save_pretrained(str(folder))

    # ------------------------------------------------------------------------------------------------ speaking

    @contextmanager
    def speaking(self, name: str | None) -> Iterator[None]:
        """Inside, the model computes with this adapter, or as the bare base."""
        if name is not None and name not in self._inner:
            raise KeyError(f"no adapter {name!r} on this backbone; there are: {', '.join(self._inner) or 'none'}")
        before = self._active
        self._switch(name)
        try:
            yield
        finally:
            self._switch(before)

    @contextmanager
    def mixing(self, names: Sequence[str]) -> Iterator["Mix"]:
        """Inside, each row of a batch speaks as one of `names`, as `Mix.rows` was told last. For where the base is active and no
        gradient is wanted, and `abilities.mixes_adapters` has found it exact. Later changes of the weights are not seen.
        """
        mix = Mix(self._layers, {name: self._inner[name] for name in names})
        try:
            yield mix
        finally:
            mix.close()

    def _switch(self, name: str | None) -> None:
        self._active = name
        if self._peft is None:
            return
        # PEFT turns gradients on and off with the adapters; who is trained is not decided by who plays.
        trained = [(parameter, parameter.requires_grad) for parameter in self._model.parameters()]
        if name is None:
            self._peft.base_model.disable_adapter_layers()
        else:
            self._peft.base_model.enable_adapter_layers()
            self._peft.base_model.set_adapter(self._inner[name])
        for parameter, flag in trained:
            parameter.requires_grad = flag


class Mix:
    """Rows of several adapters in one batch.

    All rows are computed at once, by the base and by one product with the matrices of all adapters side by side, of which each
    row keeps its own part (Hu et al. 2021: x W + s x A B). PEFT's own `adapter_names` gathers rows in every layer.
    """

    def __init__(self, layers: Sequence[LoraLayer], inner: Mapping[str, str]) -> None:
        self._inner = inner
        self._scales: dict[_Columns, torch.Tensor] = {}
        self._hooks = [
            layer.register_forward_hook(hook) for layer in layers if (hook := self._added(layer)) is not None
        ]

    def rows(self, speakers: Sequence[str]) -> None:
        """From now on a batch has a row of each of these."""
        for columns, scale_B1R in self._scales.items():
            each = [[scale * (inner == self._inner[name]) for inner, scale in columns] for name in speakers]
            # In float32, as PEFT's scaling is: in bfloat16 it would be rounded.
            self._scales[columns] = torch.tensor(each, device=scale_B1R.device)[:, None]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _added(self, layer: LoraLayer) -> Callable[..., torch.Tensor] | None:
        """A hook that adds what the adapters make of a layer's rows to what the base has made of them."""
        there = [name for name in self._inner.values() if name in layer.lora_A]
        if not there:
            return None
        down_RI = torch.cat([layer.lora_A[name].weight for name in there])
        up_RO = torch.cat([layer.lora_B[name].weight for name in there], dim=1).T.contiguous()
        columns = tuple((name, layer.scaling[name]) for name in there for _ in range(len(layer.lora_A[name].weight)))
        self._scales.setdefault(columns, torch.zeros(0, device=down_RI.device))

        def add(layer: nn.Module, given: tuple[torch.Tensor], made_BLO: torch.Tensor) -> torch.Tensor:
            low_BLR = linear(given[0].to(down_RI.dtype), down_RI) * self._scales[columns]
            low_NR, made_NO = low_BLR.to(up_RO.dtype).flatten(0, -2), made_BLO.flatten(0, -2)
            if made_NO.dtype == up_RO.dtype:
                made_NO = torch.addmm(made_NO, low_NR, up_RO)
            else:  # a quantised base may compute in a narrower type
                made_NO = made_NO + (low_NR @ up_RO).to(made_NO.dtype)
            return made_NO.view(made_BLO.shape)

        return add


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PEFT's remarks on what it does right by itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")
        warnings.filterwarnings("ignore", message=r"The following (rank|alpha)_pattern keys did not match")
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
        yield
