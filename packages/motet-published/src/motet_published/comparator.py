"""Who plays the other side of the pairs: the section `comparator` of a config.

Source: comlrl 1.4.3, `comparator_policy` of its iterative trainers. Both sides of a pair are
learned from with the present policies, whoever wrote them. So the comparator's texts become tokens
of the agent's own policy, with their log-probabilities under it (`_preference_tensors_from_text`
of MADPOIterTrainer). comlrl leaves out the end-of-sequence token; here a completion that ended has
it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from motet.assembly.models import LocalModels
from motet.assembly.services import endpoint_of
from motet.batch import Learner, pack
from motet.clients.endpoint import Endpoint
from motet.config.schema import RunConfig
from motet.config.sections import EndpointConfig
from motet.core import (
    Completion,
    Episode,
    Fault,
    OnAnswer,
    Round,
    Sampled,
    SampleId,
    Sampler,
    SampleRequest,
    TrainSample,
)
from motet.errors import ConfigError
from motet.models.backbone import Policy
from motet.models.content import text_ids
from motet.models.sampler import LocalSampler
from motet.rollout.endpoint_sampler import EndpointSampler
from motet.rollout.many_samplers import ManySamplers
from motet.settings import Settings
from motet.trainer.components import TrainComponents


class ComparatorOptions(Settings):
    """Who gives the second half of the answers to a problem. Exactly one of the three."""

    history: PositiveInt | None = None
    """The team itself, with the weights of this many iterations ago; in the first iterations with
    its initial weights. Checkpoints hold the weights of the iterations since then."""
    team: dict[str, str] = Field(default_factory=dict)
    """Agent -> a frozen policy of this run, such as a saved team or a larger model."""
    endpoint: EndpointConfig | None = None
    """A model behind a chat endpoint, which answers the prompts of all agents. Unless it says
    otherwise, requests have the agent's temperature, top_p and max_new_tokens."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) not in (None, {})]
        if len(given) != 1:
            raise ValueError(
                f"got {' and '.join(given) or 'none'} of history, team and endpoint; expected "
                "exactly one"
            )
        return self


