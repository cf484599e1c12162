"""Translate the comparator of CoMLRL's iterative preference trainers."""

from motet_published.comlrl_models import devices_of, set_kind
from motet_published.keys import (
    Combined,
    KeyTable,
    NoEffect,
    Unsupported,
    number,
    one_of,
    text,
    texts,
    whole_number,
)
from motet_published.translation import Translation

CURRENT, MODEL, HISTORY, API = "current", "model", "history", "api"
_POLICIES = {
    **dict.fromkeys(("current", "self", "online"), CURRENT),
    **dict.fromkeys(("current_copy", "copy", "online_copy"), CURRENT),
    **dict.fromkeys(("current-offload", "current_offload"), CURRENT),
    **dict.fromkeys(("model", "external", "comparator", "reference", "ref"), MODEL),
    **dict.fromkeys(("history", "checkpoint", "previous", "previous_iteration"), HISTORY),
    **dict.fromkeys(("api", "http", "endpoint"), API),
}
_FORMATS = ("openai", "openai_chat", "chat")
_PATH = "/chat/completions"
_KIND, _K = "trainer.comparator_policy", "trainer.comparator_history_k"
_NAME, _AGENTS = "trainer.comparator_model_name", "trainer.comparator_agents"
_DEVICES = "trainer.comparator_devices"
_READ_BY = {_K: HISTORY, _NAME: MODEL, _AGENTS: MODEL}
_ENDPOINT = {
    "trainer.comparator_api_model": "model",
    "trainer.comparator_api_timeout": "timeout_seconds",
    "trainer.comparator_api_key_env": "key_variable",
    "trainer.comparator_api_extra_body": "extra",
}
"""Published key -> the key of `comparator.endpoint`."""
_URL, _FORMAT = "trainer.comparator_api_url", "trainer.comparator_api_format"


def _fields(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("expected fields of the request, such as {seed: 0}")
    return value


KEYS: KeyTable = {
    _KIND: Combined(one_of(_POLICIES)),
    _K: Combined(whole_number(1)),
    _NAME: Combined(text),
    _AGENTS: Combined(texts),
    _DEVICES: Combined(texts),
    _URL: Combined(text),
    _FORMAT: Combined(text),
    "trainer.comparator_api_model": Combined(text),
    "trainer.comparator_api_timeout": Combined(number),
    "trainer.comparator_api_key_env": Combined(text),
    "trainer.comparator_api_extra_body": Combined(_fields),
    "trainer.comparator_api_key": Unsupported(
        "a key in a config would be recorded: put it in an environment variable, and its name in "
        "comparator_api_key_env",
        allowed=(),
    ),
    "trainer.comparator_api_headers": Unsupported(
        "the only further header is that of the key: drop it", allowed=({},)
    ),
    "trainer.comparator_api_key_header": Unsupported(
        "the key is sent as `Authorization: Bearer KEY`: drop it", allowed=("Authorization",)
    ),
    "trainer.comparator_api_key_prefix": Unsupported(
        "the key is sent as `Authorization: Bearer KEY`: drop it", allowed=("Bearer",)
    ),
    "trainer.comparator_api_max_n_per_request": NoEffect("each completion is one request"),
    "trainer.comparator_api_response_field": NoEffect(
        "the OpenAI chat protocol has one place for the completion", silent=("completions",)
    ),
    "trainer.comparator_generation_mode": Unsupported(
        "use decentralized, or collaboration_mode: centralized for one policy that writes all "
        "answers",
        allowed=("decentralized", "decentralised", "multi_agent", "multi-agent"),
    ),
    "trainer.comparator_centralized_agent_index": NoEffect("no comparator is centralized", (0,)),
}


def set_comparator(config: Translation) -> None:
    """Set who plays the other side of the pairs. The team and its models must be set."""
    kind = config.get(_KIND, CURRENT)
    for key, reader in _READ_BY.items():
        if key in config and kind != reader:
            raise config.error(key, f"it is only for comparator_policy: {reader}")
    if kind != API:
        config.ignore("{key} needs comparator_policy: api", _URL, _FORMAT, *_ENDPOINT)
    if kind != MODEL:
        config.ignore("{key} needs comparator_policy: model", _DEVICES)
    if kind == MODEL:
        _set_models(config)
    elif kind == API:
        _set_endpoint(config)
    elif kind == HISTORY:
        _set_history(config)


def _set_history(config: Translation) -> None:
    """Published counts the checkpoint after the last iteration, which is the present team, as the
    first one back."""
    back = config.get(_K, 1) - 1
    if back:
        config.set("comparator.history", back, _K)
        return
    config.ignore("{key} 1 is the team after the last iteration, so the present one", _K)
    config.tell(
        "comparator_policy history with comparator_history_k 1 compares the present team with "
        "itself, as published: the newest checkpoint is that of the end of the last iteration. "
        "For the team before that iteration use comparator_history_k: 2"
    )


def _set_models(config: Translation) -> None:
    agents = list(config.config.data["team"])
    if _NAME not in config and _AGENTS not in config:
        raise config.error(_KIND, "it needs comparator_model_name or comparator_agents")
    source = _AGENTS if _AGENTS in config else _NAME
    paths = list(config[_AGENTS]) if _AGENTS in config else [config[_NAME]] * len(agents)
    if len(paths) != len(agents):
        raise config.error(
            source, f"got {len(paths)} models for {len(agents)} agent(s), expected one each"
        )
    devices = devices_of(config, _DEVICES, len(agents))
    if _DEVICES not in config:
        devices = devices_of(config, "trainer.agent_devices", len(agents))
    same = len(set(zip(paths, devices, strict=True))) == 1
    for agent, path, device in zip(agents, paths, devices, strict=True):
        name = "comparator" if same else f"comparator_{agent}"
        config.set(f"models.{name}.path", path, source)
        if device is not None:
            config.set(f"models.{name}.device", device, _DEVICES)
        set_kind(config, name)
        config.set(f"policies.{name}.model", name, source)
        config.set(f"policies.{name}.train", "frozen")
        config.set(f"comparator.team.{agent}", name, source)


def _set_endpoint(config: Translation) -> None:
    if _URL not in config:
        raise config.error(_KIND, "it needs comparator_api_url")
    if config.get(_FORMAT, "generic").lower() not in _FORMATS:
        raise config.error(
            _FORMAT if _FORMAT in config else _URL,
            f"got comparator_api_format {config.get(_FORMAT, 'generic')}, expected openai: Motet "
            "uses the OpenAI chat protocol, which most servers and providers offer",
        )
    url: str = config[_URL]
    if not url.rstrip("/").endswith(_PATH):
        raise config.error(_URL, f"got {url!r}, expected an address that ends in {_PATH}")
    if "trainer.comparator_api_model" not in config:
        raise config.error(_URL, "it needs comparator_api_model")
    config.set("comparator.endpoint.base_url", url.rstrip("/").removesuffix(_PATH), _URL)
    config.set("comparator.endpoint.timeout_seconds", 120.0)
    for key, name in _ENDPOINT.items():
        config.copy(key, f"comparator.endpoint.{name}")
