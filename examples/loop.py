"""A training loop by hand: two agents learn to write one program together.

It uses Motet's verbs only (collect, score, assign_credit, pack, learn, publish), with no run folder
and no config file. Copy it to change one thing. Run: python examples/loop.py
"""

import asyncio
import tempfile

import motet

SEED, STEPS, TASKS_PER_STEP, GROUP = 0, 60, 8, 8
TOKENS_PER_BATCH = 16384

algorithm = motet.ALGORITHMS["magrpo"]
plan = motet.Plan(samples=(GROUP,))
decode = motet.Decode(max_new_tokens=44)
team = motet.Team(
    agents={"aux": ("aux",), "main": ("main",)}, decode={"aux": decode, "main": decode}
)


async def warm_model(environment, folder, steps):
    """Create a tiny model and teach it to write either half of a program, in any convention."""
    tasks = environment.tasks("train")

    def demonstration(number):
        shown = environment.demonstrate(tasks[number % len(tasks)], number)
        return shown.prompt, shown.text

    corpus = [text for number in range(600) for text in demonstration(number)]
    shape = motet.TinyModel(hidden_size=128, layers=3, vocabulary=400)
    motet.make_tiny(f"{folder}/raw", corpus, shape, seed=SEED)
    policy = motet.Policy("warm-up", motet.Backbone.load(f"{folder}/raw", trainable_full=True))
    options = motet.Warmup(steps=steps, batch_size=64, learning_rate=3e-3)
    await motet.warm_up(
        policy, lambda step: [demonstration(1000 + 64 * step + row) for row in range(64)], options
    )
    policy.save(folder)


async def evaluate(environment, sampler, tag):
    """Return the success on held-out tasks."""
    tasks = environment.tasks("eval")
    once = motet.Plan(samples=(1,))
    episodes = await motet.collect(environment, tasks, sampler, team, once, SEED, tag)
    return motet.summarise(episodes).success


async def main(steps=STEPS, warmup_steps=350):
    with motet.Sandbox(workers=2) as sandbox, tempfile.TemporaryDirectory() as folder:
        environment = motet.Quickstart(motet.Quickstart.Options(), sandbox=sandbox)
        await warm_model(environment, folder, warmup_steps)
        policies = {
            name: motet.Policy(name, motet.Backbone.load(folder, trainable_full=True))
            for name in team.policies
        }
        optimizer = motet.Optimizer(learning_rate=6e-4, schedule="linear", warmup_steps=5)
        learners = {
            name: motet.LocalLearner([policy], {name: optimizer}, steps)
            for name, policy in policies.items()
        }
        sampler = motet.LocalSampler(policies)
        longest = dict.fromkeys(policies, decode.max_new_tokens)
        tasks, state = environment.tasks("train"), motet.CreditState()
        before = await evaluate(environment, sampler, "before")
        for step in range(steps):
            # play
            drawn = [
                tasks[(step * TASKS_PER_STEP + place) % len(tasks)]
                for place in range(TASKS_PER_STEP)
            ]
            episodes = await motet.collect(
                environment, drawn, sampler, team, plan, SEED, f"step {step}"
            )
            # score: reference log-probabilities and critics' values, if the algorithm needs any
            scores = await motet.score(sampler, episodes, algorithm, team)
            # credit
            credit = motet.assign_credit(episodes, scores, algorithm, state, team, turns=1)
            state = credit.state
            # pack and learn
            objective = motet.policy_objective(algorithm)
            for batch in motet.pack(credit.samples, TOKENS_PER_BATCH, algorithm.reduce, longest):
                await learners[batch.policy].accumulate(batch, objective)
            for name, learner in learners.items():
                await learner.step([name])
            # publish
            await sampler.publish(list(policies))
            summary = motet.summarise(episodes)
            print(f"step {step + 1:2d}  reward {summary.reward:.3f}  success {summary.success:.2f}")
        after = await evaluate(environment, sampler, "after")
        print(f"held-out success: {before:.2f} -> {after:.2f}")
        return before, after


if __name__ == "__main__":
    asyncio.run(main())
