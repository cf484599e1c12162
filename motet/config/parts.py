"""The sections of a run config, each with a docstring under every field; `schema` makes the whole of them."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    field_serializer,
    model_validator,
)

from motet.settings import Decode, Lora, Optimizer, Settings, TinyModel

AtOnce = Annotated[int, Field(gt=0, le=1024)]
"""Threads or processes side by side on one machine."""

# ---------------------------------------------------------------------------------------------------- what is played


class Named(Settings):
    """A part by its name, and the options it declares itself; they are checked when the part is looked up."""

    model_config = ConfigDict(extra="allow")

    name: str
    """A registered name, `package.module:Class`, or `./file.py:Class` relative to the config that says so."""

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Source(Settings):
    """Rows of a dataset: of the hub by `name`, or of a local `path`.

    A `path` laid over a `name` (an override, or a config that extends another) stands in its place: the subset is gone, and of
    the split the name stays, not the slice. So data.eval.path=FILE plays the whole file; data.eval.split=test[:32] cuts it.
    """

    name: str | None = None
    """A dataset of the hub, such as openai/openai_humaneval."""
    subset: str | None = None
    """Which configuration of a hub dataset, such as main of openai/gsm8k."""
    path: str | None = None
    """A local file (.jsonl, .json, .parquet, or .csv, where every value is a text), or a folder that holds a dataset."""
    split: str = "train"
    """A split, or a part of one: train[:1000], test[33:163]."""
    fields: dict[str, str] = Field(default_factory=dict)
    """What the environment calls a field -> what the dataset calls the column."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.name is None) == (self.path is None):
            raise ValueError(f"got name {self.name} and path {self.path}, expected exactly one of them")
        if self.subset is not None and self.name is None:
            raise ValueError(f"got subset {self.subset} with path {self.path}: only a hub dataset has subsets, drop it")
        return self


class Data(Settings):
    """Where tasks come from. Left out where the environment has tasks of its own."""

    train: Source | None = None
    """Tasks to learn from."""
    eval: Source | None = None
    """Tasks held out, for evaluation only."""


# ---------------------------------------------------------------------------------------------------- who plays


