"""A vLLM engine: token ids in; token ids, log-probabilities and stop reasons out.

The class is plain; Ray makes an actor of it. The log-probabilities are those of the whole softmax
at the sampling temperature, as Motet's own sampler gives them. Adapters are named
`policy@version`: each version is an adapter of its own, so no cached prefix of an older version is
ever read. An adapter is never reloaded in place.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from motet.config.sections import VLLM_RANKS
from motet.errors import ConfigError, MotetError, shortened
from motet.safety import temporary

CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""The sizes of an attention head that vLLM computes on a CPU (`CPUAttentionBackend`)."""
CPU_PREFILL_TOKENS = 8192
"""The most prompt tokens that an engine on a CPU reads at once, unless one prompt is longer."""
INSTEAD = "set the engine to own (cluster.samplers.engine, or --engine of motet serve and chat)"
CPU_CACHE_GB = "1"
"""Memory for keys and values on a CPU, unless VLLM_CPU_KVCACHE_SPACE says otherwise."""


@dataclass(frozen=True)
class EngineSettings:
    """What one engine loads. All policies of a home share it."""

    source: str
    """The folder of the base model, or its name on the hub."""
    context: int
    """The most tokens of a prompt and its completion together."""
    dtype: str
    rows: int
    """The most rows that are sampled at once."""
    rank: int = 0
    """The largest rank of an adapter; 0 if the policy has none."""
    adapters: int = 1
    """How many adapters may be used in one batch."""
    gpus: int = 0
    """0: on the CPU."""
    memory: float = 0.9
    """Share of the memory of each GPU."""
    transfer: Literal["files", "nccl"] = "files"
    """How a full policy gets its weights."""


@dataclass(frozen=True)
class EngineRow:
    """One completion to sample. `stops` are strings; `key` seeds the draws of this row alone."""

    policy: str
    prompt: tuple[int, ...]
    tokens: int
    """The most tokens of the completion."""
    temperature: float
    stops: tuple[str, ...]
    key: int
    greedy: bool = False
    ends: bool = True
    """Whether an end-of-sequence token ends it."""
    top_p: float = 1.0
    top_k: int = 0
    """0: all tokens."""
    stop_ids: tuple[int, ...] = ()
    """More tokens that end it: special tokens of its stop strings."""


