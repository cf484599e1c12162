"""The LoRA policies on one frozen base, through PEFT: add, load, save and activate them."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer, LoraModel
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import linear
from transformers.modeling_utils import PreTrainedModel

from motet.errors import ConfigError, shortened
from motet.models import adapter_folder
from motet.models.folder import library
from motet.models.parts import without
from motet.safety.visible import on_one_line
from motet.settings import Lora

WEIGHTS = adapter_folder.TENSORS
_Columns: TypeAlias = tuple[tuple[str, float], ...]
"""For each column: PEFT's name of the adapter that it belongs to, and that adapter's scaling."""


ALL = "all-linear"


def check_targets(lora: Lora, modules: Sequence[str], whose: str) -> None:
    """Check that each target is the name of a module, or the end of one.

    PEFT ignores a target that is none if another one is a module. Raises: ConfigError.
    """
    if lora.targets == ALL:
        return
    for target in lora.targets:
        if not any(name == target or name.endswith(f".{target}") for name in modules):
            inner = {name.rpartition(".")[0] for name in modules}
            last = sorted({name.rpartition(".")[2] for name in modules if name not in inner})
            raise ConfigError(
                f"{whose}: lora.targets: got {target!r}, which is no module of the model; expected "
                f"some of {shortened(', '.join(last))}"
            )


def refused_layers(model: PreTrainedModel) -> list[str] | None:
    """Return the names of the linear layers that PEFT adapts in no model of this type; None if it
    adapts them all.

    Fast kernels of some recurrent layers read a layer's weights without calling it, so an adapter
    would have no effect. PEFT says which by an error, so models without weights are tried.
    """
    if not any(isinstance(module, nn.Conv1d) for module in model.modules()):
        return None  # no recurrent layers
    linear = (path for path, one in model.named_modules() if isinstance(one, nn.Linear))
    names = {path.removesuffix(".base_layer").rpartition(".")[2] for path in linear}
    refused: list[str] = []
    while True:
        with torch.device("meta"), quiet_peft():
            twin = type(model)(model.config)
            config = LoraConfig(target_modules=ALL, exclude_modules=refused or None)
            try:
                PeftModel(twin, config)
            except ValueError as error:
                found = sorted(name for name in names if repr(name) in str(error))
                if not set(found) - set(refused):
                    return refused or None  # the error is of another kind: `add` says it
                refused += [name for name in found if name not in refused]
            else:
                return refused or None


class Adapters:
    """The adapters on `model`, by policy name.

    No adapter is active at first: then, or when None is activated, the model is the bare base.
    """

    def __init__(
        self, model: PreTrainedModel, device: torch.device, unread: Sequence[str] = ()
    ) -> None:
        """Create it without adapters. `unread` are parts of the model that get none."""
        self._model = model
        self._unread = unread
        self._device = device
        self._peft: PeftModel | None = None
        self._inner: dict[str, str] = {}
        self._speaking: str | None = None
        self._by_peft: str | None = None
        self._layers: list[nn.Module] = []
        self._modules = [module for module, _ in model.named_modules() if module]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._inner)

    # ------------------------------------------------------------------- adding, loading and saving

    def add(self, name: str, lora: Lora, seed: int) -> None:
        """Add a new adapter. Raises: ConfigError if one of its targets is no module."""
        check_targets(lora, self._modules, f"adapter {name!r}")
        targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
        config = LoraConfig(
            base_model_name_or_path=_from_anywhere(self._model.name_or_path),
            task_type="CAUSAL_LM",
            r=lora.rank,
            lora_alpha=lora.alpha,  # type: ignore[arg-type] # PEFT takes any number
            target_modules=targets,
            exclude_modules=without(
                self._unread, refused_layers(self._model) or () if targets == ALL else ()
            ),
            lora_dropout=0.0,
        )
        self._inject(name, config, seed)

    def load(self, name: str, folder: str | Path) -> None:
        """Load an adapter from a folder that PEFT saved.

        Raises: ConfigError if the folder holds no adapter, or an adapter of another model.
        """
        weights = adapter_folder.weights_of(folder)
        config = adapter_folder.config_of(folder, self._modules)
        with library(f"adapter {str(folder)!r}", "a LoRA adapter that PEFT saved"):
            saved = load_file(weights)
        saved = self._without_base(folder, saved)
        adapter_folder.check_ranks(folder, config, (one.shape for one in saved.values()))
        config.base_model_name_or_path = _from_anywhere(self._model.name_or_path)
        self._inject(name, config, seed=0)
        inner = self._inner[name]
        needed = set(
            get_peft_model_state_dict(self._peft, adapter_name=inner, save_embedding_layers=False)
        )
        for what, keys in (
            ("the model has no parameter for", set(saved) - needed),
            ("the file has no weights for", needed - set(saved)),
        ):
            if keys:
                named = ", ".join(on_one_line(shortened(key, 200)) for key in sorted(keys)[:3])
                raise ConfigError(f"adapter {str(folder)!r} fits another model: {what} {named}")
        with library(f"adapter {str(folder)!r}", "a LoRA adapter of this model"):
            set_peft_model_state_dict(self._peft, saved, adapter_name=inner)

    def _without_base(
        self, folder: str | Path, saved: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Drop the embeddings that PEFT saves beside an adapter of the embeddings.

        Raises: ConfigError if they differ from those of the base.
        """
        own = {
            name.replace(".base_layer.", "."): weight
            for name, weight in self._model.named_parameters(remove_duplicate=False)  # may be tied
        }
        for key in [key for key in saved if ".base_layer." in key and ".lora_" not in key]:
            name = key.removeprefix("base_model.model.").replace(".base_layer.", ".")
            if name not in own or not torch.equal(saved[key].to(own[name].dtype), own[name].cpu()):
                raise ConfigError(
                    f"adapter {str(folder)!r} changes {on_one_line(shortened(name, 200))} of the "
                    "base, which all adapters share; expected an adapter of this model"
                )
            saved = {other: weight for other, weight in saved.items() if other != key}
        return dict(saved)

    def _inject(self, name: str, config: LoraConfig, seed: int) -> None:
        if name in self._inner:
            raise ConfigError(
                f"adapter {name!r} is already on this backbone; expected a name other than "
                f"{', '.join(self._inner)}"
            )
        # PEFT forbids dots in a name, and confuses a name like "lora" with its own prefix. So we
        # give it names of our own.
        inner = f"policy{len(self._inner)}"
        config.inference_mode = False
        with (
            torch.random.fork_rng(devices=[self._device] if self._device.type == "cuda" else []),
            quiet_peft(),
        ):
            torch.manual_seed(seed)
            try:
                if self._peft is None:
                    self._peft = PeftModel(self._model, config, adapter_name=inner)
                else:
                    self._peft.add_adapter(inner, config)
            except (MemoryError, torch.OutOfMemoryError):
                raise
            except Exception as error:
                # PEFT may raise anything: the config or the model may come from anywhere.
                said = " ".join(str(error).split()) or type(error).__name__
                raise ConfigError(
                    f"adapter {name!r} does not fit this model: {shortened(said, 600)}"
                ) from error
        self._inner[name] = inner
        known, self._layers = (
            self._layers,
            [each for each in self._model.modules() if isinstance(each, LoraLayer)],
        )
        for layer in self._layers:
            if layer not in known:
                layer.register_forward_hook(self._add_speaking)
        for adapter in self._inner:
            for weight in self.weights_of(adapter).values():
                weight.requires_grad_(True)
        self._peft_speaks(None)
        self._peft.eval()

    def weights_of(self, name: str) -> dict[str, nn.Parameter]:
        """Map the name of each weight in the model to the weight that the forward pass uses."""
        part = f".{self._inner[name]}."
        # The weight of an embedding's adapter has the adapter's name at its end:
        # lora_embedding_A.NAME.
        return {
            where: weight for where, weight in self._model.named_parameters() if part in f"{where}."
        }

    def save(self, name: str, folder: str | Path) -> None:
        """Write the adapter in PEFT's format, into an existing folder."""
        assert self._peft is not None
        inner = self._inner[name]
        state = get_peft_model_state_dict(
            self._peft, adapter_name=inner, save_embedding_layers=False
        )
        tensors = {key: tensor.contiguous().cpu() for key, tensor in state.items()}
        save_file(tensors, Path(folder) / WEIGHTS)
        config: Any = self._peft.peft_config[inner]
        if isinstance(config.target_modules, set):  # its order differs between processes
            config.target_modules = sorted(config.target_modules)
        config.save_pretrained(str(folder))

    # ----------------------------------------------------------------------------------- activating

    @contextmanager
    def active(self, name: str | None, by_peft: bool = False) -> Iterator[None]:
        """Inside, the model computes with this adapter, or as the bare base if `name` is None.

        Our own hook computes the adapter, with the same product as `mixing`; with `by_peft`, PEFT
        does.
        """
        if name is not None and name not in self._inner:
            raise KeyError(
                f"got adapter {name!r}; this backbone has: {', '.join(self._inner) or 'none'}"
            )
        before = self._speaking, self._by_peft
        self._speak(*((None, name) if by_peft else (name, None)))
        try:
            yield
        finally:
            self._speak(*before)

    def _speak(self, name: str | None, by_peft: str | None) -> None:
        if by_peft != self._by_peft:
            self._peft_speaks(by_peft)
        self._speaking = name

    def _add_speaking(
        self, layer: nn.Module, given: tuple[torch.Tensor], made_BLO: torch.Tensor
    ) -> torch.Tensor | None:
        """Forward hook: add the active adapter's output to the base layer's output.

        Gradients flow into both. PEFT would pass over all outputs twice more: once to scale and
        once to add.
        """
        assert isinstance(layer, LoraLayer)
        if self._speaking is None or (inner := self._inner[self._speaking]) not in layer.lora_A:
            return None
        down_AI = _weight(layer.lora_A, inner)
        low_BLA = linear(given[0].to(down_AI.dtype), down_AI) * layer.scaling[inner]
        return _plus(made_BLO, low_BLA, _weight(layer.lora_B, inner).T)

    @contextmanager
    def mixing(self, names: Sequence[str]) -> Iterator["Mix"]:
        """Inside, the rows of one batch may use different adapters out of `names`: see `Mix.rows`.

        Use it only while the bare base is active, without gradients, and if
        `capabilities.mixes_adapters` found it exact. Later changes of the weights have no effect.
        """
        mix = Mix(self._layers, {name: self._inner[name] for name in names})
        try:
            yield mix
        finally:
            mix.close()

    def _peft_speaks(self, name: str | None) -> None:
        self._by_peft = name
        if self._peft is None:
            return
        # PEFT changes requires_grad when it switches adapters. Restore it: the active policy need
        # not be the policy in training.
        trained = [(parameter, parameter.requires_grad) for parameter in self._model.parameters()]
        base = self._peft.base_model
        assert isinstance(base, LoraModel)
        if name is None:
            base.disable_adapter_layers()
        else:
            base.enable_adapter_layers()
            base.set_adapter(self._inner[name])
        for parameter, flag in trained:
            parameter.requires_grad = flag


