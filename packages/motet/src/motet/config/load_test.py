from pathlib import Path
from typing import Any

import pytest
import torch

from motet.config.load import dump_config, load_config, load_recorded, make_config
from motet.config.paths import named_configs
from motet.config.schema import RunConfig
from motet.config.validation import validate_options
from motet.config.yaml import write_yaml
from motet.credit.baselines import BASELINES, Comparison
from motet.errors import ConfigError
from motet.losses import POLICY_LOSSES
from motet.settings import GroupCredit, Settings
from tests.fixtures.messages import facts, says

SMALL = """\
name: small
environment: {name: quickstart, hard: true}
models:
  tiny: {embedded: {layers: 2}}
policies:
  aux: {model: tiny}
  main: {model: tiny, optimizer: {learning_rate: 1e-3}}
team:
  aux: aux
  main: {policy: [main], decode: {temperature: 0.5}}
decode: {max_new_tokens: 44}
algorithm: {name: magrpo, credit: {scale: std}}
train: {steps: 60}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def complaint_of(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(path, overrides)
    return str(refused.value).replace(f"{path.parent}/", "")


def test_a_config_is_read(small):
    config = load_config(small)
    assert (config.name, config.seed, config.train.steps) == ("small", 0, 60)
    assert config.environment.options == {"hard": True}
    assert config.team["aux"].policy == ("aux",)
    assert (config.algorithm.credit.baseline, config.algorithm.credit.scale) == (
        "group_mean",
        "std",
    )


def test_what_a_player_says_differently_lies_over_what_is_common(small):
    config = load_config(small)
    assert (config.decode_of("main").temperature, config.decode_of("main").max_new_tokens) == (
        0.5,
        44,
    )
    assert (config.decode_of("aux").temperature, config.optimizer_of("aux").learning_rate) == (
        1.0,
        5e-6,
    )
    assert config.optimizer_of("main").learning_rate == 1e-3


def test_the_common_value_can_be_overridden_after_a_dump(small, tmp_path):
    dumped = tmp_path / "dumped.yaml"
    dumped.write_text(dump_config(load_config(small)))
    config = load_config(dumped, ["decode.max_new_tokens=9", "algorithm.name=marloo"])
    assert config.decode_of("main").max_new_tokens == 9
    assert (config.algorithm.credit.baseline, config.algorithm.credit.scale) == (
        "leave_one_out",
        "std",
    )


def test_a_dump_loads_equal_and_dumps_equal(small, tmp_path):
    config = load_config(
        small,
        [
            "threads=2",
            "rollout.samples=[4,4]",
            "algorithm.turn_weights=[1.5,0.5]",
            "team.aux.system='no'",
        ],
    )
    text = dump_config(config)
    (tmp_path / "dumped.yaml").write_text(text)
    again = load_config(tmp_path / "dumped.yaml")
    assert again == config
    assert dump_config(again) == text
    assert "max_nodes: 4096" in text
    assert "  # credit.baseline: group_mean" in text


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("optimizer.learning_rate=5e-6", lambda config: config.optimizer.learning_rate == 5e-6),
        (
            "algorithm.turn_weights=[1.5,0.5]",
            lambda config: config.algorithm.turn_weights == (1.5, 0.5),
        ),
        (
            "data.train={name: hub/rows, split: 'train[:1000]'}",
            lambda config: config.data.train.split == "train[:1000]",
        ),
        (
            "team.aux.decode.temperature=.7",
            lambda config: config.decode_of("aux").temperature == 0.7,
        ),
        ("report.wandb={}", lambda config: config.report.wandb.project == "motet"),
        ("environment.name=relay", lambda config: config.environment.name == "relay"),
        (
            "models.tiny={path: ./model, embedded: null}",
            lambda config: config.models["tiny"].path == str(Path("model").resolve()),
        ),
    ],
)
def test_an_override_is_read_as_yaml_1_2_and_reaches_its_key(small, override, read):
    assert read(load_config(small, [override]))


def test_the_published_overrides_are_read_as_what_they_are(small):
    """The command lines of the published experiments' README, for keys of an environment."""
    lines = [
        "environment.grpo.num_train_epochs=20",
        "environment.grpo.learning_rate=5e-6",
        "environment.dataset.train_split=train[:1000]",
        "environment.dataset.eval_split=test[:100]",
        "environment.magrpo.turn_gradient_weights=[1.5,0.5]",
        "environment.model_name=bigcode/starcoder2-3b",
    ]
    options = load_config(small, lines).environment.options
    assert options["grpo"] == {"num_train_epochs": 20, "learning_rate": 5e-6}
    assert options["dataset"] == {"train_split": "train[:1000]", "eval_split": "test[:100]"}
    assert options["magrpo"] == {"turn_gradient_weights": [1.5, 0.5]}
    assert options["model_name"] == "bigcode/starcoder2-3b"


