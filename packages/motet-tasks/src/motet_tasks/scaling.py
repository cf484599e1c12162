"""Maps the sum of an environment's levels to the reward."""

from motet.settings import Settings


class Scaling(Settings):
    """The reward is `scale` * levels + `shift`."""

    scale: float = 1.0
    """Factor of the levels."""
    shift: float = 0.0
    """Added after scaling. With minus the maximum scaled level sum, the best reward is 0."""

    def reward(self, levels: float) -> float:
        return self.scale * levels + self.shift