class Mix:
    """Compute a batch whose rows use different adapters.

    The base computes all rows at once. One more product computes all rows with the concatenated
    matrices of all adapters, and each row keeps only its own adapter's part (the `s x A B` of x W +
    s x A B in Hu et al. 2021). PEFT's own `adapter_names` gathers rows in every layer.
    """

    def __init__(self, layers: Sequence[nn.Module], inner: Mapping[str, str]) -> None:
        self._inner = inner
        self._scales: dict[_Columns, torch.Tensor] = {}
        self._hooks = [
            layer.register_forward_hook(hook)
            for layer in layers
            if (hook := self._added(layer)) is not None
        ]

    def rows(self, adapters: Sequence[str]) -> None:
        """Set the adapter of each row of the following batches."""
        for columns, scale_B1A in self._scales.items():
            each = [
                [scale * (inner == self._inner[name]) for inner, scale in columns]
                for name in adapters
            ]
            # Keep the scaling in float32, as PEFT does: bfloat16 would round it.
            self._scales[columns] = torch.tensor(each, device=scale_B1A.device)[:, None]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _added(self, layer: nn.Module) -> Callable[..., torch.Tensor] | None:
        """Return a forward hook that adds the adapters' outputs to the base layer's output.

        None if no adapter changes this layer.
        """
        assert isinstance(layer, LoraLayer)
        there = [name for name in self._inner.values() if name in layer.lora_A]
        if not there:
            return None
        down_AI = torch.cat([_weight(layer.lora_A, name) for name in there])
        up_AO = torch.cat([_weight(layer.lora_B, name) for name in there], dim=1).T.contiguous()
        columns = tuple(
            (name, layer.scaling[name])
            for name in there
            for _ in range(len(_weight(layer.lora_A, name)))
        )
        self._scales.setdefault(columns, torch.zeros(0, device=down_AI.device))

        def add(
            layer: nn.Module, given: tuple[torch.Tensor], made_BLO: torch.Tensor
        ) -> torch.Tensor:
            low_BLA = linear(given[0].to(down_AI.dtype), down_AI) * self._scales[columns]
            return _plus(made_BLO, low_BLA.to(up_AO.dtype), up_AO)

        return add


def _weight(matrices: nn.ModuleDict, name: str) -> torch.Tensor:
    return cast(torch.Tensor, matrices[name].weight)


def _plus(made_BLO: torch.Tensor, low_BLA: torch.Tensor, up_AO: torch.Tensor) -> torch.Tensor:
    """Compute made + low @ up in one product.

    A quantised base may compute in a narrower dtype than its adapters; then the sum is separate.
    """
    low_LA, made_LO = low_BLA.flatten(0, -2), made_BLO.flatten(0, -2)
    if made_LO.dtype == up_AO.dtype:
        return torch.addmm(made_LO, low_LA, up_AO).view(made_BLO.shape)
    return made_BLO + (low_LA @ up_AO).to(made_LO.dtype).view(made_BLO.shape)


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Suppress PEFT's warnings about settings that PEFT itself corrects."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")
        warnings.filterwarnings(
            "ignore", message=r"The following (rank|alpha)_pattern keys did not match"
        )
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
        yield


def _from_anywhere(source: str | None) -> str | None:
    """Return the base's folder as an absolute path, so that PEFT finds it from every working
    directory; a name of the hub is unchanged."""
    return str(Path(source).resolve()) if source and Path(source).is_dir() else source