def test_a_later_override_wins(small):
    assert load_config(small, ["seed=1", "seed=2"]).seed == 2


ROWS = str(Path("rows.jsonl").resolve())
"""A path of the command line in the resolved config."""
HUB = "data.eval={name: hub/rows, subset: main, split: 'test[:32]', fields: {prompt: question}}"


@pytest.mark.parametrize(
    "overrides",
    [
        ["data.eval.path=rows.jsonl"],
        ["data.eval.name=null", "data.eval.path=rows.jsonl", "data.eval.subset=null"],
    ],
)
def test_a_path_laid_over_a_hub_name_stands_in_its_place_and_is_not_cut(small, tmp_path, overrides):
    (tmp_path / "over.yaml").write_text(dump_config(load_config(small, [HUB])))
    source = load_config(tmp_path / "over.yaml", overrides).data.eval
    assert (source.path, source.name, source.subset, source.split) == (
        ROWS,
        None,
        None,
        "test",
    )
    assert source.fields == {"prompt": "question"}


@pytest.mark.parametrize("order", [1, -1])
def test_a_split_beside_the_new_path_cuts_it_whatever_the_order(small, tmp_path, order):
    (tmp_path / "over.yaml").write_text(dump_config(load_config(small, [HUB])))
    overrides = ["data.eval.path=rows.jsonl", "data.eval.split=test[:5]"][::order]
    source = load_config(tmp_path / "over.yaml", overrides).data.eval
    assert (source.path, source.split) == (ROWS, "test[:5]")


def test_a_hub_name_laid_over_a_path_stands_in_its_place_too(small, tmp_path):
    (tmp_path / "over.yaml").write_text(
        "extends: small.yaml\ndata: {eval: {path: rows.jsonl, split: 'train[:9]'}}\n"
    )
    (tmp_path / "top.yaml").write_text("extends: over.yaml\ndata: {eval: {name: hub/rows}}\n")
    source = load_config(tmp_path / "top.yaml").data.eval
    assert (source.path, source.name, source.split) == (None, "hub/rows", "train")


def test_another_hub_name_keeps_the_split(small, tmp_path):
    (tmp_path / "over.yaml").write_text(dump_config(load_config(small, [HUB])))
    source = load_config(tmp_path / "over.yaml", ["data.eval.name=hub/mirror"]).data.eval
    assert (source.name, source.subset, source.split) == ("hub/mirror", "main", "test[:32]")


def test_a_name_set_to_null_is_gone(small, tmp_path):
    shared = ["team.aux=main", "policies.aux=null"]
    over_files = load_config(small, shared)
    assert (list(over_files.policies), over_files.team["aux"].policy) == (["main"], ("main",))
    alone = load_config(
        small, [*shared[::-1], "team.writer=main", "team.aux=null", "team.main=null"]
    )
    assert list(alone.team) == ["writer"]
    (tmp_path / "over.yaml").write_text(
        "extends: small.yaml\npolicies: {aux: null}\nteam: {aux: main}\n"
    )
    assert load_config(tmp_path / "over.yaml") == over_files


def test_a_null_that_drops_nothing_is_refused(small):
    complaint = (
        r"override 'policies\.axu=null': policies\.axu: got null, .* \(did you mean "
        r"'aux'\?\); it has aux, main"
    )
    with pytest.raises(ConfigError, match=complaint):
        load_config(small, ["policies.axu=null"])
    small.write_text(SMALL.replace("  main: {policy", "  late: null\n  main: {policy"))
    assert says(complaint_of(small), "small.yaml:10 … team.late … null … aux, main")


