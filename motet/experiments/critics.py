"""Keys of the actor-critics that mean something only together: as in joins.py, words -> values at places of Motet's config."""

from collections.abc import Iterator
from typing import Literal

from motet.experiments.joins import Base, bases_of, devices_of
from motet.experiments.words import Placed, Words

View = Literal["own", "joint"]
"""What a critic reads: what its agent reads, or what all of them do."""
_SEPARATE = "*.use_separate_critic"
_TYPE = "critic_model.model_kwargs.torch_dtype"


def spread(words: Words, *, critic: bool, several: bool) -> Iterator[Placed]:
    """Advantages are normalised within a group, or with a critic over all of a step; as published, not where a step has only one
    sample of an agent at a turn, whose distance from itself is nothing."""
    if words.said("*.advantage_normalization"):
        said = words["*.advantage_normalization"]
        if critic:
            yield Placed("algorithm.whiten", said.value and several, said)
        else:
            yield Placed("algorithm.scale", "std" if said.value else "none", said)


def critics(words: Words, view: View, agents: int) -> Iterator[Placed]:
    """What critics are made of, and how they learn. The trainers trace nothing: their targets are one reward and one value."""
    yield Placed("algorithm.trace", 0.0)
    if words.value(_SEPARATE, True):
        yield from _separate(words, view, agents)
    else:
        yield from _on_the_policy(words, view)
    if words.said("*.value_loss_coef"):
        said = words["*.value_loss_coef"]
        yield Placed("critic.coefficient", 2 * said.value, said)


def _on_the_policy(words: Words, view: View) -> Iterator[Placed]:
    said = words[_SEPARATE]
    if view == "joint":
        raise said.complaint("one critic reads what all agents read, so it is no part of any one of them: drop it")
    for word in ("critics", "critic_model.name"):
        if words.said(word):
            raise words[word].complaint(f"with {said.key}: false a critic is a head on its agent's model: drop one")
    yield Placed("critic.train", "policy", said)
    if words.said("*.value_clip_range"):
        yield Placed("algorithm.clip_value", words["*.value_clip_range"].value, words["*.value_clip_range"])


def _separate(words: Words, view: View, agents: int) -> Iterator[Placed]:
    if words.said(_SEPARATE):
        yield Placed("critic.train", "full", words[_SEPARATE])
    if words.said("*.critic_learning_rate"):
        said = words["*.critic_learning_rate"]
        yield Placed("critic.optimizer.learning_rate", said.value, said)
    own = bases_of(words, agents)[: agents if view == "own" else 1]
    wanted = _wanted(words, own)
    dtype = words.value(_TYPE, words.value("model.model_kwargs.torch_dtype"))
    if wanted == own and dtype == words.value("model.model_kwargs.torch_dtype"):
        return  # each stands on a copy of its agent's model, as it does where nothing is said
    origin = next(words[w] for w in ("critics", "critic_model.name", "*.critic_devices", _TYPE) if words.said(w))
    if len(set(wanted)) > 1:
        raise origin.complaint("expected one model on one device for all critics, or each agent's own model and device")
    yield Placed("models.critic.path", wanted[0].path, origin)
    for key, value in (("device", wanted[0].device), ("dtype", dtype)):
        if value is not None:
            yield Placed(f"models.critic.{key}", value, origin)
    yield Placed("critic.model", "critic", origin)


def _wanted(words: Words, own: list[Base]) -> list[Base]:
    """The model and device of each critic."""
    names = [base.path for base in own]
    if words.said("critics"):
        names = list(words["critics"].value)
    elif words.said("critic_model.name"):
        names = [words["critic_model.name"].value] * len(own)
    if len(names) != len(own):
        expected = "one for all agents" if len(own) == 1 else f"{len(own)}: one per agent"
        raise words["critics"].complaint(f"got {len(names)} critics, expected {expected}")
    devices = devices_of(words, "*.critic_devices", len(own))
    chosen = [base.device if device is None else device for base, device in zip(own, devices, strict=True)]
    return [Base(name, device) for name, device in zip(names, chosen, strict=True)]


def idle(words: Words) -> dict[str, str]:
    """Words that go nowhere because of use_separate_critic -> what the person is told of it."""
    separate = words.value(_SEPARATE, True)
    waiting = ("*.value_clip_range",) if separate else ("*.critic_learning_rate", "*.critic_devices", _TYPE)
    value = "false" if separate else "true"
    return {word: f"{words[word].key} is for use_separate_critic: {value}" for word in waiting if words.said(word)}
