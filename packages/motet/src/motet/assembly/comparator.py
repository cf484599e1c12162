"""The comparator of a run: the policies that play it, and their answers as tokens of the team's."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from motet.assembly.critics import SharedModels, load_model
from motet.assembly.services import endpoint_of
from motet.assembly.task_setup import TeamSetup
from motet.config.schema import RunConfig
from motet.core import Completion, Sampler
from motet.models.backbone import Policy
from motet.models.causal_lm import CausalLM
from motet.models.content import text_ids
from motet.rollout.other_samplers import EndpointPolicies
from motet.settings import Lora


@dataclass(frozen=True)
class Comparator:
    """What a comparator adds to the models of a run."""

    policy_of: Mapping[str, str] = field(default_factory=dict)
    """Agent -> the policy that answers for it. Empty without a comparator."""
    copies: Mapping[str, Policy] = field(default_factory=dict)
    """The frozen copies of the team's own policies, for the sampler."""
    past: "PastPolicies | None" = None
    players: Mapping[str, Policy] = field(default_factory=dict)
    """The policies of the run."""
    same_vocabulary: Collection[tuple[str, str]] = ()
    """(policy of the team, policy of the comparator) with the same tokens."""

    def tokens_for(self, policy: str, completion: Completion, prompt: int) -> tuple[int, ...]:
        """Return the tokens of the comparator's completion for `policy`, as far as its context
        reaches.

        Policies with one vocabulary keep the sampled tokens. Otherwise the text is encoded again,
        and a completion that ended gets the end-of-sequence token.

        Args:
            prompt: the number of tokens of the prompt.
        """
        own, tokens = self.players[policy].backbone, completion.tokens
        if tokens is None or (policy, completion.policy) not in self.same_vocabulary:
            said = own.tokenizer.eos_token_id
            end = (own.eos_ids[0] if said is None else said,) if own.eos_ids else ()
            tokens = tuple(text_ids(own.tokenizer, completion.text))
            tokens += end if completion.stop == "stop" or not tokens else ()
        return tokens[: own.context_length - prompt]

    def remember(self, step: int) -> None:
        """Begin an iteration with step `step`, before it is played."""
        if self.past is not None:
            self.past.remember(step)


class PastPolicies:
    """Frozen copies of policies, with the weights of `age` iterations ago.

    `remember` is called at the beginning of every iteration, before it is played. In the first
    `age` iterations the copies have the weights of the first one. The weights of the last
    iterations are in main memory, and in checkpoints.
    """

    def __init__(
        self, policies: Mapping[str, Policy], copies: Mapping[str, Policy], age: int
    ) -> None:
        """Create the copies' weights. `copies` has the same keys as `policies`."""
        self._policies, self._copies, self._age = policies, copies, age
        self._weights: dict[int, dict[str, list[Tensor]]] = {}
        """First step of an iteration -> policy -> the weights that it began with."""

    @torch.no_grad()
    def remember(self, step: int) -> None:
        """Begin an iteration with step `step`. Doing it twice changes nothing."""
        present = {
            name: [parameter.detach().cpu().clone() for parameter in policy.parameters()]
            for name, policy in self._policies.items()
        }
        known = sorted(number for number in self._weights if number < step)[-self._age :]
        past = self._weights[known[0]] if known else present
        for name, copy in self._copies.items():
            for weight, value in zip(_weights_of(copy), past[name], strict=True):
                weight.copy_(value)
            copy.backbone.sync_from_master()
        self._weights = {number: self._weights[number] for number in known} | {step: present}

    def state(self) -> dict[str, Tensor]:
        """Return the weights of the last iterations: `past.STEP.POLICY.i`."""
        return {
            f"past.{step}.{name}.{index}": weight
            for step, weights in self._weights.items()
            for name, own in weights.items()
            for index, weight in enumerate(own)
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        steps = sorted({int(key.split(".")[1]) for key in tensors if key.startswith("past.")})
        self._weights = {
            step: {
                name: [
                    tensors[f"past.{step}.{name}.{index}"].clone()
                    for index in range(len(policy.parameters()))
                ]
                for name, policy in self._policies.items()
            }
            for step in steps
        }


def _weights_of(copy: Policy) -> Sequence[nn.Parameter]:
    if copy.adapter is not None:
        return copy.backbone.parameters_of(copy.adapter)
    return list(copy.backbone.model.parameters())


def comparator_of(
    setup: TeamSetup,
    policies: Mapping[str, Policy],
    shared: SharedModels,
    sources: Mapping[str, str | Path],
) -> Comparator:
    """Return the comparator of a training run.

    Args:
        sources: fully trained policy -> the folder or hub name that it was loaded from.
    """
    chosen, config = setup.config.comparator, setup.config
    if chosen is None:
        return Comparator()
    own = {agent: setup.team.policy_of(agent, 0) for agent in setup.team.agents}
    if chosen.team:
        pairs = {(own[agent], name) for agent, name in chosen.team.items()}
        same = [
            (name, other)
            for name, other in pairs
            if _same_words(policies[name].backbone, policies[other].backbone)
        ]
        return Comparator(chosen.team, players=policies, same_vocabulary=same)
    if chosen.endpoint is not None:
        policy_of = dict.fromkeys(config.team, _named(chosen.endpoint.model))
        return Comparator(policy_of, players=policies)
    assert chosen.history is not None
    trained = {name: policy for name, policy in policies.items() if policy.trainable}
    copies = {name: _copy(f"{name} (earlier)", name, config, shared, sources) for name in trained}
    past = PastPolicies(trained, copies, chosen.history)
    policy_of = {
        agent: copies[name].name if name in copies else name for agent, name in own.items()
    }
    same = [(name, copy.name) for name, copy in copies.items()]
    by_name = {copy.name: copy for copy in copies.values()}
    return Comparator(policy_of, by_name, past, policies, same)


def _copy(
    name: str,
    of: str,
    config: RunConfig,
    shared: SharedModels,
    sources: Mapping[str, str | Path],
) -> Policy:
    """Return a frozen policy with as many weights as policy `of`. `PastPolicies` sets them."""
    policy = config.policies[of]
    if policy.train == "full":
        model = load_model(config.models[policy.model], sources[of], full=False)
        return Policy(name, model, trainable=False)
    backbone = shared[policy.model]
    if policy.adapter is not None:
        backbone.load_adapter(name, policy.adapter)
    else:
        backbone.add_adapter(name, policy.new_adapter or Lora(), 0)
    return Policy(name, backbone, name, trainable=False)


def _named(model: str) -> str:
    return f"endpoint ({model})"


def with_endpoint(sampler: Sampler, config: RunConfig) -> Sampler:
    """Return a sampler that also asks the comparator's endpoint, if there is one.

    Raises: ConfigError if its key is missing or not valid.
    """
    chosen = config.comparator.endpoint if config.comparator is not None else None
    if chosen is None:
        return sampler
    endpoint = endpoint_of("comparator.endpoint", chosen, config.seed)
    return EndpointPolicies(sampler, {_named(chosen.model): endpoint})


def _same_words(first: CausalLM, other: CausalLM) -> bool:
    same_ends = first.eos_ids == other.eos_ids
    return same_ends and first.tokenizer.get_vocab() == other.tokenizer.get_vocab()
