"""What the engines of a team that answers load. The engines are plain objects."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from motet.assembly.homes import homes_of
from motet.config.load import make_config
from motet.core import Team
from motet.errors import ConfigError, ProcessLost
from motet.models.backbone import Backbone, Policy
from motet.settings import Decode, Lora
from motet_cluster.served import served_team, with_engines
from motet_cluster.vllm_checks import check_team
from motet_cluster.vllm_engine import EngineSettings
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder
from tests.small_runs import run_config

TEAM = Team(agents={"a": ("p",), "b": ("q",)}, decode={"a": Decode(), "b": Decode()})
OF_VLLM = {"engine": "vllm", "gpus": 0, "replicas": 2}


@dataclass
class Engine:
    """Notes what it loads. Dies at the first prompt if `dies`."""

    home: str
    dies: bool = False
    settings: EngineSettings | None = None
    adapters: dict[str, list[str]] = field(default_factory=dict)

    async def call(self, verb: str, *given: Any, seconds: float | None = None) -> Any:
        if verb == "load":
            [self.settings] = given
        if verb == "load_adapter":
            policy, _, files = given
            self.adapters[policy] = sorted(files)
        if verb == "generate" and self.dies:
            raise ProcessLost("killed")
        return []

    @property
    def handle(self) -> None:
        return None

    def end(self) -> None:
        pass


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_model_folder(tmp_path / "base", "qwen3")


def config_of(base: Path, **sections: Any) -> Any:
    model = {"path": str(base), "device": "cpu"}
    policies = {"p": {"model": "m"}, "q": {"model": "m", "train": "lora", "lora": {"rank": 2}}}
    return make_config(run_config(models={"m": model}, policies=policies, **sections))


def test_a_full_policy_is_its_folder_and_an_adapter_comes_onto_its_base(
    base: Path, tmp_path: Path
) -> None:
    backbone = Backbone.load(base)
    backbone.add_adapter("q", Lora(rank=2), seed=0)
    Policy("q", backbone, "q").save(tmp_path / "q")
    whole = make_model_folder(tmp_path / "p", "qwen3", seed=1)
    config = with_engines(config_of(base, cluster={"samplers": OF_VLLM, "learners": {"gpus": 0}}))
    started: list[Engine] = []

    def start(home: str, number: int) -> Engine:
        started.append(Engine(home, dies=len(started) == 2))
        return started[-1]

    trained = {"p": whole, "q": tmp_path / "q"}
    team = served_team(config, homes_of(config, TEAM), {"m": base}, trained, start)
    asyncio.run(team.load())
    assert [one.home for one in started] == ["p", "p", "m", "m"]
    sources = [(one.settings.source, one.settings.rank) for one in started if one.settings]
    assert sources == [(str(whole), 0)] * 2 + [(str(base), 2)] * 2
    adapter = {"q": ["adapter_config.json", "adapter_model.safetensors"]}
    assert [one.adapters for one in started] == [{}, {}, adapter, adapter]
    assert {name: one.adapter for name, one in team.policies.items()} == {"p": False, "q": True}
    assert team.ends["p"] == team.ends["m"] == backbone.eos_ids

    asyncio.run(team.pools["m"].ask(0, "generate"))  # its engine dies, and the new one is asked
    assert (started[4].home, started[4].adapters) == ("m", adapter)


def test_a_new_adapter_is_the_base_alone(base: Path) -> None:
    config = with_engines(config_of(base))
    team = served_team(config, homes_of(config, TEAM), {"m": base}, {}, lambda *_: Engine("any"))
    assert team.adapters == {}
    assert not team.policies["q"].adapter


def test_the_engines_are_those_of_the_section_if_vllm_sampled_the_run(base: Path) -> None:
    given = config_of(base, cluster={"samplers": OF_VLLM, "learners": {"gpus": 0}})
    assert with_engines(given) is given
    own = with_engines(config_of(base, cluster={"learners": {"gpus": 0}, "restarts": 7})).cluster
    alone = with_engines(config_of(base)).cluster
    for found in (own, alone):
        assert found is not None
        assert (found.samplers.engine, found.samplers.gpus, found.learners.gpus) == ("vllm", 0, 0)
    assert own is not None
    assert own.restarts == 7


def test_what_vllm_cannot_compute_is_refused_but_top_p_is_sampled(base: Path) -> None:
    check_team(config_of(base, decode={"max_new_tokens": 3, "top_p": 0.9, "top_k": 5}))
    with pytest.raises(ConfigError, match=facts("agent a … temperature 3 … 0.01 to 2")):
        check_team(config_of(base, decode={"max_new_tokens": 3, "temperature": 3.0}))