def test_a_name_and_a_path_in_one_place_are_refused(small):
    with pytest.raises(
        ConfigError, match=r"got name hub/rows and path /.*/rows\.jsonl, expected exactly one"
    ):
        load_config(small, ["data.eval={name: hub/rows, path: rows.jsonl}"])


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        (
            "algorithm.gama=1",
            "override 'algorithm.gama=1' … algorithm.gama … gamma",
        ),
        ("seed=abc", "override 'seed=abc' … 'abc' … a whole number"),
        ("seed", "override 'seed' … KEY.KEY=VALUE … train.steps=100"),
        ("seed+=3", "override 'seed+=3' … KEY.KEY=VALUE … train.steps=100"),
        (".seed=3", "override '.seed=3' … KEY.KEY=VALUE … train.steps=100"),
        ("seed=[1", "override 'seed=[1' … not YAML … ',' or ']' … '<stream end>'"),
        (
            "decode={top_k: 1, top_k: 2}",
            "override 'decode={top_k: 1, top_k: 2}' … top_k … twice … keep one",
        ),
        (
            "team.main.decode.temprature=1",
            "team.main.decode.temprature … temperature",
        ),
        (
            "team.aux=smal",
            "override 'team.aux=smal' … team.aux … 'smal' … aux, main",
        ),
        ("policies.aux.model=big", "policies.aux … 'big' … tiny"),
        (
            "models.other.path=x",
            "override 'models.other.path=x' … models.other … not used … "
            "use it in policies … drop it",
        ),
        (
            "team.aux=[aux, main]",
            "team.aux … 2 policies … 1 turn … one per turn",
        ),
        (
            "algorithm.name=magprpo",
            "override 'algorithm.name=magprpo' … algorithm.name … 'magprpo' … 'magrpo'",
        ),
        ("algorithm.credit.baseline=mean", "algorithm.credit.baseline … 'mean'"),
        (
            "algorithm.credit.baseline=none",
            "algorithm.credit … scale std … baseline none … scale: none",
        ),
        (
            "train.epochs=2",
            "train … steps 60 … epochs 2 … exactly one … null",
        ),
        (
            "models.tiny={path: x, embedded: {}}",
            "models.tiny … path and embedded … exactly one",
        ),
        (
            "models.tiny.device=gpu",
            "models.tiny.device … 'gpu' … auto, cpu, mps, cuda, or cuda:0, cuda:1",
        ),
        (
            "models.tiny.embedded.heads=3",
            "models.tiny.embedded … hidden_size 128 … heads 3",
        ),
        (
            "policies.aux.train=some",
            "policies.aux.train … 'some' … 'full', 'lora' or 'frozen'",
        ),
        (
            "policies.aux.lora.rank=4",
            "policies.aux … lora … train: full … train: lora",
        ),
        (
            "policies.aux.adapter=x",
            f"policies.aux … {Path('x').resolve()} … train: full … train: lora or frozen",
        ),
        (
            "data.train.split=test",
            "data.train … name None … path None … exactly one",
        ),
        ("name=../x", "name … '../x' … a folder name"),
        (
            "models={a/b: {path: x}}",
            "override 'models={a/b: {path: x}}' … models.a/b … a folder name … "
            "letters, digits and _ . - + =",
        ),
        ("extends=x.yaml", "extends: unknown key"),
        ("tasks_per_step=2", "unknown key; did you mean train.tasks_per_step"),
        ("rollout.reader=1", "rollout.reader: unknown key; the keys here"),
    ],
)
def test_a_bad_override_is_named(small, override, complaint):
    text = complaint_of(small, override)
    assert says(text, complaint)
    assert "override '" in text
    assert "\n" not in text


def test_a_bad_key_in_a_file_is_named_with_file_and_line(small):
    small.write_text(
        SMALL.replace("scale: std}}", "scale: std},\n  gama: 1}").replace("seed: 0", "")
    )
    assert says(complaint_of(small), "small.yaml:13 … algorithm.gama … gamma")


def test_a_policy_that_nobody_plays_is_named_where_it_stands(small):
    assert says(
        complaint_of(small, "team.aux=main"),
        "small.yaml:6 … policies.aux … not used … add it to team … drop it",
    )


def test_a_missing_section_is_named(small):
    small.write_text(SMALL.replace("train: {steps: 60}\n", ""))
    assert says(complaint_of(small), "small.yaml … train … missing … no default")


def test_a_path_takes_the_place_of_an_embedded_model_and_the_other_way_round(small, tmp_path):
    elsewhere = load_config(small, ["models.tiny.path=org/model", "models.tiny.dtype=bfloat16"])
    assert elsewhere.models["tiny"].path == "org/model"
    (tmp_path / "hub.yaml").write_text("extends: small.yaml\nmodels: {tiny: {path: org/model}}\n")
    again = load_config(tmp_path / "hub.yaml", ["models.tiny.embedded={layers: 1}"])
    assert again.models["tiny"].embedded.layers == 1
    said = complaint_of(small, "models.tiny={path: org/model, embedded: {layers: 3}}")
    assert "models.tiny" in said
    assert says(said, "one of path … embedded")


def test_an_endpoint_takes_the_place_of_a_policys_model_and_the_other_way_round(small, tmp_path):
    child = tmp_path / "child.yaml"
    child.write_text(
        "extends: small.yaml\npolicies: {aux: {model: tiny, train: lora, lora: {rank: 4}}}\n"
    )
    at = "policies.aux.endpoint"
    config = load_config(child, [f"{at}.base_url=http://localhost:1/v1", f"{at}.model=big"])
    assert config.endpoints["aux"].model == "big"
    assert (config.policies["aux"].model, config.frozen) == (None, {"aux"})
    assert "train" not in config.model_dump(mode="json")["policies"]["aux"]
    recorded = tmp_path / "recorded.yaml"
    recorded.write_text(dump_config(config))
    assert load_config(recorded) == config
    again = load_config(recorded, ["policies.aux.model=tiny"])
    assert (again.endpoints, again.policies["aux"].train) == ({}, "full")
    said = complaint_of(
        child, f"{at}={{base_url: http://h/v1, model: b}}", "policies.aux.train=full"
    )
    assert says(said, "policies.aux … train full … endpoint … drop train")


