"""Agents of one model, of which one thinks: prompts, answers, training, resume, replay, serving."""

import json

import pytest
from transformers import AutoTokenizer

import motet
import motet_compare
import motet_serve
from motet.core import walk
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder, make_tokenizer
from tests.small_runs import LORA, run_config

TEMPLATE = (
    "{% for m in messages %}<bos>{{ m.role }}\n"
    "{{ m.content }}<end>{% endfor %}"
    "<bos>assistant\n{% if thinks %}<think>{% endif %}"
)
FUNCTIONS = """
def ask(row):
    return row["q"]

def reward(row, texts):
    assert not any("</think>" in text for text in texts.values())
    return sum(map(len, texts.values())) / 100
"""
LIMIT = 4
DECODE = {"max_new_tokens": 40, "thinking": {"max_tokens": LIMIT}, "template": {"thinks": True}}


@pytest.fixture
def config(tmp_path):
    folder = make_model_folder(tmp_path / "model", chat_template=True, context=160)
    tokenizer = make_tokenizer("qwen3", True, 160, 300)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    (tmp_path / "own.py").write_text(FUNCTIONS)
    (tmp_path / "rows.jsonl").write_text('{"q": "hi"}\n{"q": "ho"}\n')
    own = f"{tmp_path}/own.py"
    rows = {"path": str(tmp_path / "rows.jsonl")}
    agents = {"a": f"{own}:ask", "b": f"{own}:ask"}
    return run_config(
        environment={"name": "functions", "agents": agents, "reward": f"{own}:reward"},
        data={"train": rows, "eval": rows},
        models={"tiny": {"path": str(folder), "device": "cpu"}}, policies={"p": LORA["p"]},
        team={"a": {"policy": "p", "decode": DECODE}, "b": "p"},
        train={"steps": 2, "tasks_per_step": 2}, decode={"max_new_tokens": 8},
        optimizer={"learning_rate": 1e-2, "schedule": "constant"},
    )  # fmt: skip


def rounds(run, step):
    return [
        round_ for one in motet.load_run(run).episodes("train", step=step)
        for _, round_ in walk(one.root)
    ]  # fmt: skip


def test_one_agent_thinks_and_the_others_read_its_answer(config, tmp_path):
    motet.train(config, runs=tmp_path / "runs", show="silent")
    run = tmp_path / "runs" / "run"
    words = AutoTokenizer.from_pretrained(run / "team" / "p")
    said = [words.decode(rounds(run, 1)[0].prompt_tokens[agent]) for agent in ("a", "b")]
    assert said[0] == f"{said[1]}<think>"
    thought, plain = (
        [one for round_ in rounds(run, 2) for one in round_.samples[agent]] for agent in ("a", "b")
    )
    assert not any(one.thinking or one.forced for one in plain)
    forced = [one for one in thought if one.forced]
    assert forced
    for one in forced:
        assert one.logprobs[LIMIT : one.forced[1]] == (0.0,) * (one.forced[1] - LIMIT)
        assert words.decode(one.tokens[:LIMIT]).strip() == one.thinking
        assert words.decode(one.tokens[: one.forced[1]]).endswith("</think>\n\n")
    first = json.loads((run / "metrics.jsonl").read_text().splitlines()[1])
    differences = [v for k, v in first.items() if "sampling_logp_difference" in k]
    assert max(differences) < 1e-4
    assert motet_compare.replay(run, step=2, show="silent").same


@pytest.mark.parametrize("whose", ["everyone", "one"])
def test_a_check_thinks_for_fewer_tokens_than_it_writes(whose):
    decode = {"max_new_tokens": 64, "thinking": {"max_tokens": 32}}
    config = (
        run_config(warmup=None, decode=decode)
        if whose == "everyone"
        else run_config(warmup=None, team={"a": {"policy": "p", "decode": decode}, "b": "q"})
    )
    assert motet.check(config, show="silent").summary.steps == 2


def test_a_resumed_run_thinks_the_same(config, tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    motet.train(config, runs=whole, show="silent")
    short = {**config, "train": {**config["train"], "steps": 1}}
    motet.train(short, runs=part, show="silent")
    motet.train(config, resume=True, runs=part, show="silent")
    assert rounds(whole / "run", 2) == rounds(part / "run", 2)
    assert any(one.forced for round_ in rounds(part / "run", 2) for one in round_.samples["a"])


def test_an_exported_team_thinks_with_the_same_template(config, tmp_path):
    motet.train(config, runs=tmp_path / "runs", show="silent")
    motet_serve.export_team(tmp_path / "runs" / "run", tmp_path / "out")
    own = motet.evaluate(tmp_path / "runs" / "run", show="silent")
    assert motet.evaluate(tmp_path / "out", show="silent").reward == own.reward


@pytest.mark.parametrize(
    ("options", "template", "message"),
    [
        ({}, {"mood": 1}, "decode.template of agent a … 'mood' … does not read"),
        ({}, {"messages": []}, "decode.template of agent a … 'messages' … does not read"),
        (
            {"thinks": 0},
            {"thinks": 1},
            "team.a.decode.template and template_options … thinks",
        ),
    ],
)
def test_a_variable_that_no_template_reads_or_that_is_set_twice_is_refused(
    config, tmp_path, options, template, message
):
    config["models"]["tiny"]["template_options"] = options
    config["team"]["a"]["decode"] = {"template": template}
    with pytest.raises(motet.ConfigError, match=facts(message)):
        motet.train(config, runs=tmp_path / "runs", show="silent")
    with pytest.raises(motet.ConfigError, match=facts(message)):
        motet.dry_run(config)


# ------------------------------------------------------------------------------ answers of a form


FORM = {"temperature": 4.0, "format": {"choices": ["yes", "no", "perhaps"]}}


def test_answers_of_a_form_are_trained_resumed_and_replayed(config, tmp_path):
    config["team"]["b"] = {"policy": "p", "decode": FORM}
    motet.train(config, runs=tmp_path / "whole", show="silent")
    run = tmp_path / "whole" / "run"
    every = [*rounds(run, 1), *rounds(run, 2)]
    texts = {one.text for round_ in every for one in round_.samples["b"]}
    assert texts <= {"yes", "no", "perhaps"}
    assert len(texts) > 1
    for line in (run / "metrics.jsonl").read_text().splitlines():
        differences = [v for k, v in json.loads(line).items() if "sampling_logp_difference" in k]
        assert max(differences, default=0) < 1e-4
    assert motet_compare.replay(run, step=2, show="silent").same
    short = {**config, "train": {**config["train"], "steps": 1}}
    motet.train(short, runs=tmp_path / "part", show="silent")
    motet.train(config, resume=True, runs=tmp_path / "part", show="silent")
    assert rounds(run, 2) == rounds(tmp_path / "part" / "run", 2)


def test_a_form_that_is_none_is_refused_before_anything_is_loaded(config, tmp_path):
    config["team"]["b"] = {"policy": "p", "decode": {"format": {"regex": "(yes"}}}
    for refuse in (lambda: motet.dry_run(config), lambda: motet.train(config, runs=tmp_path)):
        with pytest.raises(motet.ConfigError, match=facts("decode.format: … (yes")):
            refuse()
