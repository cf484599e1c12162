"""What a user should know before a run: settings that are allowed but may be unwanted."""

from motet.algorithms import cautions, resolve
from motet.api.memory_estimate import memory_of, memory_warnings
from motet.api.setup import shortened_contexts
from motet.assembly.task_setup import TaskSetup, steps_of
from motet.assembly.tools import asks_itself
from motet.assembly.trial_game import trial_game
from motet.config.schema import RunConfig
from motet.config.yaml import shown
from motet.environments.tool_use import ToolGame
from motet.settings.flat_keys import SECTIONS
from motet.user_code.timeouts import run_loop

IDLE = "the schedule does not train"
"""The beginning of a warning that depends on the number of steps."""


def memory_of_run(setup: TaskSetup) -> list[str]:
    """Return a warning if the run needs more memory than its device has."""
    loads = any(base.path is not None for base in setup.config.models.values())
    return memory_warnings(setup.config, memory_of(setup)) if loads else []


def warnings_of(setup: TaskSetup) -> list[str]:
    """Return warnings about settings that are allowed but may be unwanted."""
    settings, found = setup.config, []
    biased = [
        a
        for a in settings.team
        if settings.model_of(a) is not None
        and (settings.decode_of(a).top_p < 1.0 or settings.decode_of(a).top_k > 0)
    ]
    if biased:
        found.append(
            f"top_p or top_k restricts the tokens of {', '.join(biased)}, which biases the policy "
            "gradient"
        )
    found += cautions(settings.algorithm, settings.rollout, len(settings.team))
    found += _dropped_options(settings)
    found += _slow_adapters(setup)
    found += _lag_without_overlap(settings)
    found += shortened_contexts(
        base.path for base in settings.models.values() if base.path is not None
    )
    found += _without_turns_for_calls(setup)
    found += setup.tasks.warnings
    both = setup.tasks.shared
    if both:
        found.append(
            f"{both} held-out tasks are also training tasks: use splits of data.train and "
            "data.eval that do not overlap"
        )
    found += [
        f"{count} rows of data.{split} give no task"
        for split, count in setup.tasks.passed_over.items()
    ]
    idle, steps = _never_due(setup), steps_of(setup)
    if idle:
        found.append(
            f"{IDLE} {', '.join(idle)} in {steps} steps: shorten its block or first_turn_steps"
        )
    return found


def notes_of_dialogue(setup: TaskSetup) -> list[str]:
    """Return which tools the questions of a dialogue offer, as far as a trial game shows it."""
    if asks_itself(setup.environment) is None:
        return []
    return [
        f"agent {agent} is asked with {', '.join(names)}, which it may call in at most "
        f"{setup.config.tools.rounds} round(s) before an answer (tools.rounds)"
        for agent, names in run_loop(trial_game(setup)).offered.items()
        if names
    ]


def rewards_of(settings: RunConfig) -> str:
    """Return one line that says from which rewards the agents learn. Empty for one agent."""
    algorithm = settings.algorithm
    averaged = algorithm.reward_sharing == "all"
    if len(settings.team) == 1:
        return ""
    if settings.reward_model is not None:
        return "rewards: every agent learns from the scores of reward_model, the same for all"
    if algorithm.group is not None and algorithm.group.terms:
        terms = ", ".join(f"{name} x {weight:g}" for name, weight in algorithm.group.terms.items())
        return f"rewards: every agent learns from terms, each scaled on its own: {terms}"
    if algorithm.pairs is not None:
        return "rewards: pairs of joint actions are compared by the mean of all agents' rewards"
    critic = algorithm.critic
    joint = critic is not None and critic.view == "joint" and algorithm.returns == "tree"
    why = ", because one critic values the returns of all: credit.view joint" * joint
    option = f"(algorithm.reward_sharing: {algorithm.reward_sharing}{why})"
    if not averaged:
        return (
            "rewards: each agent learns from its own; one number of a reward is that of every "
            f"agent {option}"
        )
    own = " of later turns, and its own of this turn" * (algorithm.returns == "discounted_sum")
    return f"rewards: every agent learns from the mean of all agents' rewards{own} {option}"


