"""Two processes with a shard each learn, sample and save what one process does."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from motet.batch import Batch, pack, pack_values, policy_objective, value_objective
from motet.batch.batches import deal, deal_values, weightless
from motet.core import (
    Completion,
    SampleId,
    ScoreRequest,
    TrainSample,
    ValueId,
    ValueSample,
)
from motet.errors import ConfigError
from motet.models import optimizers
from motet.models.backbone import Backbone, Policy
from motet.models.causal_lm import Capabilities
from motet.models.critic import Critic
from motet.models.forward import score_requests
from motet.models.learner import LocalLearner
from motet.models.shards import gathered, is_shard, read_shards, whole
from motet.settings import Algorithm, Optimizer
from motet_cluster.shards import HomeRanks, meeting_store, write_shards
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import make_model_folder
from tests.fork_server import run_ranks

pytestmark = pytest.mark.wide

STEPS = 3
SETTINGS = Optimizer(learning_rate=1e-2, schedule="constant", clip_norm=0.5)
EIGHT = Optimizer(kind="adamw_8bit")
OBJECTIVE = policy_objective(Algorithm())
SQUARED = value_objective(Algorithm(critic_view="own"), 1.0)
KINDS = ("qwen3", "llama", "gpt2", "checkpointing", "bfloat16")
"""Architectures, of which the first has a tied head; and a qwen3 with these settings."""


@dataclass
class Taught:
    """A policy, with a critic on its trunk, and what their steps said."""

    policy: Policy
    critic: Critic
    learner: LocalLearner | None = None


def load(folder: Path, kind: str, ranks: HomeRanks | None = None) -> Taught:
    backbone = Backbone.load(
        folder,
        device="cpu",
        dtype="bfloat16" if kind == "bfloat16" else "float32",
        trainable_full=True,
        checkpointing=kind == "checkpointing",
        ranks=ranks,
    )
    policy = Policy("p", backbone)
    critic = Critic.on("c", policy, owns_trunk=False)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        critic.head.weight += torch.randn(critic.head.weight.shape, generator=generator)
    if backbone.shards is not None:
        backbone.shards.add(critic.head)
    return Taught(policy, critic)


def learner_of(one: Taught, ranks: HomeRanks | None) -> LocalLearner:
    return LocalLearner([one.policy], dict.fromkeys("pc", SETTINGS), STEPS, [one.critic], ranks)


def batches() -> list[Batch]:
    """Micro-batches of 2 prompts with 3 answers, of 1 prompt with 2, and of a single row."""
    found = []
    for prompts, answers in (((5, 6, 7), (11,)), 3), (((16, 17),), 2), (((9,),), 1):
        rows = [
            TrainSample(
                SampleId("e", (), "agent", index),
                turn=0,
                prompt_tokens=prompt,
                completion=Completion(
                    "p", "", "stop", tokens=tokens, logprobs=(-3.0,) * len(tokens), temperature=0.7
                ),
                advantage=(-1.0) ** index * (index + 1),
                share=0.1,
            )
            for place, prompt in enumerate(prompts)
            for index in range(answers)
            for tokens in [(*range(8 + place, 12 + place + index), 1)]
        ]
        found += pack(rows, 10**6, "token_mean", {"p": 12})
    return found


def value_batches():
    rows = [
        ValueSample(
            ValueId("e", (), "agent"),
            "c",
            (("p", 0),),
            0,
            (5, 6, n + 7),
            (1, 2),
            (0.5, 1.0),
            (0.0, 0.0),
            0.3,
        )
        for n in range(3)
    ]
    return pack_values(rows, 10**6)


def teach(learner: LocalLearner, rank: int = 0, size: int = 1) -> dict[str, dict[str, float]]:
    """Take a step as one process, or as one of `size`."""
    for cut, verb, objective, given in (
        (deal, learner.accumulate, OBJECTIVE, batches()),
        (deal_values, learner.accumulate_values, SQUARED, value_batches()),
    ):
        for batch in given:
            parts = cut(batch, size)
            own = parts[rank] if rank < len(parts) else weightless(parts[0])
            asyncio.run(verb(own, objective))
    return asyncio.run(learner.step(["p", "c"]))


def complete(one: Taught) -> list[torch.Tensor]:
    weights = (*one.policy.parameters(), *one.critic.parameters())
    return [whole(weight.detach()).clone() for weight in weights]


def state_of(one: Taught, learner: LocalLearner) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{key}": tensor for name in "pc" for key, tensor in learner.state(name)[0].items()
    }


def work(rank: int, meet: str, folders: dict[str, Path], out: Path) -> None:
    torch.set_num_threads(1)
    ranks = HomeRanks(rank, 2, meet, 300.0, torch.device("cpu"))
    for kind in KINDS:
        alone, shared = load(folders[kind], kind), load(folders[kind], kind, ranks)
        one, two = learner_of(alone, None), learner_of(shared, ranks)
        start = complete(alone)
        figures = [(teach(one), teach(two, rank, 2)) for _ in range(STEPS)]
        ends = complete(alone), complete(shared)
        request = [ScoreRequest("p", (5, 6, 7), (8, 9, 10, 1), 0.7)]
        scored = [score_requests(alone.policy.backbone, request)]
        with gathered([shared.policy.backbone.shards, None]):
            # Each process works alone: the first one asks once, the second one twice.
            for _ in range(rank + 1):
                scored.append(score_requests(shared.policy.backbone, request))
            tied = [head_is_embedding(shared)]
        tied.append(head_is_embedding(shared))
        shared.policy.save(out / kind / str(rank))
        found = {
            "figures": figures, "start": start, "ends": ends, "scored": scored, "tied": tied,
            "able": [one.policy.backbone.capabilities for one in (alone, shared)],
            "local": sum(weight.to_local().numel() for weight in shared.policy.parameters()),
        }  # fmt: skip
        torch.save(found, out / f"{kind}-{rank}.pt")
        if kind == "qwen3":
            go_on(rank, two, shared, out)


def go_on(rank: int, learner: LocalLearner, shared: Taught, out: Path) -> None:
    """Write shards, take a step, read the shards, and take the step again."""
    moments = {name: part for name, part in state_of(shared, learner).items() if is_shard(part)}
    weights = {f"w.{i}": weight.detach() for i, weight in enumerate(shared.policy.parameters())}
    heads = {f"h.{i}": weight.detach() for i, weight in enumerate(shared.critic.parameters())}
    (out / "shards").mkdir(exist_ok=True)
    write_shards({**moments, **weights, **heads}, out / "shards")
    plain = {name: part for name, part in state_of(shared, learner).items() if not is_shard(part)}
    torch.save(plain, out / "plain.pt")
    after = teach(learner, rank, 2), complete(shared)
    restore(learner, shared, out)
    again = teach(learner, rank, 2), complete(shared)
    torch.save((after, again), out / f"after-{rank}.pt")
    try:
        write_shards(weights, out / "after-0.pt")  # no folder
    except OSError:
        torch.save(True, out / f"refused-{rank}.pt")


def restore(learner: LocalLearner, one: Taught, out: Path) -> None:
    parameters = {"p": one.policy.parameters(), "c": one.critic.parameters()}

    def like(name):
        kind, _, rest = name.partition(".")
        return parameters[{"w": "p", "h": "c"}.get(kind, kind)][int(rest.rpartition(".")[2])]

    found = read_shards([out / "shards"], like)
    with torch.no_grad():
        for kind, name in ("w", "p"), ("h", "c"):
            for index, weight in enumerate(parameters[name]):
                weight.copy_(found.pop(f"{kind}.{index}"))
    for name in "pc":
        state = {**found, **torch.load(out / "plain.pt")}
        own = {key[2:]: part for key, part in state.items() if key.startswith(f"{name}.")}
        learner.load_state(name, (own, {"step": STEPS}))


def head_is_embedding(one: Taught) -> bool:
    model = one.policy.backbone.model
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The folder with what both processes found."""
    out = tmp_path_factory.mktemp("out")
    made = {
        kind: make_model_folder(out / f"{kind}-model", kind) for kind in ("qwen3", "llama", "gpt2")
    }
    folders = {kind: made.get(kind, made["qwen3"]) for kind in KINDS}
    store = meeting_store("127.0.0.1")
    meet = f"127.0.0.1:{store.port}"
    run_ranks(work, meet, folders, out)
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [0, 1])
def test_two_processes_learn_what_one_does(found, kind, rank):
    told = torch.load(found / f"{kind}-{rank}.pt", weights_only=False)
    exact = kind != "bfloat16"
    for alone, shared in told["figures"]:
        for name in "pc":
            for figure in ("loss", "grad_norm", "learning_rate"):
                expected = pytest.approx(alone[name][figure], rel=2e-6 if exact else 0.05, abs=1e-7)
                assert shared[name][figure] == expected, (name, figure)
    # The biases of GPT-2's keys have no gradient but rounding, which Adam makes large.
    compared = [not (kind == "gpt2" and weight.shape == (96,)) for weight in told["start"]]
    moved, apart = (
        max(
            float((one - other).abs().max())
            for one, other, counts in zip(first, second, compared, strict=True)
            if counts
        )
        for first, second in ((told["start"], told["ends"][0]), told["ends"])
    )
    assert moved > 0.02
    assert apart < (1e-5 if exact else 0.05)
    assert all(weight.dtype == torch.float32 for weight in told["ends"][1])
    first, *others = told["scored"]
    assert len(others) == rank + 1
    for one in others:
        assert one[0] == pytest.approx(first[0], abs=1e-5 if exact else 0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_each_process_holds_half_and_a_tied_head_stays_tied(found, kind):
    told = [torch.load(found / f"{kind}-{rank}.pt", weights_only=False) for rank in (0, 1)]
    every = sum(weight.numel() for weight in told[0]["start"][:-2])  # without the critic's head
    halves = [one["local"] for one in told]
    assert sum(halves) == every
    assert max(halves) < 0.52 * every
    assert told[0]["tied"] == told[1]["tied"] == [kind != "llama"] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_divided_model_passes_the_trials_of_a_whole_one(found, kind):
    for rank in (0, 1):
        alone, shared = torch.load(found / f"{kind}-{rank}.pt", weights_only=False)["able"]
        assert shared == alone == Capabilities(True, True, True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_process_saves_the_whole_float32_weights(found, kind):
    assert not (found / kind / "1").exists()
    saved = load_file(found / kind / "0" / "model.safetensors")
    policy = load(found / kind / "0", "float32").policy
    weights = torch.load(found / f"{kind}-0.pt", weights_only=False)["ends"][1]
    own = policy.backbone.parameters_of(None)
    assert len(saved) == len(own)
    assert all(torch.equal(one, other) for one, other in zip(own, weights[:-2], strict=True))


def test_shards_are_safetensors_and_two_processes_continue_exactly(found):
    assert [path.name for path in sorted((found / "shards").iterdir())] == [
        "shard-00001-model-00001-of-00001.safetensors",
        "shard-00002-model-00001-of-00001.safetensors",
    ]
    for rank in (0, 1):
        (said, after), (said_again, again) = torch.load(found / f"after-{rank}.pt")
        assert said == said_again
        assert all(torch.equal(one, other) for one, other in zip(after, again, strict=True))


def test_one_process_continues_from_the_shards_of_two(found):
    one = load(found / "qwen3-model", "qwen3")
    learner = learner_of(one, None)
    restore(learner, one, found)
    said = teach(learner)
    (expected, weights), _ = torch.load(found / "after-0.pt")
    for name in "pc":
        assert said[name]["grad_norm"] == pytest.approx(expected[name]["grad_norm"], rel=2e-6)
    for own, other in zip(complete(one), weights, strict=True):
        assert torch.allclose(own, other, atol=5e-6, rtol=0)


def test_shards_that_cannot_be_written_are_an_error_of_the_system_in_all_processes(found):
    assert [torch.load(found / f"refused-{rank}.pt") for rank in (0, 1)] == [True, True]


def test_moments_of_eight_bits_are_refused(monkeypatch):
    monkeypatch.setattr(optimizers, "is_shard", lambda tensor: True)
    with pytest.raises(ConfigError, match=facts("adamw_8bit … kind: adamw")):
        optimizers.make_optimizer([torch.nn.Parameter(torch.zeros(2))], EIGHT)


def test_a_model_of_mixed_dtypes_cannot_be_divided(found):
    backbone = load(found / "qwen3-model", "bfloat16").policy.backbone
    backbone.model._keep_in_fp32_modules_strict = ["norm"]
    with pytest.raises(ConfigError, match=r"norm.* one GPU per home"):
        backbone.shard(None)


# -------------------------------------------------------------------------------------------- ranks


def add_up(rank, meet, out):
    ranks = HomeRanks(rank, 2, meet, 60.0, torch.device("cpu"))
    both, one, none = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    both.grad = torch.tensor([1.0, 2.0]) * (rank + 1)
    if rank == 1:
        one.grad = torch.tensor([5.0, 7.0])
    loss = ranks.add_up([both, one, none], 0.25 + rank)
    found = (both.grad.tolist(), one.grad.tolist(), none.grad, loss)
    torch.save(found, out / f"{rank}.pt")


def test_every_process_has_the_sums_and_a_weight_that_nobody_used_has_no_gradient(tmp_path):
    store = meeting_store("127.0.0.1")
    meet = f"127.0.0.1:{store.port}"
    run_ranks(add_up, meet, tmp_path)
    for rank in (0, 1):
        assert torch.load(tmp_path / f"{rank}.pt") == ([3.0, 6.0], [5.0, 7.0], None, 1.5)