def _known_device(device: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", device):
        raise ValueError(f"got {device!r}, expected auto, cpu, mps, cuda, or cuda:0, cuda:1, ...")
    return device


class Base(Settings):
    """A base model, loaded once however many adapters and frozen policies stand on it."""

    path: str | None = None
    """A model of the hub, such as Qwen/Qwen3-0.6B, or a folder with one."""
    embedded: TinyModel | None = None
    """Make a tiny model on the spot instead."""
    device: Annotated[str, AfterValidator(_known_device)] = "auto"
    """auto (cuda, else mps, else cpu), cpu, mps, cuda, or cuda:0, cuda:1, ..."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """The type the model computes in. What is trained keeps float32 masters."""
    quantize: Literal["none", "8bit", "4bit"] = "none"
    """Hold the linear layers in fewer bits, under adapters and frozen policies: 8bit is LLM.int8, 4bit is NF4. Needs
    pip install "motet[quantized]" and a device that bitsandbytes knows; nothing of the model itself can be trained."""
    attention: Literal["auto", "sdpa", "flash_attention_2", "eager"] = "auto"
    """The attention implementation of transformers (attn_implementation). auto: sdpa where the model has it, else eager, and
    Motet's own on top of sdpa where it gives the same: answers then share their prompt, and micro-batches have no padding. The
    others are those of transformers as they are, without these two. flash_attention_2 needs the package flash_attn, a CUDA
    device, and dtype bfloat16 or float16."""
    checkpointing: bool = False
    """Keep only each block's input for the backward pass and compute the rest again: about a third more time for a fraction of
    the memory."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.path is None) == (self.embedded is None):
            what = "neither" if self.path is None else "both"
            raise ValueError(f"got {what} of path and embedded, expected exactly one (embedded: {{}} is a tiny model)")
        if self.embedded is not None and self.quantize != "none":
            raise ValueError(f"got quantize {self.quantize} with embedded, which is tiny as it is: use quantize: none")
        return self


class Policy(Settings):
    """Weights that play, and how they learn."""

    model: str
    """A key of `models`."""
    train: Literal["full", "lora", "frozen"] = "full"
    """All weights of a copy of the model, a low-rank adapter on it, or nothing."""
    adapter: str | None = None
    """A folder with a saved adapter to start from."""
    lora: Lora | None = None
    """The new adapter of train: lora; its defaults where left out."""
    optimizer: Optimizer | None = None
    """Fields that differ from the common `optimizer`."""

    @model_validator(mode="after")
    def _refuse_what_is_not_used(self) -> Self:
        if self.lora is not None and (self.train != "lora" or self.adapter is not None):
            instead = f"train: {self.train}" if self.train != "lora" else f"adapter {self.adapter}, which has its own"
            raise ValueError(
                f"got lora settings with {instead}; expected them with train: lora and no adapter: drop one"
            )
        if self.adapter is not None and self.train == "full":
            raise ValueError(f"got adapter {self.adapter} with train: full; expected train: lora or frozen")
        return self

    @property
    def new_adapter(self) -> Lora | None:
        """The shape of the adapter to make; None where none is made."""
        return (self.lora or Lora()) if self.train == "lora" and self.adapter is None else None

    @field_serializer("optimizer", mode="wrap")
    def _only_what_differs(self, value: Optimizer | None, handler: SerializerFunctionWrapHandler) -> Any:
        return None if value is None else value.model_dump(mode="json", exclude_unset=True)


class CriticSettings(Settings):
    """The critics of an algorithm that has them: one per agent (own view), agents that share all policies sharing theirs too, or
    one for all (joint view)."""

    model: str | None = None
    """A key of `models`; the model of the agent's first policy unless set (joint view: of the first agent's)."""
    train: Literal["full", "lora", "head", "policy"] = "full"
    """full: all weights of a copy of the model, and a value head. lora: an adapter on the model that others share, and a head.
    head: only a head, on the model as it was loaded. policy: a head on the agent's own policy, whose weights then answer for its
    values too."""
    lora: Lora | None = None
    """The adapter of train: lora; its defaults where left out."""
    optimizer: Optimizer | None = None
    """Fields that differ from the common `optimizer`."""
    epochs: PositiveInt | None = None
    """Passes over a step's values; as many as the policies make unless set."""
    coefficient: PositiveFloat = 1.0
    """What the value loss is multiplied with; it matters most with train: policy."""

    @model_validator(mode="after")
    def _refuse_what_is_not_used(self) -> Self:
        if self.lora is not None and self.train != "lora":
            raise ValueError(f"got lora settings with train: {self.train}; expected them with train: lora: drop one")
        if self.model is not None and self.train == "policy":
            raise ValueError(f"got model {self.model} with train: policy, which reads the policy's own: drop one")
        return self

    @field_serializer("optimizer", mode="wrap")
    def _only_what_differs(self, value: Optimizer | None, handler: SerializerFunctionWrapHandler) -> Any:
        return None if value is None else value.model_dump(mode="json", exclude_unset=True)


class Player(Settings):
    """Who plays one agent, and how. In YAML also just the policy's name, or a list with one per turn."""

    policy: tuple[str, ...] = Field(min_length=1)
    """Keys of `policies`, one per turn; the last one repeats."""
    system: str | None = None
    """A system message before the environment's prompt."""
    decode: Decode | None = None
    """Fields that differ from the common `decode`."""

    @field_serializer("decode", mode="wrap")
    def _only_what_differs(self, value: Decode | None, handler: SerializerFunctionWrapHandler) -> Any:
        return None if value is None else value.model_dump(mode="json", exclude_unset=True)


def written_out(player: Any) -> Any:
    """`aux`, `[first, later]` and `{policy: aux}` as the one form that layers of configs are merged in."""
    if isinstance(player, str | list | tuple):
        player = {"policy": player}
    if isinstance(player, Mapping) and isinstance(player.get("policy"), str):
        player = {**player, "policy": [player["policy"]]}
    return player


# ---------------------------------------------------------------------------------------------------- how it learns


class Train(Settings):
    """How long, and in what portions."""

    steps: PositiveInt | None = None
    """Training steps."""
    epochs: PositiveInt | None = None
    """Or passes over the training tasks."""
    tasks_per_step: PositiveInt = 8
    """Tasks played in one step."""
    token_budget: PositiveInt = 16384
    """Padded tokens a micro-batch may have: bounds the memory of learning, changes no result but by rounding."""
    rows_per_batch: PositiveInt = 256
    """Answers decoded at a time: bounds the memory of playing."""
    tokens_per_batch: PositiveInt = 65536
    """Padded tokens of prompts and answers decoded at a time: bounds the memory of the cache."""
    checkpoint_every: NonNegativeInt = 50
    """Steps between checkpoints; 0 is only before the first and after the last."""
    keep_checkpoints: PositiveInt = 2
    """How many of the newest are kept."""
    keep_every: NonNegativeInt = 0
    """Also keep the checkpoints of steps that are a multiple of this; 0 keeps none."""
    keep_best: str | None = None
    """Also keep the checkpoint at which this metric was highest, such as evaluate/success. Its team is in RUN/best, which
    evaluate and play take as they take a run."""
    checkpoint_beside: bool = True
    """Write checkpoints while the run goes on, from one copy in main memory; or let the run wait and make no copy, as it does
    anyway where a checkpoint has more than 1 GiB of tensors."""
    max_fault_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """A step or an evaluation of which a larger share of the joint actions failed stops the run."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(f"got steps {self.steps} and epochs {self.epochs}, expected exactly one (the other: null)")
        return self


class Evaluation(Settings):
    """Playing the held-out tasks without learning."""

    every: NonNegativeInt = 0
    """Steps between evaluations; 0 is only before and after training."""
    tasks: PositiveInt | None = None
    """Use the first so many held-out tasks; all of them unless set."""
    samples: PositiveInt = 1
    """Paths per task."""


# ---------------------------------------------------------------------------------------------------- around it


class Wandb(Settings):
    """Weights & Biases; needs pip install "motet[wandb]"."""

    project: str = "motet"
    """The project runs are filed under."""
    entity: str | None = None
    """The user or team; the account's own unless set."""
    name: str | None = None
    """What the run is called; the run's own name unless set."""
    tags: tuple[str, ...] = ()
    """Labels."""


class Report(Settings):
    """What is recorded besides metrics.jsonl and summary.json."""

    tensorboard: bool = True
    """Mirror the metrics to RUN/tensorboard."""
    wandb: Wandb | None = None
    """Mirror the metrics to Weights & Biases."""
    episodes: Literal["all", "none"] = "all"
    """Write every training episode to RUN/episodes, or only those of evaluations."""


def _web_address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or parts.query:
        raise ValueError(f"got {url!r}, expected an address such as http://localhost:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "got an address with a password in it, which would be recorded: name a variable in key_variable"
        )
    return url


class Expert(Settings):
    """A model that gives feedback between turns, behind any endpoint of the OpenAI chat protocol."""

    base_url: Annotated[str, AfterValidator(_web_address)]
    """What comes before /chat/completions, such as https://api.openai.com/v1 or http://localhost:8000/v1."""
    model: str
    """What the server calls the model."""
    key_variable: str | None = None
    """The environment variable that holds the key, such as OPENAI_API_KEY; none is sent unless set. The key itself is never
    written anywhere."""
    timeout_seconds: PositiveFloat = 60.0
    """Time one try has, from connecting to the end of the answer."""
    retries: NonNegativeInt = 3
    """Further tries after a lost connection or one of the statuses 408, 409, 429 and 5xx; the time between them doubles, up
    to timeout_seconds."""
    concurrency: PositiveInt = 8
    """Questions at once."""
    temperature: NonNegativeFloat | None = None
    """How freely the expert speaks; as the server does it unless set."""
    max_tokens: PositiveInt | None = None
    """Tokens an answer may have; as the server does it unless set."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """More fields of the request, as the server names them, such as {max_completion_tokens: 800}."""

    @property
    def parameters(self) -> dict[str, Any]:
        """What is sent beside the model and the messages."""
        said = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return {**self.extra, **{name: value for name, value in said.items() if value is not None}}

    @model_validator(mode="after")
    def _extra_is_more(self) -> Self:
        taken = {"model", "messages", "stream", "temperature", "max_tokens"} & set(self.extra)
        if taken:
            raise ValueError(
                f"extra sets {', '.join(sorted(taken))}; expected other fields: these are set beside it or fixed"
            )
        return self


class Verifier(Settings):
    """A model that says how likely an answer is right: behind a server (POST BASE_URL/predict), in this process, or several."""

    base_url: Annotated[str, AfterValidator(_web_address)] | None = None
    """What comes before /predict, such as http://localhost:8000."""
    folder: str | None = None
    """Or a folder that motet verifier train wrote: the model is loaded here."""
    device: Annotated[str, AfterValidator(_known_device)] = "auto"
    """folder: where its model computes."""
    token_budget: PositiveInt = 16384
    """folder: padded tokens of answers scored at a time."""
    reads: Literal["end", "mean", "lowest"] = "end"
    """folder: what of an answer is its score. end: the value after all of it. mean, lowest: of the values after each of its
    lines, so that every step of a solution counts; for verifiers trained with loss: every. A server says this for itself."""
    constant: float | None = Field(default=None, ge=0.0, le=1.0)
    """Or no model, and this score for every answer: to see whether all else works."""
    ensemble: tuple["Verifier", ...] = ()
    """Or several of these; two or more."""
    combine: Literal["mean", "minimum"] = "mean"
    """ensemble: what their scores of one answer become. The minimum is harder to fool."""
    key_variable: str | None = None
    """The environment variable that holds the key; none is sent unless set. The key itself is never written anywhere."""
    timeout_seconds: PositiveFloat = 60.0
    """Time one try has, from connecting to the end of the answer."""
    retries: NonNegativeInt = 3
    """Further tries after a lost connection or one of the statuses 408, 409, 429 and 5xx; the time between them doubles, up
    to timeout_seconds."""
    concurrency: PositiveInt = 8
    """Requests at once."""
    batch_size: PositiveInt = 64
    """Answers in one request, at most."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [
            name for name in ("base_url", "folder", "constant", "ensemble") if getattr(self, name) not in (None, ())
        ]
        if len(given) != 1:
            raise ValueError(
                f"got {' and '.join(given) or 'none'} of base_url, folder, constant and ensemble; expected exactly one"
            )
        if len(self.ensemble) == 1:
            raise ValueError("ensemble has one verifier; expected two or more: name it without an ensemble")
        return self


class SandboxSettings(Settings):
    """Where code that models wrote is run, and how much of the machine it gets."""

    workers: AtOnce | None = None
    """Programs at once; one per core unless set."""
    minimum_level: Literal["limits", "seccomp", "landlock", "namespaces"] = "seccomp"
    """Refuse to run with less protection than this."""
    wall_seconds: PositiveFloat = 5.0
    """Time one program has, by the clock."""
    cpu_seconds: PositiveInt = 3
    """Time one program has, of a processor."""
    memory_mb: PositiveInt = 512
    """Address space of one program, MiB."""
    packages: tuple[str, ...] = ()
    """Packages that programs may import besides the standard library, such as numpy, and those that these import."""
