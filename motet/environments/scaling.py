"""From what an environment's levels add up to, to the reward."""

from motet.settings import Settings


class Scaling(Settings):
    """The reward is `scale` times the levels, plus `shift`."""

    scale: float = 1.0
    """What the levels are multiplied with."""
    shift: float = 0.0
    """What is added then; minus the best that can be earned makes the best reward 0."""

    def reward(self, levels: float) -> float:
        return self.scale * levels + self.shift
