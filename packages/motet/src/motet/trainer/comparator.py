"""The comparator's completions, as the agents' policies read and score them.

Both sides of a pair are learned from with the present policies, whoever wrote them. So the
comparator's texts become tokens of the agent's own policy, with their log-probabilities under it.
Source: comlrl 1.4.3, MADPOIterTrainer, `_preference_tensors_from_text`. It leaves out the
end-of-sequence token; here a completion that ended has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from motet.batch import pack
from motet.core import Completion, Episode, Round, SampleId, TrainSample
from motet.trainer.components import StepConfig, TrainComponents


async def as_own(
    components: TrainComponents, episodes: Sequence[Episode], step_config: StepConfig
) -> Sequence[Episode]:
    """Return the episodes with every completion of the comparator as one of the agent's policy.

    Episodes without a comparator are returned as they are.
    """
    preference = components.algorithm.preference
    if preference is None or not components.compared(preference).comparator:
        return episodes
    samples = [
        one
        for episode in episodes
        if episode.root is not None
        for one in _foreign(components, episode.id, episode.root)
    ]
    found: dict[SampleId, Completion] = {}
    completion_of = {sample.id: sample.completion for sample in samples}
    batches = pack(samples, step_config.token_budget, "sequence_sum", components.longest)
    for batch in batches:
        logp_BL = await components.learners[batch.policy].logprobs(batch)
        for id, logp_L in zip(batch.ids, logp_BL.tolist(), strict=True):
            one = completion_of[id]
            found[id] = replace(one, logprobs=tuple(logp_L[: len(one.tokens or ())]))
    return [_with(episode, found) for episode in episodes]


def _foreign(components: TrainComponents, episode: str, round_: Round) -> list[TrainSample]:
    """Return the comparator's completions of a Round, with log-probabilities of 0."""
    samples: list[TrainSample] = []
    for agent, completions in round_.samples.items():
        policy = components.team.policy_of(agent, round_.turn)
        prompt, decode = round_.prompt_tokens[agent], components.team.decode[agent]
        for index in range(len(completions) // 2, len(completions)):
            said = completions[index]
            tokens = components.tokens_for(policy, said, len(prompt))
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