def test_a_file_extends_another_key_by_key_and_lists_are_replaced(small, tmp_path):
    child = tmp_path / "sub" / "child.yaml"
    child.parent.mkdir()
    child.write_text(
        "extends: ../small.yaml\nname: child\nteam: {main: {decode: {top_k: 5}}}\nrollout: "
        "{samples: [2, 2]}\n"
    )
    config = load_config(child, ["rollout.samples=[3]"])
    assert (config.name, config.train.steps, config.rollout.samples) == ("child", 60, (3,))
    assert (
        config.team["main"].policy,
        config.decode_of("main").temperature,
        config.decode_of("main").top_k,
    ) == (
        ("main",),
        0.5,
        5,
    )


def test_the_place_is_that_of_the_file_that_said_it(small, tmp_path):
    child = tmp_path / "child.yaml"
    child.write_text("extends: small.yaml\n\ndecode: {temprature: 1}\n")
    assert says(complaint_of(child), "child.yaml:3 … decode.temprature … temperature")
    child.write_text("extends: small.yaml\nname: child\n")
    small.write_text(SMALL.replace("steps: 60", "step: 60"))
    assert says(complaint_of(child).splitlines()[0], "small.yaml:13 … train.step … steps")


def test_files_that_extend_each_other_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    assert "a.yaml extends itself: a.yaml -> b.yaml -> a.yaml" in complaint_of(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("name: a\nextends: absent.yaml\n")
    assert says(
        complaint_of(tmp_path / "a.yaml"),
        "a.yaml:2 … extends … absent.yaml … does not exist … a YAML file",
    )
    (tmp_path / "a.yaml").write_text("extends: [b.yaml]\n")
    said = complaint_of(tmp_path / "a.yaml")
    assert says(said, "a.yaml:1 … extends … ['b.yaml'] … path … one file")


def test_a_python_file_is_relative_to_the_config_that_names_it(small, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from motet.settings import Algorithm\nmine = Algorithm(name='mine', "
        "baseline='group_max')\n"
    )
    small.write_text(
        SMALL.replace("name: magrpo", "name: ./mine.py:mine")
        + "reward: {name: ./mine.py:Reward, scale: 2}\n"
    )
    config = load_config(small)
    assert config.reward is not None
    assert config.reward.name == f"{tmp_path.resolve()}/mine.py:Reward"
    assert (config.algorithm.credit.baseline, config.algorithm.credit.scale) == ("group_max", "std")
    (tmp_path / "dumped.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "dumped.yaml") == config


def test_a_config_names_its_own_baseline_and_loss(small, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def baseline(comparison):\n    return 0 * comparison.returns_S + 7\n"
        "def loss(inputs):\n    return inputs.logp_BL\n"
        "WRONG = 3\n"
    )
    own = "name: magrpo, baseline: ./mine.py:baseline, policy_loss: ./mine.py:loss"
    small.write_text(SMALL.replace("name: magrpo", own))
    algorithm = load_config(small).algorithm
    comparison = Comparison(torch.tensor([1.0, 2.0]), torch.tensor([0, 0]))
    assert BASELINES[algorithm.credit.baseline].of(comparison).tolist() == [7.0, 7.0]
    assert BASELINES[algorithm.credit.baseline].siblings
    assert POLICY_LOSSES[algorithm.loss.kind].ratio is None
    assert "has no ratio" in complaint_of(small, "algorithm.epochs=2")
    wrong = f"algorithm.baseline={tmp_path}/mine.py:WRONG"
    assert says(complaint_of(small, wrong), "type int … function … Baseline")
    missing = f"algorithm.policy_loss={tmp_path}/mine.py:absent"
    assert "mine.py defines no 'absent'" in complaint_of(small, missing)


def test_options_of_an_environment_are_complained_about_with_their_line(small):
    class Options(Settings):
        easy: bool = False

    config = load_config(small, ["environment.size=3"])
    with pytest.raises(ConfigError) as refused:
        validate_options(Options, config.environment.options, config.places, ("environment",))
    in_file, overridden = str(refused.value).splitlines()
    assert says(in_file, f"{small}:2 … environment.hard … unknown … easy")
    assert says(overridden, "override 'environment.size=3' … environment.size … unknown … easy")


def test_python_makes_the_same_config_as_a_file(small):
    data = {
        "name": "small",
        "environment": {"name": "quickstart", "hard": True},
        "models": {"tiny": {"embedded": {"layers": 2}}},
        "policies": {
            "aux": {"model": "tiny"},
            "main": {"model": "tiny", "optimizer": {"learning_rate": 1e-3}},
        },
        "team": {"aux": "aux", "main": {"policy": "main", "decode": {"temperature": 0.5}}},
        "decode": {"max_new_tokens": 44},
        "algorithm": {"scale": "std"},
        "train": {"steps": 60},
    }
    assert make_config(data) == load_config(small)
    assert make_config(data, ["seed=3"]).seed == 3
    with pytest.raises(ConfigError, match=facts("decode.topk … unknown … top_k")):
        make_config({**data, "decode": {"topk": 1}})


def test_a_colon_without_a_space_is_said(small):
    """A shell breaks an override at its spaces, so people leave them out."""
    with pytest.raises(
        ConfigError, match=facts("optimizer.learning_rate:6e-4 … learning_rate: 6e-4 … space")
    ):
        load_config(small, ["optimizer={learning_rate:6e-4}"])
    assert load_config(small, ["optimizer={learning_rate: 6e-4}"]).optimizer.learning_rate == 6e-4


@pytest.mark.parametrize(
    "path",
    [path for name, path in named_configs().items() if "/" not in name],
    ids=lambda path: path.stem,
)
def test_every_shipped_config_loads_and_reads_back_equal(path, tmp_path):
    config = load_config(path)
    (tmp_path / "dumped.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "dumped.yaml") == config


def test_a_run_that_was_recorded_when_rewards_were_averaged_still_averages(small, tmp_path):
    recorded = tmp_path / "config.yaml"
    now = dump_config(load_config(small))
    assert load_config(small).algorithm.reward_sharing == "own"
    recorded.write_text(now)
    assert load_config(recorded).algorithm.reward_sharing == "own"
    recorded.write_text(now.replace("  # reward_sharing: own", "  # reward_sharing: all"))
    averaging = load_config(recorded)
    assert averaging.algorithm.reward_sharing == "all"
    assert dump_config(averaging).count("\n  reward_sharing: all\n") == 1


def test_null_is_never_where_a_number_of_steps_is_expected(small):
    keys = ["evaluation.every", "train.checkpoint_every", "train.keep_every"]
    config = load_config(small, [f"{key}=null" for key in keys])
    assert (config.evaluation.every, config.train.checkpoint_every, config.train.keep_every) == (
        (0, 0, 0)
    )


def test_the_options_of_an_environment_go_with_it(tmp_path, small):
    base = (
        f"extends: {small}\nenvironment: {{name: relay, texts: two}}\nreward: {{name: a:b, x: 1}}\n"
    )
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "other.yaml").write_text(
        "extends: base.yaml\nenvironment: {name: debate, dataset: gsm8k}\nreward: {name: c:d}\n"
    )
    (tmp_path / "same.yaml").write_text("extends: base.yaml\nenvironment: {name: relay, more: 1}\n")
    other = load_config(tmp_path / "other.yaml")
    assert (other.environment.name, other.environment.options) == ("debate", {"dataset": "gsm8k"})
    assert other.reward.options == {}
    same = load_config(tmp_path / "same.yaml", ["environment.last=2", "reward.y=2"])
    assert same.environment.options == {"texts": "two", "more": 1, "last": 2}
    assert same.reward.options == {"x": 1, "y": 2}
    short = load_config(tmp_path / "base.yaml", ["environment=quickstart", "environment.z=1"])
    assert short.environment.options == {"z": 1}


FLAT: dict[str, Any] = {
    "policy_loss": "policy_gradient", "preference": None, "baseline": "none", "critic_view": None,
    "scope": "turn", "gamma": 1.0, "gae_lambda": 1.0, "returns": "tree", "reward_sharing": "own",
    "repeat_last_reward": "derived", "group_by": "derived", "pruned": "reweight", "scale": "none",
    "whiten": False, "average_decay": 0.9, "reduce": "sequence_sum", "turn_weights": [],
    "stopped_weight": 1.0, "kl_in": "none", "kl_coefficient": 0.0, "kl_estimator": "k2",
    "kl_target": None, "kl_horizon": 10000, "entropy_coefficient": 0.0, "clip_low": 0.2,
    "clip_high": 0.2, "clip_dual": None, "clip_value": None, "stop_at_kl": None,
    "importance_sampling": "auto", "importance_ratio": "auto", "importance_cap": 2.0, "epochs": 1,
    "minibatches": 1,
}  # fmt: skip
"""The options of an algorithm, and their defaults, when all of them were beside each other."""


def record_of_before(config: RunConfig, said: dict[str, Any], row: dict[str, Any]) -> str:
    """Return the record of a run of that time: `said` differs from the row, whose options are in
    comments."""
    now = dump_config(config)
    start, end = now.index("algorithm:\n"), now.index("\ncritic: ") + 1
    left_out = {key: value for key, value in (FLAT | row).items() if key not in said}
    comments = "".join(f"  # {line}\n" for line in write_yaml(left_out).splitlines())
    return now[:start] + write_yaml({"algorithm": said}) + comments + "credit: null\n" + now[end:]


GROUPED = {"baseline": "group_mean"}
CRITIC = {"critic_view": "own", "gae_lambda": 0.95}


@pytest.mark.parametrize(
    ("said", "row", "then"),
    [
        ({"name": "magrpo", "scale": "std"}, GROUPED, {"credit": {"scale": "std"}}),
        # the row's range was read by the loss that the run chose
        (
            {"name": "gspo", "policy_loss": "clipped_surrogate"},
            {
                **GROUPED, "scale": "std", "clip_low": 3e-4, "clip_high": 4e-4,
                "reduce": "sequence_mean", "minibatches": 4,
            },
            {"loss": {"kind": "clipped_surrogate", "clip_low": 3e-4, "clip_high": 4e-4}},
        ),
        (
            {"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.1, "kl_target": 1.0},
            GROUPED,
            {"kl": {"kind": "loss", "coefficient": 0.1, "target": 1.0}},
        ),
        ({"name": "iac", "whiten": True}, CRITIC, {"credit": {"whiten": True}}),
        (
            {"name": "iac", "critic_view": None, "gae_lambda": 1.0},
            CRITIC,
            {"credit": {"kind": "group"}},
        ),
        (
            {"name": "magrpo", "baseline": "none", **CRITIC},
            GROUPED,
            {"credit": {"kind": "critic", "view": "own", "gae_lambda": 0.95}},
        ),
        (
            {"name": "madpo", "preference": {"pairs": 4, "replay": {"mode": "all_history"}}},
            {},
            {"credit": {"pairs": 4, "replay": {"mode": "all_history"}}},
        ),
    ],
)  # fmt: skip
def test_a_run_that_was_recorded_with_flat_keys_has_the_options_that_it_had(
    small, tmp_path, said, row, then
):
    config = make_config(
        load_config(small).model_dump(mode="json") | {"algorithm": {"name": said["name"], **then}}
    )
    recorded = tmp_path / "config.yaml"
    recorded.write_text(record_of_before(config, said, row))
    assert load_config(recorded) == config
    for found in (load_config(recorded).algorithm, load_recorded(recorded).algorithm):
        assert found == config.algorithm
        assert found.underived == config.algorithm.underived


def test_a_run_that_was_recorded_before_ratios_of_joint_actions_keeps_those_of_tokens(
    small, tmp_path
):
    recorded = tmp_path / "config.yaml"
    for name, row, lag, wanted in (
        ("magrpo", GROUPED, 1, "token"),
        ("magrpo", GROUPED, 0, "auto"),
        ("madpo", {"preference": {"pairs": 16}}, 1, "auto"),
    ):
        config = load_config(
            small, [f"algorithm.name={name}", "algorithm.scale=none", f"train.max_lag={lag}"]
        )
        now = record_of_before(config, {"name": name}, row)
        recorded.write_text(now)
        assert load_config(recorded).algorithm.importance_ratio == "auto"
        assert now.count("  # importance_ratio: auto\n") == 1
        recorded.write_text(now.replace("  # importance_ratio: auto\n", ""))
        assert load_config(recorded).algorithm.importance_ratio == wanted


def test_a_recorded_schedule_is_read_by_its_name_of_before_and_a_new_config_is_not(small, tmp_path):
    turns = ["schedule={kind: turns, first_turn_steps: 7}", "rollout.samples=[4,4]"]
    config = load_config(small, turns)
    then = dump_config(config).replace("  first_turn_steps: 7", "  warmup: 7")
    assert "first_turn_steps" not in then
    (tmp_path / "config.yaml").write_text(then)
    assert load_config(tmp_path / "config.yaml") == config
    assert load_recorded(tmp_path / "config.yaml").schedule.first_turn_steps == 7
    with pytest.raises(ConfigError, match=r"schedule\.warmup: unknown key"):
        load_config(small, ["schedule={kind: turns, warmup: 7}"])


def test_a_run_that_shortened_long_prompts_is_read(small, tmp_path):
    now = dump_config(load_config(small))
    then = now.replace("\nrollout:\n", "\nrollout:\n  on_long_prompt: drop_oldest_turn\n")
    assert then != now
    (tmp_path / "config.yaml").write_text(then)
    assert load_config(tmp_path / "config.yaml") == load_config(small)
    with pytest.raises(ConfigError, match=r"rollout\.on_long_prompt: unknown key"):
        load_config(small, ["rollout.on_long_prompt=drop_oldest_turn"])


@pytest.mark.parametrize(
    ("key", "written", "then"),
    [("max_step_kl", "0.3", None), ("skip_zero_advantage", "true", False)],
)
def test_a_run_of_before_a_key_of_training_was_there_goes_on_without_it(
    small, tmp_path, key, written, then
):
    now = dump_config(load_config(small))
    line = f"  {key}: {written}\n"
    assert line in now
    (tmp_path / "config.yaml").write_text(now)
    default = getattr(load_recorded(tmp_path / "config.yaml").train, key)
    (tmp_path / "config.yaml").write_text(now.replace(line, ""))
    assert getattr(load_recorded(tmp_path / "config.yaml").train, key) == then
    assert getattr(load_config(small).train, key) == default != then


def test_a_recorded_tracker_of_before_is_read_over_and_a_new_one_is_unknown(small, tmp_path):
    then = dump_config(load_config(small)).replace(
        "  trackio: null", "  mlflow: {experiment: motet}\n  trackio: null"
    )
    assert "mlflow" in then
    (tmp_path / "config.yaml").write_text(then)
    assert load_config(tmp_path / "config.yaml") == load_config(small)
    with pytest.raises(ConfigError, match=r"report\.mlflow: unknown key"):
        load_config(small, ["report.mlflow={}"])


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        # another kind starts from its defaults, and the same kind keeps what is below
        (
            "credit: {kind: group, scale: std}",
            "credit: {kind: critic, view: own}",
            {"credit": {"kind": "critic", "view": "own"}},
        ),
        (
            "credit: {kind: group, scale: std}",
            "credit: {group_by: task}",
            {"credit": {"scale": "std", "group_by": "task"}},
        ),
        (
            "loss: {kind: gspo, clip_low: 0.1}",
            "loss: {kind: cispo}",
            {"loss": {"kind": "cispo"}},
        ),
        (
            "kl: {kind: loss, coefficient: 0.1, estimator: k3}",
            "kl: {coefficient: 0.2}",
            {"kl": {"kind": "loss", "coefficient": 0.2, "estimator": "k3"}},
        ),
        ("kl: {kind: loss, coefficient: 0.1}", "kl: null", {}),
        # flat keys of before, above and below
        ("{baseline: group_max, scale: std}", "critic_view: own", {"critic_view": "own"}),
        ("preference: {pairs: 4}", "preference: {beta: 0.2}", {"credit": {
            "kind": "pairs", "pairs": 4, "beta": 0.2,
        }}),
        ("{kl_in: loss, kl_coefficient: 0.1}", "kl_in: none", {}),
        ("{kl_in: loss, kl_coefficient: 0.1}", "{kl_in: none, kl_coefficient: 0}", {}),
        ("kl: {kind: loss, coefficient: 0.1}", "kl_target: 2", {
            "kl": {"kind": "loss", "coefficient": 0.1, "target": 2.0},
        }),
    ],
)  # fmt: skip
def test_a_layer_says_another_kind_or_more_of_the_same(small, tmp_path, below, above, expected):
    plain = SMALL.replace("{name: magrpo, credit: {scale: std}}", "{name: magrpo}")
    (tmp_path / "below.yaml").write_text(plain.replace("{name: magrpo}", _with_name(below)))
    (tmp_path / "above.yaml").write_text(f"extends: below.yaml\nalgorithm: {_braced(above)}\n")
    wanted = make_config(load_config(small).model_dump(mode="json") | {
        "algorithm": {"name": "magrpo", **expected}
    })  # fmt: skip
    assert load_config(tmp_path / "above.yaml").algorithm == wanted.algorithm


def _braced(keys: str) -> str:
    return keys if keys.startswith("{") else f"{{{keys}}}"


def _with_name(keys: str) -> str:
    return _braced(keys).replace("{", "{name: magrpo, ", 1)


def test_a_flat_key_and_its_section_may_not_say_two_things(small):
    assert says(
        complaint_of(small, "algorithm={kl: {kind: loss, coefficient: 1}, kl_in: reward}"),
        "override 'algorithm={kl: {kind: loss, coefficient: 1}, kl_in: reward}' … "
        "algorithm … kl.kind twice … kl alone",
    )


def test_a_wrong_flat_key_is_named_as_it_was_written_and_where_it_is_now(small):
    small.write_text(SMALL.replace("credit: {scale: std}", "\n  gae_lambda: 0.5"))
    assert says(
        complaint_of(small),
        "small.yaml:13: algorithm.gae_lambda: algorithm.credit.gae_lambda … 0.5 … kind: group … "
        "function, baseline, scale, group_by, average_decay … kind: critic … drop gae_lambda",
    )


OWN = "algorithm.credit.function=./mine.py:own"


@pytest.mark.parametrize(
    ("below", "overrides", "same"),
    [
        ("credit: ./mine.py:own\n", [], [OWN]),
        ("", ["credit=./mine.py:own"], [OWN]),
        ("credit: ./mine.py:own\n", ["credit=null"], []),
        ("credit: ./mine.py:own\n", ["algorithm.credit.function=null"], []),
        ("credit: ./mine.py:other\n", [OWN], [OWN]),
        ("credit: ./mine.py:own\n", ["algorithm=iac"], ["algorithm=iac", OWN]),
        ("credit: ./mine.py:own\n", ["algorithm.baseline=none"], ["algorithm.baseline=none", OWN]),
        ("credit: null\n", ["algorithm=madpo"], ["algorithm=madpo"]),
    ],
)
def test_a_credit_function_at_the_top_is_that_of_the_algorithm(
    small, below, overrides, same, monkeypatch
):
    monkeypatch.chdir(small.parent)
    plain = SMALL.replace("{name: magrpo, credit: {scale: std}}", "{name: magrpo}")
    small.write_text(plain)
    wanted = load_config(small, same)
    small.write_text(plain + below)
    assert load_config(small, overrides) == wanted


def test_a_recorded_credit_function_at_the_top_is_read(small, tmp_path):
    """Its path is that of the file as it was recorded."""
    config = load_config(small, [OWN])
    then = record_of_before(config, {"name": "magrpo", "scale": "std"}, GROUPED)
    name = config.algorithm.own_credit
    assert name.startswith("/")
    (tmp_path / "config.yaml").write_text(then.replace("credit: null", f"credit: {name}"))
    assert load_config(tmp_path / "config.yaml") == config
    assert load_recorded(tmp_path / "config.yaml").algorithm == config.algorithm
    (tmp_path / "config.yaml").write_text(then)
    record = load_recorded(tmp_path / "config.yaml")
    assert record.algorithm == load_config(small).algorithm
    then = then.replace("  name: magrpo", f"  name: {tmp_path}/mine.py:ROW")
    (tmp_path / "config.yaml").write_text(then)
    record = load_recorded(tmp_path / "config.yaml")
    assert "function" not in record.algorithm.credit, "null is nothing that somebody said"


def test_sections_of_an_algorithm_that_is_code_are_kept_as_they_are_written(small):
    said = "{name: ./mine.py:ROW, loss: {kind: gspo}, epochs: 2}"
    small.write_text(SMALL.replace("{name: magrpo, credit: {scale: std}}", said))
    algorithm = load_recorded(small).algorithm
    assert (algorithm.loss, algorithm.epochs) == ({"kind": "gspo"}, 2)


def test_a_wrong_credit_at_the_top_is_named_as_it_was_written_and_where_it_is_now(small):
    plain = SMALL.replace("{name: magrpo, credit: {scale: std}}", "{name: madpo}")
    small.write_text(plain)
    assert complaint_of(small, "credit=./mine.py:own").startswith(
        "override 'credit=./mine.py:own': algorithm.credit.function: got "
    )
    small.write_text(f"{SMALL}credit: 3\n")
    place = f"small.yaml:{SMALL.count(chr(10)) + 1}: credit"
    assert says(complaint_of(small), f"{place} … 3 … name of a function")
    small.write_text(f"{SMALL}credit: {{scale: std}}\n")
    assert says(complaint_of(small), f"{place} … section … algorithm.credit … keys there")
    both = "{name: magrpo, credit: {function: ./mine.py:own}}"
    small.write_text(SMALL.replace("{name: magrpo, credit: {scale: std}}", both))
    small.write_text(f"{small.read_text()}credit: ./mine.py:other\n")
    assert complaint_of(small).endswith("credit: got credit.function twice, expected credit alone")


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        ("iac", "critic_view",
         "algorithm.credit.view … null … kind: critic … credit.kind: group"),
        ("madpo", "preference",
         "algorithm.credit.beta … null … kind: pairs … credit.kind: group or critic"),
    ],
)  # fmt: skip
def test_a_flat_null_that_would_leave_no_credit_says_what_to_write(small, name, key, said):
    small.write_text(SMALL.replace("{name: magrpo, credit: {scale: std}}", f"{{name: {name}}}"))
    override = f"algorithm.{key}=null"
    assert says(complaint_of(small, override), f"override {override!r} … {said}")
    config = load_config(small, [override, "algorithm.credit.kind=group"])
    assert config.algorithm.credit == GroupCredit()