def _dropped_options(settings: RunConfig) -> list[str]:
    """Return a line for each section of the algorithm that another kind has taken over, if keys
    that both kinds have are at their defaults again."""
    algorithm, row = settings.algorithm, resolve(settings.algorithm.name, {})
    lines = []
    for section in SECTIONS:
        now, named = getattr(algorithm, section), getattr(row, section)
        below = settings.dropped.get(section, {})
        kind = below.get("kind", named and named.kind)
        if None in (now, kind) or now.kind == kind:
            continue
        was = {**(named.model_dump() if named and named.kind == kind else {}), **below}
        lost = {
            key: value
            for key, value in was.items()
            if key in type(now).model_fields
            and key not in now.model_fields_set
            and value != getattr(now, key)
        }
        if lost:
            before = " and ".join(f"{key} {shown(value)}" for key, value in lost.items())
            after = " and ".join(f"{key} is {shown(getattr(now, key))}" for key in lost)
            lines.append(
                f"algorithm.{section}.kind {now.kind} takes the place of {kind} and drops its "
                f"{before}: {after}, unless you set them"
            )
    return lines


def _slow_adapters(setup: TaskSetup) -> list[str]:
    """Return a warning if adapters learn at the default rate, which is one for full training.

    Source: Schulman et al. 2025, "LoRA Without Regret" (thinkingmachines.ai/blog/lora): in
    supervised and in reinforcement learning the best rate of LoRA was about ten times that of full
    training.
    """
    settings = setup.config
    learning = {
        f"policies.{name}": settings.optimizer_of(name)
        for name in setup.team.policies
        if settings.policies[name].train == "lora"
    }
    if settings.critic is not None and settings.critic.train == "lora":
        learning["critic"] = settings.critic_optimizer
    slow = [name for name, its in learning.items() if "learning_rate" not in its.model_fields_set]
    if not slow:
        return []
    return [
        f"adapters learn at the default optimizer.learning_rate "
        f"{settings.optimizer.learning_rate:g} ({', '.join(slow)}), which is one for full "
        "training; adapters usually need about ten times as much (Schulman et al. 2025, LoRA "
        "Without Regret): set optimizer.learning_rate, such as 1e-5 to 1e-4"
    ]


def _without_turns_for_calls(setup: TaskSetup) -> list[str]:
    """Return a warning if a game takes all turns of the plan without any call of a tool."""
    if not isinstance(setup.environment, ToolGame) and asks_itself(setup.environment) is None:
        return []
    trial, samples = run_loop(trial_game(setup)), list(setup.config.rollout.samples)
    turns = trial.end
    if not any(trial.offered.values()) or not isinstance(turns, int) or len(samples) > turns:
        return []
    return [
        f"rollout.samples {samples} has {len(samples)} turns, and a trial game takes {turns} "
        "without any call of a tool, so a game in which an agent calls one is cut off: add an "
        f"entry for each round of calls, such as {samples + [1] * (turns + 2 - len(samples))}"
    ]


def _lag_without_overlap(settings: RunConfig) -> list[str]:
    """Return a warning if a lag makes no step faster."""
    engines = settings.cluster is not None and settings.cluster.samplers.engine == "vllm"
    if not settings.train.max_lag or engines:
        return []
    return [
        "train.max_lag 1 makes no step faster here, because the models sample with the weights "
        "that they train: it needs cluster.samplers.engine=vllm"
    ]


def _never_due(setup: TaskSetup) -> list[str]:
    """Return which policies and turns should be trained but never are, because the schedule has no
    step for them."""
    schedule, policy_turns = (
        setup.config.schedule,
        setup.team.policy_turns(len(setup.config.rollout.samples)),
    )
    # the first step of every block
    firsts = [
        1,
        *(
            schedule.first_turn_steps + schedule.block * block + 1
            for block in range(len(policy_turns))
        ),
    ]
    begun = [step for step in firsts if step <= steps_of(setup)]
    return [
        f"{policy} at turn {turn + 1}"
        for policy, turn in policy_turns
        if not any(schedule.trains(step, policy, turn, policy_turns) for step in begun)
    ]
