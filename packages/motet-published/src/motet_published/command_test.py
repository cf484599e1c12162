import pytest

from motet.config.load import make_config
from motet.config.no_effect import refuse_keys_without_effect
from motet.errors import ConfigError
from motet_published.command import _free, _last, _parser, config_of, main, translated_from
from motet_published.translate import TRAINERS
from tests.fixtures.messages import facts, says

CONFIG = """\
model: {name: some/model}
dataset: {name: some/humaneval, train_split: "test[4:]", eval_split: "test[:4]"}
magrpo: {num_turns: 2, num_train_epochs: 3, turn_gradient_weights: [1, 1]}
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "mine_config.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture
def resolved(config):
    def read(*words):
        translated = translated_from(
            "magrpo", _parser("magrpo").parse_args(["--config", str(config), *words])
        )
        return make_config(translated.config.data, translated.overrides, translated.config.places)

    return read


def test_a_run_is_called_like_its_config(resolved):
    assert resolved().name == "mine"


def test_overrides_given_several_times_add_up_and_the_last_word_counts(resolved):
    found = resolved(
        "--override", "seed=1", "magrpo.discount=0.5", "--override", "seed=2", "model_name=x/y"
    )
    assert (found.seed, found.algorithm.gamma, found.models["base"].path) == (2, 0.5, "x/y")


def test_values_are_those_of_yaml_and_what_python_writes(resolved):
    found = resolved(
        "--override", "magrpo.learning_rate=5e-6", "dataset.train_split=train[:1000]",
        "magrpo.turn_gradient_weights=[1.5,0.5]",
        "magrpo.top_k=None", "magrpo.normalize_advantage=True",
        "reward_processor={enabled: true, shift: -4}",
    )  # fmt: skip
    assert found.optimizer.learning_rate == 5e-6
    assert found.data.train.split == "train[:1000]"
    assert found.algorithm.turn_weights == (1.5, 0.5)
    assert (found.decode.top_k, found.algorithm.credit.scale) == (0, "std")
    assert found.environment.options["reward"] == {"shift": -4}


OLDER = {
    ("--model_name", "x/y"): ("models.base.path", "x/y"),
    ("--output_base_dir", "out"): ("runs", "out"),
    ("--num_epochs", "10"): ("train.epochs", 10),
    ("--num_turns", "3", "--turn_gradient_weights", "1", "1", "1"): ("rollout.samples", [4, 4, 4]),
    ("--turn_gradient_weights", "1.2", "0.8"): ("algorithm.turn_weights", [1.2, 0.8]),
}


@pytest.mark.parametrize("words", OLDER, ids=lambda words: words[0])
def test_an_older_flag_changes_what_it_says_and_lies_over_overrides(config, words):
    overrides = ["model.name=z/z", "output.base_dir=z", "magrpo.num_train_epochs=1"]

    def read(*more):
        given = ["--config", str(config), "--override", *overrides, *more]
        translated = translated_from("magrpo", _parser("magrpo").parse_args(given))
        found = make_config(translated.config.data, places=translated.config.places)
        plain = found.model_dump(mode="json") | {"runs": str(translated.runs)}
        plain["algorithm"] = found.algorithm.model_dump(mode="json")
        return plain

    def at(plain, path):
        for key in path.split("."):
            plain = plain[key]
        return plain

    path, value = OLDER[words]
    assert at(read(*words), path) == value
    assert at(read(), path) != value


def test_flags_are_never_guessed_from_a_beginning(config, capsys):
    with pytest.raises(SystemExit):
        _parser("magrpo").parse_args(["--config", str(config), "--num_epoch", "1"])
    assert "unrecognized arguments: --num_epoch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--override", "seed"], "override 'seed' … KEY=VALUE"),
        (
            ["--override", "magrpo.lerning_rate=1"],
            "override 'magrpo.lerning_rate=1' … unknown key … magrpo.learning_rate",
        ),
        (
            ["--override", "magrpo.learning_rate=fast"],
            "override 'magrpo.learning_rate=fast' … magrpo.learning_rate: optimizer.",
        ),
        (
            ["--override", "motet.train.stepz=1"],
            "override 'motet.train.stepz=1' … motet.train.stepz: train.stepz … steps",
        ),
        (
            ["--override", "grpo.discount=1"],
            "override 'grpo.discount=1' … grpo … magrpo",
        ),
        (["--num_epochs", "0"], "--num_epochs: magrpo.num_train_epochs: train.epochs … 0"),
        (
            ["--override", "magrpo.reference_devices=cuda:1"],
            "override 'magrpo.reference_devices=cuda:1' … magrpo.reference_devices … reference",
        ),
    ],
)
def test_wrong_words_are_one_clear_line_and_exit_code_2(config, capsys, words, message):
    with pytest.raises(SystemExit) as ended:
        main("magrpo", ["--config", str(config), *words])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert says(error, message)
    assert "Traceback" not in error


def test_a_mistake_in_the_file_names_its_line(tmp_path, capsys):
    file = tmp_path / "bad.yaml"
    file.write_text(CONFIG + "external:\n  sandbox_slice: few\n")
    with pytest.raises(SystemExit):
        main("magrpo", ["--config", str(file)])
    said = capsys.readouterr().err
    assert says(said, "bad.yaml:5: external.sandbox_slice … 'few' … whole number … all")


def test_motets_own_keys_in_a_file_name_their_line(tmp_path, capsys):
    file = tmp_path / "bad.yaml"
    file.write_text(CONFIG + "motet:\n  train: {stepz: 3}\n")
    with pytest.raises(SystemExit):
        main("magrpo", ["--config", str(file)])
    said = capsys.readouterr().err
    assert says(said, "bad.yaml:5: motet.train.stepz: train.stepz … unknown … steps")


def test_the_same_command_again_is_another_run(tmp_path):
    assert _free("run", tmp_path) == "run"
    (tmp_path / "run").mkdir()
    assert _free("run", tmp_path) == "run-2"
    (tmp_path / "run-2").mkdir()
    assert _free("run", tmp_path) == "run-3"


def test_the_last_run_of_a_name_is_the_one_to_go_on_with(tmp_path):
    with pytest.raises(ConfigError, match=facts("run … no run … --reload")):
        _last("run", tmp_path)
    for name in ("run", "run-2", "run-3", "run-5"):
        (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=facts("run … no run … --reload")):  # empty folders
        _last("run", tmp_path)
    for name in ("run", "run-2", "run-5"):
        (tmp_path / name / "config.yaml").touch()
    assert _last("run", tmp_path) == "run-2"


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_trainer_has_its_flags_and_no_others(trainer, capsys):
    with pytest.raises(SystemExit):
        _parser(trainer).parse_args(["--help"])
    page = capsys.readouterr().out
    maporl = trainer == "maporl"
    assert ("--reload" in page, "--alpha" in page, "--num_turns" in page) == (
        maporl,
        maporl,
        not maporl,
    )
    assert f"train_{trainer}.py --config" in page


@pytest.fixture
def noted(config):
    """Return the config and the notes that say what has no effect."""

    def read(*words):
        given = ["--config", str(config), "--override", *words]
        translated = translated_from("magrpo", _parser("magrpo").parse_args(given))
        found = config_of(translated)
        return found, [note for note in translated.notes if "has no effect" in note]

    return read


def test_a_published_key_without_effect_is_dropped_and_noted(noted):
    one_turn = ["magrpo.num_turns=1", "magrpo.turn_gradient_weights=[1]"]
    keys = ["discount=0.9", "handoff=random", "termination_threshold=1.0"]
    found, notes = noted(*one_turn, *(f"magrpo.{key}" for key in keys))
    why = "has no effect, because rollout.samples [4] plays one turn"
    assert f"magrpo.discount {why}" in notes
    assert [note.partition(" ")[0] for note in notes] == [
        "magrpo.discount",
        "magrpo.handoff",
        "magrpo.termination_threshold",
    ]
    refuse_keys_without_effect(found)
    assert found.algorithm.gamma == 1.0


def test_a_published_key_with_an_effect_gets_no_note(noted):
    keys = ["discount=0.9", "handoff=random", "termination_threshold=1.0"]
    found, notes = noted(*(f"magrpo.{key}" for key in keys))
    assert notes == []
    assert (found.algorithm.gamma, found.rollout.expand, found.rollout.stop_at_reward) == (
        0.9,
        "random",
        1.0,
    )


def test_an_own_key_without_effect_stays_and_is_refused(noted):
    found, _ = noted("motet.algorithm.average_decay=0.5")
    with pytest.raises(
        ConfigError, match=r"motet\.algorithm\.average_decay: algorithm\.credit\.aver"
    ):
        refuse_keys_without_effect(found)


def test_a_published_key_without_effect_is_noted_and_the_others_are_kept(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "{dataset_name: GSM8k, base_model: some/model, agent_num: 2, round_num: 2, "
        "per_device_train_batch_size: 1, no_reward_model: true, rule_horizon: last, "
        "rule_discount: 0.5}\n"
    )
    given = ["--config", str(file), "--alpha", "[0, 0, 2, 0]"]
    translated = translated_from("maporl", _parser("maporl").parse_args(given))
    found = config_of(translated)
    (note,) = [note for note in translated.notes if "no effect" in note]
    assert says(note, "rule_discount … returns: last … one turn")
    assert (found.algorithm.incentives.alphas, found.algorithm.incentives.beta0) == ("code", 2)
    refuse_keys_without_effect(found)
