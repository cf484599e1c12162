"""The sections of a run config, except services. Every field has a docstring.

`schema` combines the sections.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    field_serializer,
    model_validator,
)

from motet.settings import ChatTemplate, Decode, Lora, Optimizer, Settings, TinyModel

AtOnce = Annotated[int, Field(gt=0, le=1024)]
"""Number of threads or processes that run in parallel on one machine."""


def _never(value: Any) -> Any:
    return 0 if value is None else value


Interval = Annotated[NonNegativeInt, BeforeValidator(_never)]
"""A number of steps. 0 or null: never."""

# ----------------------------------------------------------------------------------- tasks and data


class Named(Settings):
    """A part chosen by name, with the options that the part itself declares.

    The options are validated when the part is looked up.
    """

    model_config = ConfigDict(extra="allow")

    name: str
    """A registered name, `package.module:Class`, or `./file.py:Class` relative to the config file
    that contains it."""

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class DataSource(Settings):
    """Rows of a dataset, from the hub (`name`) or from a local `path`.

    A `path` in a higher layer (an override, or a config that extends another) replaces a `name` of
    a lower layer. The subset is dropped then, and the split loses its slice: data.eval.path=FILE
    plays the whole file, and data.eval.split=test[:32] a part of it.
    """

    name: str | None = None
    """A dataset of the hub, such as openai/openai_humaneval."""
    subset: str | None = None
    """The configuration of a hub dataset, such as main of openai/gsm8k."""
    path: str | None = None
    """A file (.jsonl, .json, .parquet, or .csv, with strings only), or a folder with a dataset."""
    split: str = "train"
    """A split, or a slice of one: train[:1000], test[33:163]."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Maps the environment's field names to the dataset's column names."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.name is None) == (self.path is None):
            raise ValueError(
                f"got name {self.name} and path {self.path}, expected exactly one of them"
            )
        if self.subset is not None and self.name is None:
            raise ValueError(
                f"got subset {self.subset} with path {self.path}, expected it with name: drop it"
            )
        return self


class DataConfig(Settings):
    """The source of the tasks. Leave it out if the environment provides its own tasks."""

    train: DataSource | None = None
    """Tasks to train on."""
    eval: DataSource | None = None
    """Held-out tasks, used only for evaluation."""


# ---------------------------------------------------------------------- models, policies and agents


