"""Translate a published config to Motet's: `translate`, and the published trainers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from motet.config.yaml import Document
from motet_published import comlrl, comlrl_preferences, maporl
from motet_published.comlrl_keys import SECTIONS, keys_of
from motet_published.comlrl_preferences import keys_of_preferences
from motet_published.comlrl_travel import MAPL
from motet_published.keys import KeyTable
from motet_published.maporl_keys import KEYS as MAPORL_KEYS
from motet_published.published import PublishedConfig
from motet_published.translation import Translation


@dataclass(frozen=True)
class Trainer:
    """One of the published trainers."""

    keys: KeyTable
    translate: Callable[[Translation, str], None]
    """Set all keys of Motet's config that depend on several published keys, or on none. The last
    argument is the name of the config."""
    own_sections: tuple[str, ...] = ()
    """Names of the trainer's own section, `trainer` in the table; empty if it has none."""
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Other section of the table -> its names in a config."""


TRAINERS: Mapping[str, Trainer] = {
    "grpo": Trainer(keys_of("grpo", critic=False), comlrl.grpo, ("grpo", "mt_grpo"), SECTIONS),
    "magrpo": Trainer(
        keys_of("magrpo", critic=False), comlrl.magrpo, ("magrpo", "mt_magrpo"), SECTIONS
    ),
    "ac": Trainer(keys_of("ac", critic=True), comlrl.ac, ("ac",), SECTIONS),
    "iac": Trainer(keys_of("iac", critic=True), comlrl.iac, ("iac",), SECTIONS),
    "maac": Trainer(keys_of("maac", critic=True), comlrl.maac, ("maac",), SECTIONS),
    **{
        name: Trainer(keys_of_preferences(name), translate, (name, MAPL), SECTIONS)
        for name, translate in (
            ("madpo", comlrl_preferences.madpo),
            ("madpo_iter", comlrl_preferences.madpo_iter),
            ("marlhf", comlrl_preferences.marlhf),
            ("marlhf_iter", comlrl_preferences.marlhf_iter),
        )
    },
    "maporl": Trainer(MAPORL_KEYS, maporl.maporl),
}


def translate(layers: Sequence[Document], trainer: Trainer, name: str) -> Translation:
    """Translate layers of published keys; later layers replace earlier ones.

    `name` is the name of the run.

    Raises:
        ConfigError: names the place, the key as it was written, and what to do.
    """
    other_trainers = {
        section: other
        for other, its in TRAINERS.items()
        for section in its.own_sections
        if its != trainer
    }
    published = PublishedConfig(
        trainer.keys, {"trainer": trainer.own_sections, **trainer.sections}, other_trainers
    )
    for layer in layers:
        published.add_layer(layer)
    published.refuse_unsupported()
    config = Translation(published)
    trainer.translate(config, name)
    config.copy_renamed()
    return config
