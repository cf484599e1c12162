"""The mean of the weights after the last steps, with which a run ends.

Each step of training ends somewhere around the point that it tends to: gradients are noisy, and
what learns against itself goes around an equilibrium rather than to it. The mean over many steps is
nearer (Polyak and Juditsky 1992; for neural networks, stochastic weight averaging: Izmailov et al.
2018, arXiv 1803.05407). Nothing plays with the mean before the end of the run.
"""

from motet.batch import Learner
from motet.trainer.components import TrainComponents
from motet.trainer.present import side_by_side


async def average(components: TrainComponents, number: int) -> list[str]:
    """Count the weights after step `number`, if it is one of the last. At the end of the run, take
    the means. Returns the policies whose weights are other ones now."""
    share, steps = components.train.average_share, components.steps
    if not share or number <= steps - round(share * steps):
        return []
    learners, end = components.models.learners, number == steps
    names = [name for name in components.team.policies if name in learners]

    async def count(learner: Learner) -> None:
        await learner.average([name for name in names if learners[name] is learner], end)

    homes = dict.fromkeys(learners[name] for name in names)
    await side_by_side([(learner, count) for learner in homes])
    return names if end else []
