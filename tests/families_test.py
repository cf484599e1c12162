"""Models of three families with three tokenizers in one team.

Each keeps its own tokens, and frozen policies do not change.
"""

import asyncio
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, normalizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import motet
from motet.assembly import bases
from motet.assembly.models import assemble
from motet.assembly.task_setup import open_task_setup
from motet.commands.main import main
from motet.core import walk
from motet.models.tiny import EOS, PAD, byte_level_bpe
from tests.fixtures.messages import says
from tests.fixtures.model_folders import BOS, END, make_model_folder
from tests.small_runs import (
    ROOT,
    contents,
    episodes,
    recorded,
    rows,
    run_config,
    steps,
    summary,
    weights,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)

PASSWORDS = [f"A{number:02}:abcdefghij/{number:02}=" for number in range(100)]


def digits(task: motet.Task, texts: Mapping[str, str]) -> dict[str, float]:
    """A reward that random text earns, too.

    It is an agent's share of characters below "m", minus .3 times the sum of all agents' shares.
    """
    share = {
        agent: sum(letter < "m" for letter in text) / (len(text) + 1)
        for agent, text in texts.items()
    }
    return {agent: share[agent] - 0.3 * sum(share.values()) for agent in texts}


def sentence_pieces(folder: Path) -> Path:
    """Make a Llama with a tokenizer like SentencePiece's.

    Spaces become `▁`, one of them precedes every text, and unknown characters become bytes.
    """
    raw = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=special, show_progress=False)
    raw.train_from_iterator([line.replace("/", " ") for line in PASSWORDS], trainer)
    raw.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)], pair="<s> $A $B"
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=96,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1,
                num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
                max_position_embeddings=96, bos_token_id=1, eos_token_id=2, initializer_range=0.3,
            )
        )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def with_words_of_its_own(folder: Path) -> Path:
    """Give the model of `folder` another byte-level BPE.

    Pairs of digits are one token, and every byte has another id.
    """
    raw = byte_level_bpe(PASSWORDS, 300, special_tokens=(PAD, EOS, BOS, END, "<more>"))
    PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token=EOS, model_max_length=96
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model -> its folder. No two of them tokenize a text alike."""
    folder = tmp_path_factory.mktemp("families")
    return {
        "qwen": make_model_folder(folder / "qwen", "qwen3", seed=1, vocabulary=300),
        "llama": sentence_pieces(folder / "llama"),
        "gpt": with_words_of_its_own(make_model_folder(folder / "gpt", "gpt2", seed=3)),
    }


def mixed(families: Mapping[str, Path], **sections: Any) -> dict[str, Any]:
    """Relay: `a` is a Qwen3 with an adapter. `b` is a Llama at the first turn and a GPT-2 at the
    second."""
    return run_config(
        environment={"name": "relay"},
        reward={"name": f"{__file__}:digits"},
        models={name: {"path": str(folder), "device": "cpu"} for name, folder in families.items()},
        policies={
            "q": {"model": "qwen", "train": "lora"},
            "l": {"model": "llama"},
            "g": {"model": "gpt"},
        },
        team={"a": "q", "b": ["l", "g"]},
        rollout={"samples": [2, 2]},
        decode={"max_new_tokens": 5},
        evaluation={"tasks": 8},
        **sections,
    )


def spoken(run: Path, name: str) -> list[tuple[str, str, tuple[int, ...], motet.Completion]]:
    """Return (policy, prompt, its tokens, one answer) of everything that was recorded."""
    return [
        (one.policy, round_.prompts[agent], round_.prompt_tokens[agent], one)
        for episode in episodes(run, name)
        for _, round_ in walk(episode.root)
        for agent, answers in round_.samples.items()
        for one in answers
    ]


MODEL_OF = {"q": "qwen", "l": "llama", "g": "gpt"}


def test_families_train_together_and_every_sample_carries_its_own_tokenizers_tokens(
    families, train
):
    run = train(mixed(families))
    assert [row["step"] for row in steps(run)] == [1, 2]
    assert all(
        row["learn/sampling_logp_difference"] < 1e-4 and row["play/faults"] == 0
        for row in steps(run)
    )
    words = {
        policy: AutoTokenizer.from_pretrained(families[model]) for policy, model in MODEL_OF.items()
    }
    for name in ("train-000001", "train-000002", "evaluate-000002"):
        played = spoken(run, name)
        assert {policy for policy, *_ in played} == set(words)
        for policy, prompt, tokens, _ in played:
            assert tokens == tuple(words[policy](prompt)["input_ids"])
            assert all(
                tokens != tuple(other(prompt)["input_ids"])
                for key, other in words.items()
                if key != policy
            )
        for policy, _, _, answer in played:
            assert max(answer.tokens) < len(words[policy])
            assert answer.text == words[policy].decode(answer.tokens, skip_special_tokens=True)
    assert set(contents(run / "team")) >= {
        "q/adapter_model.safetensors",
        "l/model.safetensors",
        "g/model.safetensors",
    }


def test_what_one_family_says_the_other_reads_in_its_own_tokens(families, train):
    run = train(mixed(families))
    for episode in episodes(run):
        for outcome in episode.root.outcomes:
            said = {
                agent: episode.root.samples[agent][pick].text
                for agent, pick in outcome.picks.items()
            }
            assert outcome.next.prompts["a"].endswith(f":{said['a']}/{said['b']}=")
            assert outcome.next.prompts["b"].endswith(f":{said['b']}/{said['a']}=")


@pytest.mark.wide
def test_a_saved_team_of_families_is_loaded_and_played_by_the_command(
    families, train, monkeypatch, capsys
):
    run = train(mixed(families))
    monkeypatch.setattr(sys, "argv", ["motet", "evaluate", str(run)])
    try:
        main()
    except SystemExit as end:
        assert not end.code  # noqa: PT017
    after = summary(run)["heldout"]["after"]
    assert f"{after['reward']:.3f}" in capsys.readouterr().out
    assert recorded(motet.evaluate(run, show="silent")) == after


@pytest.mark.wide
def test_a_team_of_families_goes_on_from_its_checkpoint_to_the_same_bytes(
    families, train, tmp_path
):
    config = mixed(families, train={"steps": 2, "tasks_per_step": 2, "checkpoint_every": 1})
    whole = train(config, runs=tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    cut = tmp_path / "cut" / whole.name
    for lost in ("checkpoints/step-000002", "team"):
        shutil.rmtree(cut / lost)
    for lost in ("summary.json", "episodes/train-000002.jsonl"):
        (cut / lost).unlink()
    assert train(config, runs=tmp_path / "cut", resume=True) == cut
    assert rows(cut) == rows(whole)
    assert weights(cut) == weights(whole)
    assert contents(cut / "episodes") == contents(whole / "episodes")


# ------------------------------------------------------------------------------------------- frozen


def tensors_of(config: Mapping[str, Any], run: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Return policy -> every tensor of its model, as the trained team of `run` is loaded."""
    with open_task_setup(motet.read_config(config), train=False) as setup:
        found = asyncio.run(bases.raw(setup, run / "scratch", run / "models"))
        trained = {
            name: run / "team" / name
            for name in config["policies"]
            if (run / "team" / name).is_dir()
        }
        models = assemble(setup, found, train=False, trained=trained)
        return {
            name: policy.backbone.model.state_dict() for name, policy in models.policies.items()
        }


