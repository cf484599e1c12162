"""What a run warns of: the learning rate of adapters, and keys that another kind drops."""

import pytest
import yaml

import motet
from motet.api.run_warnings import warnings_of
from motet.assembly.task_setup import open_task_setup
from motet.config.load import dump_config
from tests.fixtures.messages import says
from tests.small_runs import GAMES

LORA = {"model": "tiny", "train": "lora"}
FULL = {"model": "tiny"}
RATE = {"optimizer": {"learning_rate": 1e-4}}


def warned(policies, critic=None, **more):
    config = motet.read_config(
        {
            "name": "rates",
            "environment": {"name": f"{GAMES}:Coded"},
            "models": {"tiny": {"embedded": {"hidden_size": 16, "layers": 1}}},
            "policies": policies,
            "team": {"a": "p", "b": "q"},
            "algorithm": {"name": "marloo" if critic is None else "iac"},
            "rollout": {"samples": [2]},
            "train": {"steps": 1},
            **({} if critic is None else {"critic": critic}),
            **more,
        }
    )
    with open_task_setup(config, train=True) as setup:
        return [line for line in warnings_of(setup) if "learning_rate" in line]


def test_adapters_at_the_default_rate_are_named_with_what_suits_them():
    (line,) = warned({"p": LORA, "q": LORA})
    assert "default optimizer.learning_rate 5e-06 (policies.p, policies.q), which is" in line
    assert "about ten times" in line
    assert "1e-5 to 1e-4" in line


def test_only_the_adapters_without_a_rate_are_named():
    (line,) = warned({"p": {**LORA, **RATE}, "q": LORA})
    assert "(policies.q)" in line
    (line,) = warned({"p": FULL, "q": FULL}, critic={"train": "lora"})
    assert "(critic)" in line


@pytest.mark.parametrize(
    "more", [{}, RATE, {"optimizer": {"schedule": "linear"}}], ids=["unset", "a rate", "a schedule"]
)
def test_full_training_is_not_warned_of(more):
    assert warned({"p": FULL, "q": FULL}, **more) == []


@pytest.mark.parametrize("rate", [1e-4, 5e-6])
def test_a_rate_that_is_set_is_not_warned_of(rate):
    assert warned({"p": LORA, "q": LORA}, optimizer={"learning_rate": rate}) == []


def dropped(config):
    with open_task_setup(config, train=True) as setup:
        return [line for line in warnings_of(setup) if says(line, "kind … drops")]


KINDS = {
    "name": "kinds",
    "environment": {"name": f"{GAMES}:Coded"},
    "models": {"tiny": {"embedded": {"hidden_size": 16, "layers": 1}}},
    "policies": {"p": FULL, "q": FULL},
    "team": {"a": "p", "b": "q"},
    "rollout": {"samples": [4]},
    "train": {"steps": 1},
}
GSPO = (
    "algorithm.loss.kind clipped_surrogate … gspo … drops … clip_low 0.0003 … clip_high 0.0004 … "
    "clip_low is 0.2 … clip_high is 0.2"
)


@pytest.mark.parametrize(
    ("below", "above", "said"),
    [
        ("{name: gspo}", "{loss: {kind: clipped_surrogate}}", [GSPO]),
        ("{name: gspo, loss: {kind: clipped_surrogate}}", "{}", [GSPO]),
        ("{name: gspo}", "{policy_loss: clipped_surrogate}", [GSPO]),
        (
            "{name: gspo, loss: {kind: gspo, clip_low: 0.1}}",
            "{loss: {kind: cispo, clip_high: 5.0}}",
            ["algorithm.loss.kind cispo … gspo … drops … clip_low 0.1 … clip_low is 0.2"],
        ),
        (
            "{name: ippo, loss: {kind: clipped_surrogate, clip_low: 0.1}}",
            "{loss: {kind: cispo}}",
            ["algorithm.loss.kind cispo … clipped_surrogate … drops … clip_low 0.1 … "
              "clip_low is 0.2"],
        ),
        (
            "{kl: {kind: reward, coefficient: 0.1, target: 2.0}}",
            "{kl: {kind: loss, coefficient: 0.2}}",
            ["algorithm.kl.kind loss … reward … drops … target 2.0 … target is null"],
        ),
        (
            "{credit: {kind: group, function: 'os.path:join'}}",
            "{credit: {kind: critic, view: own}}",
            ["algorithm.credit.kind critic … group … drops … function 'os.path:join' … "
              "function is null"],
        ),
        # what is set again, what only the other kind has, and what says the same
        ("{name: gspo}", "{loss: {kind: cispo, clip_low: 0.2, clip_high: 0.2}}", []),
        ("{credit: {kind: group, baseline: group_max}}", "{credit: {kind: critic, view: own}}", []),
        ("{name: ippo, loss: {kind: clipped_surrogate}}", "{loss: {kind: cispo}}", []),
        ("{name: gspo, loss: {clip_low: 0.1, clip_high: 0.1}}", "{loss: {kind: cispo}}", []),
        ("{name: gspo}", "{loss: {kind: gspo, clip_low: 0.1}}", []),
        ("{kl: {kind: loss, coefficient: 0.1}}", "{kl: null}", []),
    ],
)  # fmt: skip
def test_a_key_that_another_kind_drops_is_named(tmp_path, below, above, said):
    """A config that extends another, and an override."""
    (tmp_path / "base.yaml").write_text(f"{yaml.safe_dump(KINDS)}algorithm: {below}\n")
    (tmp_path / "above.yaml").write_text(f"extends: base.yaml\nalgorithm: {above}\n")
    config = motet.read_config(tmp_path / "above.yaml")
    found = dropped(config)
    assert len(found) == len(said)
    assert all(says(one, wanted) for one, wanted in zip(found, said, strict=True))
    assert dropped(motet.read_config(tmp_path / "base.yaml", [f"algorithm={above}"])) == found
    assert config == motet.read_config(dump_of(config, tmp_path)), "equal whatever was dropped"
    assert dropped(motet.read_config(dump_of(config, tmp_path))) == [], "a record says everything"


def dump_of(config, folder):
    (folder / "config.yaml").write_text(dump_config(config))
    return folder / "config.yaml"