def known_device(device: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", device):
        raise ValueError(f"got {device!r}, expected auto, cpu, mps, cuda, or cuda:0, cuda:1, ...")
    return device


def known_date(value: str | None) -> str | None:
    """Return `value` if it is a date, or a date and a time without a time zone."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    if found is None or found.tzinfo is not None:
        raise ValueError(
            f"got {value!r}; expected a date, or a date and a time of the day, such as 2026-11-25 "
            "or 2026-11-25 13:42:13"
        )
    return value


class ModelConfig(Settings):
    """A base model. It is loaded once, and all its adapters and frozen policies share it."""

    path: str | None = None
    """A model of the hub, such as Qwen/Qwen3-0.6B, or a folder that contains one."""
    embedded: TinyModel | None = None
    """Create a tiny, randomly initialised model instead of loading one."""
    device: Annotated[str, AfterValidator(known_device)] = "auto"
    """auto (cuda, else mps, else cpu), cpu, mps, cuda, or cuda:0, cuda:1, ..."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """The dtype of computation. Trained weights keep float32 master copies."""
    quantize: Literal["none", "8bit", "4bit"] = "none"
    """Quantize the linear layers of a model that carries adapters or frozen policies: 8bit is
    LLM.int8, 4bit is NF4. It needs pip install "motet[quantized]" and a device that bitsandbytes
    supports. The quantized weights themselves cannot be trained."""
    attention: Literal["auto", "sdpa", "flash_attention_2", "eager"] = "auto"
    """The attention implementation of transformers (attn_implementation). auto: sdpa if the model
    supports it, else eager; and on top of sdpa Motet's own attention function if it gives the same
    result. With that function the completions of one prompt share its computation, and
    micro-batches have no padding. The other values select the implementations of transformers
    unchanged, without these two savings. flash_attention_2 needs the package flash_attn, a CUDA
    device, and dtype bfloat16 or float16."""
    chat_template: str | None = None
    """A Jinja file that formats chats. The default is the model's own template, or else lines
    `role: content`."""
    end_tokens: tuple[Annotated[str, Field(min_length=1)] | NonNegativeInt, ...] = ()
    """Tokens that end a completion, as they are written in a text or by their numbers. They are
    added to the end-of-sequence tokens of the model and to the token with which its chat template
    ends a turn. A string of several tokens belongs into `decode.stop`."""
    template_options: dict[str, Any] = Field(default_factory=dict)
    """Variables of the chat template, such as enable_thinking: false. They are saved with the
    template of a trained policy."""
    template_date: Annotated[str | None, AfterValidator(known_date)] = None
    """The date and time that the chat template reads with strftime_now, such as 2026-11-25 or
    2026-11-25 13:42:13. By default that of the start of a run, which is noted in the run's config,
    so that the run can be resumed, replayed and evaluated with the same prompts; without a run, the
    present."""
    checkpointing: bool = False
    """Gradient checkpointing: keep only the input of each block and recompute the rest. It needs a
    fraction of the memory and about a third more time."""

    @property
    def template(self) -> ChatTemplate:
        return ChatTemplate(self.chat_template, self.template_options, self.template_date)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.path is None) == (self.embedded is None):
            what = "neither" if self.path is None else "both"
            raise ValueError(
                f"got {what} of path and embedded, expected exactly one (embedded: {{}}: a tiny "
                "model)"
            )
        if self.embedded is not None and self.quantize != "none":
            raise ValueError(f"got quantize {self.quantize} with embedded, expected quantize: none")
        return self


class PolicyConfig(Settings):
    """A policy: a set of weights that plays, and how they are trained."""

    model: str
    """A key of `models`."""
    train: Literal["full", "lora", "frozen"] = "full"
    """full: all weights of a copy of the model. lora: a low-rank adapter on it. frozen: nothing."""
    adapter: str | None = None
    """A folder with a saved adapter to start from."""
    lora: Lora | None = None
    """The new adapter of train: lora. The defaults apply if it is left out."""
    optimizer: Optimizer | None = None
    """Fields that differ from the common `optimizer`."""

    @model_validator(mode="after")
    def _refuse_what_is_not_used(self) -> Self:
        if self.lora is not None and (self.train != "lora" or self.adapter is not None):
            instead = (
                f"train: {self.train}"
                if self.train != "lora"
                else f"adapter {self.adapter}, which has its own settings"
            )
            raise ValueError(
                f"got lora settings with {instead}, expected train: lora and no adapter: drop one"
            )
        if self.adapter is not None and self.train == "full":
            raise ValueError(
                f"got adapter {self.adapter} with train: full; expected train: lora or frozen"
            )
        if self.optimizer is not None and self.train == "frozen":
            raise ValueError(
                "got optimizer settings with train: frozen, which is never updated: use train: "
                "full or lora, or drop them (optimizer: null)"
            )
        return self

    @property
    def new_adapter(self) -> Lora | None:
        """The settings of the adapter to create, or None if none is created."""
        return (self.lora or Lora()) if self.train == "lora" and self.adapter is None else None

    @field_serializer("optimizer", mode="wrap")
    def _only_what_differs(
        self, value: Optimizer | None, handler: SerializerFunctionWrapHandler
    ) -> Any:
        return None if value is None else value.model_dump(mode="json", exclude_unset=True)


class CriticConfig(Settings):
    """The critics of an algorithm that uses critics.

    Own view: one critic per agent; agents that use the same policies at all turns share one critic.
    Joint view: one critic for all agents.
    """

    model: str | None = None
    """A key of `models`. The default is the model of the agent's first policy (joint view: of the
    first agent's)."""
    train: Literal["full", "lora", "head", "policy"] = "full"
    """full: all weights of a copy of the model, and a value head. lora: an adapter on the shared
    model, and a head. head: only a head, on the model as loaded. policy: a head on the agent's own
    policy, whose weights then also predict the values."""
    lora: Lora | None = None
    """The adapter of train: lora. The defaults apply if it is left out."""
    optimizer: Optimizer | None = None
    """Fields that differ from the common `optimizer`."""
    epochs: PositiveInt | None = None
    """Passes over the value samples of a step. The default is the number of passes of the
    policies."""
    coefficient: PositiveFloat = 1.0
    """Coefficient of the value loss. It matters most with train: policy."""

    @model_validator(mode="after")
    def _refuse_what_is_not_used(self) -> Self:
        if self.lora is not None and self.train != "lora":
            raise ValueError(
                f"got lora settings with train: {self.train}, expected train: lora: drop one"
            )
        if self.model is not None and self.train == "policy":
            raise ValueError(
                f"got model {self.model} with train: policy, which uses its own: drop one"
            )
        return self

    @field_serializer("optimizer", mode="wrap")
    def _only_what_differs(
        self, value: Optimizer | None, handler: SerializerFunctionWrapHandler
    ) -> Any:
        return None if value is None else value.model_dump(mode="json", exclude_unset=True)


class AgentConfig(Settings):
    """How one agent is played. In YAML also just the name of a policy, or a list with one policy
    per turn."""

    policy: tuple[str, ...] = Field(min_length=1)
    """Keys of `policies`, one per turn. The last one is used for all further turns."""
    system: str | None = None
    """A system message that is put before the environment's prompt."""
    decode: Decode | None = None
    """Fields that differ from the common `decode`."""

    @field_serializer("decode", mode="wrap")
    def _only_what_differs(
        self, value: Decode | None, handler: SerializerFunctionWrapHandler
    ) -> Any:
        return None if value is None else value.model_dump(mode="json", exclude_unset=True)


def written_out(player: Any) -> Any:
    """Return the normal form of `aux`, `[first, later]` and `{policy: aux}`, in which layers are
    merged."""
    if isinstance(player, str | list | tuple):
        player = {"policy": player}
    if isinstance(player, Mapping) and isinstance(player.get("policy"), str):
        player = {**player, "policy": [player["policy"]]}
    return player


# ----------------------------------------------------------------------------------------- training


class CentralizedConfig(Settings):
    """One policy writes the completions of all agents: `motet.environments.centralized`."""

    agent: str = Field("joint", min_length=1)
    """The name of the one agent. `team` maps it to its policy."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Agent of the environment -> the tag of its section in a completion. The default is agent_0,
    agent_1, ..."""


class TrainConfig(Settings):
    """The length of training and the sizes of its batches."""

    steps: PositiveInt | None = None
    """Training steps."""
    epochs: PositiveInt | None = None
    """Alternative to steps: passes over the training tasks."""
    tasks_per_step: PositiveInt | Literal["all"] = 8
    """Tasks played in one step. all: every training task in every step."""
    token_budget: PositiveInt = 16384
    """Maximum number of tokens in a micro-batch, padding included. It bounds the memory of training
    and changes results only by rounding."""
    rows_per_batch: PositiveInt = 256
    """Maximum number of completions decoded at the same time. It bounds the memory of sampling."""
    tokens_per_batch: PositiveInt = 65536
    """Maximum number of tokens decoded at the same time, prompts, completions and padding included.
    It bounds the memory of the cache."""
    checkpoint_every: Interval = 50
    """Steps between checkpoints. With 0 or null there is one before the first step and one at the
    end."""
    keep_checkpoints: PositiveInt = 2
    """How many of the newest checkpoints are kept."""
    keep_every: Interval = 0
    """Also keep the checkpoint of every N-th step. 0 or null keeps no such checkpoints."""
    keep_best: str | None = None
    """Also keep the checkpoint at which this metric was highest, such as evaluate/success. RUN/best
    contains its team; evaluate and play accept that folder like a run."""
    checkpoint_beside: bool = True
    """Write checkpoints in the background, from one copy of the tensors in main memory. With false
    the run waits and makes no copy; it also does so if a checkpoint has more than 1 GiB of
    tensors."""
    max_lag: Literal[0, 1] = 0
    """Steps between the weights that play and those that learn. 1: step n+1 is played with what
    step n−1 published. With vLLM samplers it is played while step n is learnt, which hides the
    shorter of the two; without them nothing overlaps, and no step is faster."""
    max_step_kl: PositiveFloat | None = None
    """Bound on what one training step may change: the KL divergence in nats of a joint action
    before and after it, summed over the agents that act together. A step that goes further is
    scaled back, and the learning rate with it. null: no bound."""
    max_fault_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """The run stops if a larger share of the joint actions of a step or of an evaluation fails."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(
                f"got steps {self.steps} and epochs {self.epochs}, expected exactly one (the "
                "other: null)"
            )
        return self


class EvaluationConfig(Settings):
    """Evaluation on the held-out tasks, without training."""

    every: Interval = 0
    """Steps between evaluations. With 0 or null there is one before and one after training."""
    tasks: PositiveInt | None = None
    """Use only the first N held-out tasks. The default is all of them."""
    samples: PositiveInt = 1
    """Paths per task."""