@pytest.mark.wide
def test_a_frozen_first_turn_is_the_same_to_the_bit_after_training_and_the_later_turn_is_not(
    families, train
):
    config = mixed(families)
    config["policies"] |= {"l": {"model": "llama", "train": "frozen"}}
    before = contents(families["llama"])
    run = train(config)
    assert contents(families["llama"]) == before
    assert {folder.name for folder in (run / "team").iterdir()} == {"q", "g"}
    assert {key for row in steps(run) for key in row if key.startswith("learn/loss/")} == {
        "learn/loss/q",
        "learn/loss/g",
    }
    loaded = tensors_of(config, run)
    for policy, model, same in (("l", "llama", True), ("g", "gpt", False)):
        start = load_file(families[model] / "model.safetensors")
        assert start
        equal = [torch.equal(loaded[policy][name], tensor) for name, tensor in start.items()]
        assert all(equal) if same else not any(equal)


def test_a_frozen_and_a_later_policy_of_one_model_part_ways(families, train):
    config = mixed(families)
    config["models"] = {"qwen": config["models"]["qwen"]}
    config["policies"] = {"first": {"model": "qwen", "train": "frozen"}, "later": {"model": "qwen"}}
    config["team"] = {"a": ["first", "later"], "b": ["first", "later"]}
    run = train(config)
    start = load_file(families["qwen"] / "model.safetensors")
    loaded = tensors_of(config, run)
    assert all(torch.equal(loaded["first"][name], tensor) for name, tensor in start.items())
    assert not any(torch.equal(loaded["later"][name], tensor) for name, tensor in start.items())


# ---------------------------------------------------------------------------------- too many agents

FOUR = """
name: four
environment: {name: "GAMES:Lottery", players: PLAYERS}
models: {tiny: {embedded: {}}}
policies: {a: {model: tiny}, b: {model: tiny}, c: {model: tiny}}
team: {a: a, b: b, c: c, d: FOURTH}
rollout: {samples: [2]}
train: {steps: 1}
"""


@pytest.mark.parametrize("command", ["check", "train"])
@pytest.mark.parametrize(
    ("players", "fourth", "said"),
    [
        (
            "[a, b, c, d]",
            "missing",
            [
                "four.yaml:5: team.d … 'missing' … a, b, c … add policies.missing",
            ],
        ),
        (
            "[a, b, c]",
            "c",
            [
                "team … a, b, c, d … agents a, b, c … same agents … team.AGENT=null",
            ],
        ),
    ],
)
def test_a_fourth_agent_that_nobody_plays_or_nobody_knows_is_refused_when_the_run_is_built(
    command, players, fourth, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    text = FOUR.replace("GAMES", str(ROOT / "tests" / "games.py")).replace("PLAYERS", players)
    Path("four.yaml").write_text(text.replace("FOURTH", fourth).lstrip())
    monkeypatch.setattr(sys, "argv", ["motet", command, "four.yaml"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert all(says(error, part) for part in said), error
    assert "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["four.yaml"]