class PublishedComparator:
    """A `motet.trainer.components.Comparator`."""

    Options = ComparatorOptions

    def __init__(self, options: ComparatorOptions, config: RunConfig) -> None:
        """Raises: ConfigError if it does not fit the run, or if the key of the endpoint is missing
        or not valid."""
        self._age = options.history
        self._own = {agent: player.policy[0] for agent, player in config.team.items()}
        self._endpoint: Endpoint | None = None
        if options.endpoint is not None:
            self._endpoint = endpoint_of("comparator.endpoint", options.endpoint, config.seed)
            self.policy_of = dict.fromkeys(self._own, f"endpoint ({options.endpoint.model})")
        elif options.team:
            _refuse_unfit_team(options.team, config)
            self.policy_of = options.team
        else:
            self.policy_of = {
                agent: name if name in config.frozen else name + EARLIER
                for agent, name in self._own.items()
            }
        self._players: Mapping[str, Policy] = {}
        self._past: PastPolicies | None = None

    def join(self, components: TrainComponents) -> TrainComponents:
        models = components.models
        assert isinstance(models, LocalModels)  # the config refuses it with a cluster
        self._players = models.policies
        sampler = models.sampler
        if self._endpoint is not None:
            asked = EndpointSampler(self._endpoint)
            sampler = ManySamplers(sampler, dict.fromkeys(self.policy_of.values(), asked))
        elif self._age is not None:
            trained = {name: one for name, one in models.policies.items() if one.trainable}
            self._past = PastPolicies(trained, self._age)
            sampler = EarlierSampler(sampler, self._past)
        return replace(
            components, models=ComparedModels(models, sampler, self._past), comparator=self
        )

    def begin(self, step: int) -> None:
        """Begin an iteration with step `step`, before it is played."""
        if self._past is not None:
            self._past.remember(step)

    async def as_own(
        self, components: TrainComponents, episodes: Sequence[Episode]
    ) -> Sequence[Episode]:
        """Return the episodes with every completion of the comparator as one of the agent's
        policy."""
        samples = [
            one
            for episode in episodes
            if episode.root is not None
            for one in self._foreign(components, episode.id, episode.root)
        ]
        found: dict[SampleId, Completion] = {}
        completion_of = {sample.id: sample.completion for sample in samples}
        budget = components.train.token_budget
        for batch in pack(samples, budget, "sequence_sum", components.longest):
            logp_BL = await components.models.learners[batch.policy].logprobs(batch)
            for id, logp_L in zip(batch.ids, logp_BL.tolist(), strict=True):
                one = completion_of[id]
                found[id] = replace(one, logprobs=tuple(logp_L[: len(one.tokens or ())]))
        return [_with(episode, found) for episode in episodes]

    def _foreign(
        self, components: TrainComponents, episode: str, round_: Round
    ) -> list[TrainSample]:
        """Return the comparator's completions of a Round, with log-probabilities of 0."""
        samples: list[TrainSample] = []
        for agent, completions in round_.samples.items():
            policy = components.team.policy_of(agent, round_.turn)
            prompt, decode = round_.prompt_tokens[agent], components.team.decode[agent]
            for index in range(len(completions) // 2, len(completions)):
                said = completions[index]
                tokens = self._tokens_for(policy, said, len(prompt))
                own = Completion(
                    policy,
                    said.text,
                    said.stop,
                    tokens=tokens,
                    logprobs=(0.0,) * len(tokens),
                    temperature=decode.temperature,
                )
                id = SampleId(episode, (), agent, index)
                samples.append(TrainSample(id, round_.turn, prompt, own, 0.0, 1.0))
        return samples

    def _tokens_for(self, policy: str, completion: Completion, prompt: int) -> tuple[int, ...]:
        """Return the tokens of the comparator's completion for `policy`, as far as its context
        reaches after a prompt of this many tokens.

        Policies with one vocabulary keep the sampled tokens. Otherwise the text is encoded again,
        and a completion that ended gets the end-of-sequence token.
        """
        own, tokens = self._players[policy].backbone, completion.tokens
        if tokens is None or not self._same_words(policy, completion.policy):
            said = own.tokenizer.eos_token_id
            end = (own.eos_ids[0] if said is None else said,) if own.eos_ids else ()
            tokens = tuple(text_ids(own.tokenizer, completion.text))
            tokens += end if completion.stop == "stop" or not tokens else ()
        return tokens[: own.context_length - prompt]

    def _same_words(self, policy: str, other: str) -> bool:
        if other not in self._players:
            return other == policy + EARLIER
        first, second = self._players[policy].backbone, self._players[other].backbone
        same_ends = first.eos_ids == second.eos_ids
        return same_ends and first.tokenizer.get_vocab() == second.tokenizer.get_vocab()


def _refuse_unfit_team(players: Mapping[str, str], config: RunConfig) -> None:
    """Raises: ConfigError."""
    if set(players) != set(config.team):
        raise ConfigError(
            f"comparator.team names {', '.join(players)}; expected a policy for each of "
            f"{', '.join(config.team)}"
        )
    for agent, name in players.items():
        if name not in config.policies:
            raise ConfigError(
                f"comparator.team.{agent} names policy {name!r}; policies are: "
                f"{', '.join(config.policies)}. Use one of these, or add policies.{name}"
            )
        if name not in config.frozen:
            raise ConfigError(
                f"comparator.team.{agent} names policy {name!r}, which is trained; use one with "
                "train: frozen (without comparator the present team plays both halves)"
            )


def _with(episode: Episode, found: Mapping[SampleId, Completion]) -> Episode:
    if episode.root is None:
        return episode
    samples = {
        agent: tuple(
            found.get(SampleId(episode.id, (), agent, index), one)
            for index, one in enumerate(completions)
        )
        for agent, completions in episode.root.samples.items()
    }
    return replace(episode, root=replace(episode.root, samples=samples))


# ------------------------------------------------------------------------------- the team, earlier


class PastPolicies:
    """The weights that policies had `age` iterations ago.

    `remember` is called at the beginning of every iteration, before it is played. In the first
    `age` iterations they are the weights of the first one. The weights of the last iterations are
    in main memory, and in checkpoints.
    """

    def __init__(self, policies: Mapping[str, Policy], age: int) -> None:
        self._policies, self._age = policies, age
        self._weights: dict[int, dict[str, list[Tensor]]] = {}
        """First step of an iteration -> policy -> the weights that it began with."""

    def remember(self, step: int) -> None:
        """Begin an iteration with step `step`. Doing it twice changes nothing."""
        known = sorted(number for number in self._weights if number < step)[-self._age :]
        self._weights = {number: self._weights[number] for number in known} | {
            step: {name: _copied(policy) for name, policy in self._policies.items()}
        }

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the policies their weights of `age` iterations ago, until the end of the body."""
        present = {name: _copied(policy) for name, policy in self._policies.items()}
        _give(self._policies, self._weights[min(self._weights)])
        try:
            yield
        finally:
            _give(self._policies, present)

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


def _copied(policy: Policy) -> list[Tensor]:
    return [parameter.detach().cpu().clone() for parameter in policy.parameters()]


@torch.no_grad()
def _give(policies: Mapping[str, Policy], weights: Mapping[str, Sequence[Tensor]]) -> None:
    for name, policy in policies.items():
        for parameter, value in zip(policy.parameters(), weights[name], strict=True):
            parameter.copy_(value)
        policy.backbone.sync_from_master()


EARLIER = " (earlier)"


class EarlierSampler:
    """A `core.Sampler` that also has the policies `NAME (earlier)`: those of the team, with past
    weights. The present weights sample first, because the past ones then take their place."""

    def __init__(self, present: Sampler, past: PastPolicies) -> None:
        self._present, self._past = present, past

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]:
        """Return completions in the order of the requests; none is passed on early."""
        places: dict[bool, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(request.policy.endswith(EARLIER), []).append(place)
        answers: dict[int, Sampled | Fault] = {}
        for earlier in sorted(places):
            own = [_of_its_policy(requests[place]) for place in places[earlier]]
            with self._past.in_place() if earlier else nullcontext():
                found = await self._present.sample(own)
            for place, answer in zip(places[earlier], found, strict=True):
                answers[place] = _said_by(requests[place].policy, answer) if earlier else answer
        return [answers[place] for place in range(len(requests))]


def _of_its_policy(request: SampleRequest) -> SampleRequest:
    return replace(request, policy=request.policy.removesuffix(EARLIER))


def _said_by(policy: str, answer: Sampled | Fault) -> Sampled | Fault:
    if isinstance(answer, Fault):
        return answer
    said = [replace(one, policy=policy, version=0) for one in answer.completions]
    return replace(answer, completions=tuple(said))


# ------------------------------------------------------------------------------ the models together


class ComparedModels:
    """A `motet.trainer.components.Models`: those of a run, with a sampler that also has the
    policies of a comparator, and its past weights."""

    def __init__(self, own: LocalModels, sampler: Sampler, past: PastPolicies | None) -> None:
        self._own, self._past, self.sampler = own, past, sampler
        self.samples_beside = own.samples_beside
        self.write_shards = own.write_shards
        self.restart, self.timings = own.restart, own.timings
        self.reset_references = own.reset_references
        self.play_snapshots, self.store_snapshots = own.play_snapshots, own.store_snapshots
        self.publish_metrics, self.facts, self.save = own.publish_metrics, own.facts, own.save

    @property
    def scorer(self) -> LocalSampler:
        return self._own.scorer

    @property
    def publisher(self) -> LocalSampler:
        return self._own.publisher

    @property
    def learners(self) -> Mapping[str, Learner]:
        return self._own.learners

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, facts = self._own.state()
        return tensors | (self._past.state() if self._past is not None else {}), facts

    def load(
        self,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        shards: Sequence[Path] = (),
    ) -> None:
        self._own.load(tensors, facts, shards)
        if self._past is not None:
            self._past.load(tensors)