@dataclass(frozen=True)
class EngineAnswer:
    """Sampled tokens, with the log-probability (nats) of each."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool


def vllm_rank(rank: int) -> int:
    """Return the smallest rank that vLLM takes and that holds `rank`.

    Raises: ConfigError.
    """
    fitting = [known for known in VLLM_RANKS if known >= rank]
    if not fitting:
        raise ConfigError(
            f"an adapter has rank {rank}, but vLLM takes at most {VLLM_RANKS[-1]}: lower "
            f"lora.rank, or {INSTEAD}"
        )
    return fitting[0]


class VllmEngine:
    """One replica. `load` loads the model; every other call needs it first."""

    def __init__(self) -> None:
        self._adapters: dict[str, Any] = {}
        """Policy -> the LoRARequest of its published version."""
        self._last_id = 0
        self._connected = False

    def load(self, settings: EngineSettings) -> None:
        """Load the base model. Raises: ConfigError if vLLM cannot load it."""
        self._settings = chosen = settings
        _set_environment(chosen)
        from vllm import LLM

        from motet_cluster.files_transfer import NAME, register

        register()
        _check_head_size(chosen)
        lora: dict[str, Any] = {}
        if chosen.rank:
            lora = {
                "enable_lora": True,
                "max_lora_rank": vllm_rank(chosen.rank),
                "max_loras": chosen.adapters,
                # While a version is replaced, the old one and the new one are both loaded.
                "max_cpu_loras": 2 * chosen.adapters,
            }
        place: dict[str, Any] = {
            # On a CPU, vLLM cannot read half a prompt of a row that has a seed of its own.
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(CPU_PREFILL_TOKENS, chosen.context, chosen.rows),
        }
        if chosen.gpus:
            place = {
                "gpu_memory_utilization": chosen.memory,
                "tensor_parallel_size": chosen.gpus,
            }
        try:
            self._llm = LLM(
                model=chosen.source,
                load_format="safetensors",  # never pickles
                dtype=chosen.dtype,
                max_model_len=chosen.context,
                max_num_seqs=chosen.rows,
                enforce_eager=not chosen.gpus,
                logprobs_mode="processed_logprobs",
                generation_config="vllm",  # not the model's own sampling defaults
                weight_transfer_config={"backend": NAME if chosen.transfer == "files" else "nccl"},
                seed=0,
                disable_log_stats=True,
                **lora,
                **place,
            )
        except (ValueError, RuntimeError, NotImplementedError) as error:
            raise ConfigError(
                f"vLLM cannot load {chosen.source!r}: {shortened(str(error), 600)}; change what it "
                f"names, or {INSTEAD}"
            ) from error
        self._core = self._llm.llm_engine

    # ----------------------------------------------------------------------------------- sampling

    def generate(self, rows: Sequence[EngineRow], eos: Sequence[int]) -> list[EngineAnswer]:
        """Return one answer per row, in order. The same rows give the same answers on a CPU.

        `eos` are the tokens that end a completion.
        """
        from vllm import SamplingParams, TokensPrompt

        if not self._settings.gpus:
            # What an earlier call left in the cache would change the last bits of this one.
            self._llm.reset_prefix_cache()
        outputs = self._llm.generate(
            [TokensPrompt(prompt_token_ids=list(row.prompt)) for row in rows],
            [
                SamplingParams(
                    n=1,
                    # vLLM's greedy rows have the log-probabilities of temperature 1.
                    temperature=0.0 if row.greedy else row.temperature,
                    top_p=row.top_p,
                    top_k=row.top_k,
                    max_tokens=row.tokens,
                    seed=row.key % 2**63,
                    logprobs=0,  # of the sampled token alone
                    ignore_eos=True,  # stop_token_ids has every token that Motet stops at
                    stop_token_ids=[*eos, *row.stop_ids] if row.ends else None,
                    stop=list(row.stops) or None,
                    include_stop_str_in_output=True,
                    detokenize=bool(row.stops),
                )
                for row in rows
            ],
            lora_request=[self._adapters.get(row.policy) for row in rows]
            if self._adapters
            else None,
            use_tqdm=False,
        )
        return [_answer(output.outputs[0]) for output in outputs]

    # ------------------------------------------------------------------------------------ weights

    def load_adapter(self, policy: str, version: str, files: Mapping[str, bytes]) -> None:
        """Load the adapter of `policy`, then remove its older version."""
        from vllm.lora.request import LoRARequest

        self._last_id += 1
        with _on_disk(files) as folder:
            new = LoRARequest(f"{policy}@{version}", self._last_id, folder)
            if not self._core.add_lora(new):
                raise MotetError(f"vLLM did not load the adapter {new.lora_name}")
        old = self._adapters.get(policy)
        if old is not None:
            self._core.remove_lora(old.lora_int_id)
        self._adapters[policy] = new

    def load_weights(self, version: str, files: Mapping[str, bytes]) -> None:
        """Replace all weights by vLLM's phases, from safetensors files."""
        if not self._connected:
            self._llm.init_weight_transfer_engine({"init_info": {}})
            self._connected = True
        with _on_disk(files) as folder:
            self.start_weight_update()
            self._llm.update_weights({"update_info": {"folder": folder}})
            self.finish_weight_update(version)

    def ready(self) -> None:
        """Do nothing: an answer shows that the engine is alive."""

    # The next five methods are called by vLLM's RayVLLMWeightSyncClient, in the home that sends.

    def init_weight_transfer_engine(self, request: Any) -> None:
        self._llm.init_weight_transfer_engine(request)

    def start_weight_update(self) -> None:
        self._llm.start_weight_update()

    def update_weights(self, request: Any) -> None:
        self._llm.update_weights(request)

    def finish_weight_update(self, version: str | None = None) -> None:
        self._llm.finish_weight_update(version)
        self._llm.reset_prefix_cache()

    def update_weight_version(self, version: str) -> None:
        self._llm.update_weight_version(version)


def _answer(output: Any) -> EngineAnswer:
    tokens = tuple(output.token_ids)
    if output.finish_reason not in ("stop", "length"):
        raise MotetError(f"vLLM ended a completion with {output.finish_reason!r}")
    logprobs = tuple(
        float(step[token].logprob) for step, token in zip(output.logprobs, tokens, strict=True)
    )
    return EngineAnswer(tokens, logprobs, output.finish_reason == "stop")


def _check_head_size(settings: EngineSettings) -> None:
    """Raises: ConfigError if vLLM has no attention on the CPU for this model."""
    from transformers import AutoConfig

    read = AutoConfig.from_pretrained(settings.source).get_text_config()
    size = getattr(read, "head_dim", None) or read.hidden_size // read.num_attention_heads
    if not settings.gpus and size not in CPU_HEAD_SIZES:
        raise ConfigError(
            f"model {settings.source!r} has attention heads of {size} numbers; on a CPU vLLM "
            f"computes {', '.join(map(str, CPU_HEAD_SIZES))}: {INSTEAD}"
        )


def _set_environment(settings: EngineSettings) -> None:
    """Set what vLLM reads when it is imported; a user's own values stay."""
    wanted = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # scheduling then depends on the rows alone
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
    }
    if not settings.gpus:
        wanted |= {
            "VLLM_CPU_KVCACHE_SPACE": CPU_CACHE_GB,
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }
    for name, value in wanted.items():
        os.environ.setdefault(name, value)


@contextmanager
def _on_disk(files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield a folder with these files, in memory if the machine has /dev/shm."""
    shared = Path("/dev/shm")
    place = shared if shared.is_dir() else None
    with temporary.folder("motet-weights-", place=place) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        yield str(folder)
