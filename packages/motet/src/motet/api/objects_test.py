"""Objects of a program become the values of a config that the same names would give."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from motet.algorithms import ALGORITHMS, resolve
from motet.api.setup import read_config
from motet.assembly.derived import with_groups
from motet.assembly.objects import refuse_missing_objects
from motet.config.load import dump_config
from motet.config.schema import RunConfig
from motet.credit.baselines import BASELINES, Baseline, Comparison
from motet.errors import ConfigError
from motet.losses import POLICY_LOSSES, LossInputs, PolicyLoss, token_ratio
from motet.settings import Algorithm, ClippedLoss, CriticCredit, GroupCredit, KlInLoss
from motet.user_code import objects
from tests.fixtures.messages import facts

CONFIG: Mapping[str, Any] = {
    "name": "run",
    "environment": {"name": "quickstart"},
    "models": {"tiny": {"embedded": {"layers": 1}}},
    "policies": {"p": {"model": "tiny"}},
    "team": {"aux": "p", "main": "p"},
    "train": {"steps": 1},
    "algorithm": {"name": "marloo", "gamma": 0.5},
}


def read(**objects: Any) -> RunConfig:
    return read_config(CONFIG, **objects)


@pytest.mark.parametrize("name", ["magrpo", "ippo", "mappo", "maporl", "madpo", "gspo"])
def test_a_name_gives_all_options_of_its_algorithm(name: str) -> None:
    assert read(algorithm=name).algorithm == ALGORITHMS[name]
    assert read(algorithm=ALGORITHMS[name]).algorithm == ALGORITHMS[name]


def test_a_mapping_differs_from_its_algorithm() -> None:
    found = read(algorithm={"name": "ippo", "credit": {"whiten": False}, "gamma": 0.9}).algorithm
    assert found == resolve("ippo", {"credit": {"whiten": False}, "gamma": 0.9})
    assert read(algorithm={"scale": "std"}).algorithm == resolve("magrpo", {"scale": "std"})


def test_a_reference_begins_where_the_program_runs(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from motet import Algorithm\nmine = Algorithm(name='mine', gamma=0.25)\n"
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    found = read(algorithm="./mine.py:mine").algorithm
    assert (found.name, found.gamma) == (f"{tmp_path}/mine.py:mine", 0.25)


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (Algorithm(name="magrpo"), "credit"),
        (Algorithm(name="magrpo", scale="std", baseline="leave_one_out"), None),
        (Algorithm(name="mareinforce"), None),
        (Algorithm(name="ippo"), "credit, loss, reduce, epochs"),
        (Algorithm(name="ippo", credit=CriticCredit(view="own")), "credit, loss, reduce, epochs"),
    ],
)
def test_the_name_of_an_algorithm_without_its_options_is_refused(
    given: Algorithm, keys: str | None
) -> None:
    if keys is None:
        assert read(algorithm=given).algorithm == given
        return
    with pytest.raises(ConfigError) as caught:
        read(algorithm=given)
    said = str(caught.value)
    assert f"got motet.Algorithm(name='{given.name}') without the options of" in said
    assert f"({keys})" in said
    assert f"Pass algorithm='{given.name}', or {{'name': '{given.name}', ...}}" in said


@pytest.mark.parametrize(
    "given",
    [
        Algorithm(),
        Algorithm(name="mine", loss=ClippedLoss(kind="clipped_surrogate", clip_high=0.3), epochs=3),
        Algorithm(name="mine", credit=CriticCredit(view="joint"), kl=KlInLoss(coefficient=0.1)),
        Algorithm(name="mine", credit=GroupCredit(baseline="leave_one_out", group_by="round")),
        ALGORITHMS["maporl"].model_copy(update={"gamma": 0.9, "kl": None}),
        ALGORITHMS["mappo"].model_copy(update={"credit": GroupCredit(baseline="group_mean")}),
    ],
)
def test_an_algorithm_of_ones_own_is_kept_with_all_of_its_options(given: Algorithm) -> None:
    config = read(algorithm=given)
    wanted = given.model_dump(exclude={"name"})
    assert config.algorithm.model_dump(exclude={"name"}) == wanted
    assert config.algorithm.underived == given.underived
    assert "gamma: 0.5" not in dump_config(config), "the algorithm of the config is gone"


def test_what_an_algorithm_does_not_set_is_derived() -> None:
    algorithm = Algorithm(name="mine", credit=GroupCredit(baseline="leave_one_out"))
    config = read(algorithm=algorithm)
    assert config.algorithm.underived == {"credit.group_by", "repeat_last_reward"}
    plan = read_config({**CONFIG, "rollout": {"samples": [4, 1]}}, algorithm=algorithm)
    derived, said = with_groups(plan)
    assert derived.algorithm.group is not None
    assert derived.algorithm.group.group_by == "task"
    assert said


def soft(inputs: LossInputs) -> Tensor:
    return -inputs.advantages_BL * token_ratio(inputs)


def half(comparison: Comparison) -> Tensor:
    return 0.5 * comparison.returns_S


def test_a_loss_and_a_baseline_take_the_places_of_those_of_the_config() -> None:
    config = read(loss=PolicyLoss(soft, token_ratio), baseline=half, algorithm={"epochs": 3})
    algorithm = config.algorithm
    assert (algorithm.name, algorithm.epochs) == ("magrpo", 3)
    assert algorithm.loss.kind.startswith(f"object:{__name__}:soft@")
    assert POLICY_LOSSES[algorithm.loss.kind].ratio is not None
    assert algorithm.group is not None
    assert algorithm.group.baseline.startswith(f"object:{__name__}:half@")
    comparison = Comparison(torch.tensor([4.0]), torch.tensor([0]))
    assert BASELINES[algorithm.group.baseline].of(comparison).tolist() == [2.0]
    assert BASELINES[algorithm.group.baseline].siblings
    named = read(baseline=Baseline(half, siblings=False)).algorithm
    assert named.gamma == 0.5, "the rest of the config's algorithm stays"
    assert named.group is not None
    assert not BASELINES[named.group.baseline].siblings
    other = read(loss=PolicyLoss(lambda inputs: soft(inputs))).algorithm
    assert other.loss != algorithm.loss


def test_a_clip_range_of_the_config_stays_with_a_loss_of_ones_own() -> None:
    found = read_config(CONFIG, ["algorithm.loss.clip_low=0.1"], loss=soft).algorithm.loss
    assert getattr(found, "clip_low", None) == 0.1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": 3}, "loss … int … function … PolicyLoss"),
        ({"loss": "./mine.py:soft"}, "loss … str … function … PolicyLoss"),
        ({"loss": PolicyLoss}, "loss … type … function … PolicyLoss"),
        ({"baseline": 3}, "baseline … int … function … Baseline"),
        ({"loss": soft, "algorithm": {"epochs": 2}}, "no ratio … one gradient"),
        ({"baseline": half, "algorithm": "iac"}, "credit.baseline"),
    ],
)
def test_a_wrong_loss_or_baseline_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=facts(said)):
        read(**given)


def test_a_run_without_its_loss_and_baseline_is_read_but_not_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = read(loss=lambda inputs: soft(inputs), baseline=lambda comparison: half(comparison))
    written = config.model_dump(mode="json")
    monkeypatch.setattr(objects, "_kept", {})
    again = read_config(written)
    assert again == config
    refuse_missing_objects(again, train=False)
    with pytest.raises(
        ConfigError, match=r"algorithm.loss.kind is .*RUN, loss=..., baseline=...\)"
    ):
        refuse_missing_objects(again, train=True)
