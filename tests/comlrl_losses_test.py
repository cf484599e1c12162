"""The losses of pairs are those of comlrl 1.4.3, computed by its own classes on the same tensors.

comlrl needs its own environment: `make bench-peers` makes it, or BENCH_PEERS names a folder that
has it. Without one these tests are skipped.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from motet.batch import pack_value_pairs, pair_objective
from motet.core import SampleId, ValueId, ValueSample
from motet.credit.preferences import PreferencePair, preference_advantages, preference_loss
from motet.models.backbone import Backbone, Policy
from motet.models.critic import Critic
from motet.models.loading import load_tokenizer

SPEED = Path(__file__).parent.parent / "benchmarks" / "speed"
sys.path.insert(0, str(SPEED))
from peers import python_of  # noqa: E402

sys.path.remove(str(SPEED))

pytestmark = pytest.mark.skipif(
    not python_of("comlrl").exists(), reason="no environment with comlrl: see BENCH_PEERS"
)
BETA, AGENTS = 0.3, ("a", "b")
TEXTS = [
    [("one plus two: ", "three", "four or five"), ("user: hi ", "assistant: hello", "no")],
    [("def add(a, b):", " return a + b", " return a"), ("the quick", " brown fox", " lazy dog.")],
    [("x", "yes", "no, not at all"), ("y", "jumps over", "fox")],
]
"""Three pairs of two agents: (prompt, chosen, rejected)."""


@pytest.fixture(scope="module")
def case(model_folder, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """Return the model, the pairs, and what comlrl computes for them."""
    folder, place = model_folder("llama"), tmp_path_factory.mktemp("losses")
    tokenizer, _ = load_tokenizer(folder)
    torch.manual_seed(0)
    width = Backbone.load(folder, device="cpu").width
    given = {
        "beta": BETA,
        "head": torch.randn(width).tolist(),
        "pairs": [
            {
                "texts": texts,
                "tokens": [[tokenizer(one)["input_ids"] for one in agent] for agent in texts],
            }
            for texts in TEXTS
        ],
    }
    asked, out = place / "pairs.json", place / "found.pt"
    asked.write_text(json.dumps(given))
    side = SPEED / "losses_of_comlrl.py"
    subprocess.run([python_of("comlrl"), side, folder, asked, out], check=True)
    return folder, given, torch.load(out)


def difference(ours: Tensor | float, theirs: Tensor | float) -> float:
    gap = torch.as_tensor(ours).double() - torch.as_tensor(theirs).double()
    return gap.abs().max().item()


def test_the_loss_of_madpo_and_its_gradient_are_those_of_comlrl(case) -> None:
    folder, given, found = case
    model = Backbone.load(folder, device="cpu", trainable_full=True).model.double()
    weights = dict(model.named_parameters())

    def logp(prompt: list[int], tokens: list[int]) -> Tensor:
        logits_LV = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
        return logits_LV.log_softmax(-1)[range(len(tokens)), tokens].sum()

    pairs, logps = [], {}
    for number, row in enumerate(given["pairs"]):
        sides: list[list[SampleId]] = [[], []]
        for agent, (prompt, *completions) in zip(AGENTS, row["tokens"], strict=True):
            for index, tokens in enumerate(completions):
                id = SampleId(str(number), (), agent, index)
                sides[index].append(id)
                logps[id] = logp(prompt, tokens)
        pairs.append(PreferencePair(tuple(sides[0]), tuple(sides[1])))
    margins = [
        sum(logps[id].item() for id in one.chosen) - sum(logps[id].item() for id in one.rejected)
        for one in pairs
    ]
    margin_Q = torch.tensor(margins, dtype=torch.float64)
    loss = preference_loss(margin_Q, BETA).mean()
    for theirs in found["madpo"]["losses"]:
        assert difference(loss, theirs) < 1e-6
    advantages = preference_advantages(pairs, margin_Q, BETA)
    for agent, theirs in zip(AGENTS, found["madpo"]["gradients"], strict=True):
        # The policy-gradient loss that Motet trains with: the mean over pairs of -A · log π.
        model.zero_grad()
        own = [-advantages[id] * each for id, each in logps.items() if id.agent == agent]
        (torch.stack(own).sum() / len(pairs)).backward(retain_graph=True)
        assert theirs.keys() == {name for name, one in weights.items() if one.grad is not None}
        largest = max(one.abs().max().item() for one in theirs.values())
        assert largest > 1e-3
        assert max(difference(weights[name].grad, one) for name, one in theirs.items()) < 1e-6


def test_the_loss_of_the_reward_model_and_its_gradient_are_those_of_comlrl(case) -> None:
    folder, given, found = case
    theirs = found["reward_model"]
    backbone = Backbone.load(folder, device="cpu", trainable_full=True)
    critic = Critic.on("reward", Policy("reward", backbone), owns_trunk=True)
    backbone.model.double()
    nn.Module.double(critic.head)
    with torch.no_grad():
        critic.head.weight.copy_(torch.tensor([given["head"]]))
    samples = [
        ValueSample(
            ValueId(str(place), (), None), "reward", (), 0, tuple(tokens), (len(tokens) - 1,),
            (0.0,), (0.0,), 1.0,
        )
        for place, tokens in enumerate(theirs["tokens"])
    ]  # fmt: skip
    pairs = list(zip(samples[0::2], samples[1::2], strict=True))
    (batch,) = pack_value_pairs(pairs, 10**6)
    hidden_BLH, _ = backbone.hidden(
        batch.tokens_BL, batch.mask_BL, (batch.mask_BL.long().cumsum(1) - 1).clamp(min=0)
    )
    loss, measured = pair_objective(batch, critic.head(hidden_BLH).squeeze(-1))
    loss.backward()
    assert difference(loss, theirs["loss"]) < 1e-6
    assert difference(measured["loss"].value, theirs["loss"]) < 1e-6
    gap_Q = theirs["scores"][0::2] - theirs["scores"][1::2]
    assert measured["accuracy"].value == pytest.approx((gap_Q > 0).double().mean().item())
    own = {f"backbone.{name}": one.grad for name, one in backbone.model.named_parameters()}
    own |= {f"reward_head.{name}": one.grad for name, one in critic.head.named_parameters()}
    wanted = {name: one for name, one in theirs["gradients"].items() if one.abs().max() > 0}
    largest = max(one.abs().max().item() for one in wanted.values())
    assert largest > 1e-3
    # The weight 1/3 of a pair is a float32.
    assert max(difference(own[name], one) for name, one in wanted.items()) < 1e-6 * largest
