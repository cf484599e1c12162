"""A training loop by hand: two agents learn to write one program together.

It uses the verbs of motet.loop only (collect, score, assign_credit, pack, learn, publish), with no
run folder and no config file. Copy it to change one thing. Run: python examples/loop.py
"""

import asyncio
import tempfile

from motet import loop

SEED, STEPS, TASKS_PER_STEP, GROUP = 0, 60, 8, 8
TOKENS_PER_BATCH = 16384

algorithm = loop.ALGORITHMS["magrpo"]
plan = loop.Plan(samples=(GROUP,))
decode = loop.Decode(max_new_tokens=44)
team = loop.Team(
    agents={"aux": ("aux",), "main": ("main",)}, decode={"aux": decode, "main": decode}
)


async def warm_model(environment, folder, steps):
    """Create a tiny model and teach it to write either half of a program, in any convention."""
    tasks = environment.tasks("train")

    def demonstration(number):
        shown = environment.demonstrate(tasks[number % len(tasks)], number)
        return shown.prompt, shown.text

    corpus = [text for number in range(600) for text in demonstration(number)]
    shape = loop.TinyModel(hidden_size=128, layers=3, vocabulary=400)
    loop.make_tiny(f"{folder}/raw", corpus, shape, seed=SEED)
    policy = loop.Policy("warm-up", loop.Backbone.load(f"{folder}/raw", trainable_full=True))
    options = loop.Warmup(steps=steps, batch_size=64, learning_rate=3e-3)
    await loop.fine_tune(
        policy, lambda step: [demonstration(1000 + 64 * step + row) for row in range(64)], options
    )
    policy.save(folder)


async def evaluate(environment, sampler, tag):
    """Return the success on held-out tasks."""
    tasks = environment.tasks("eval")
    once = loop.Plan(samples=(1,))
    episodes = await loop.collect(environment, tasks, sampler, team, once, SEED, tag)
    return loop.summarise(episodes).success


async def main(steps=STEPS, warmup_steps=350):
    with loop.Sandbox(workers=2) as sandbox, tempfile.TemporaryDirectory() as folder:
        environment = loop.Quickstart(loop.Quickstart.Options(), sandbox=sandbox)
        await warm_model(environment, folder, warmup_steps)
        policies = {
            name: loop.Policy(name, loop.Backbone.load(folder, trainable_full=True))
            for name in team.policies
        }
        optimizer = loop.Optimizer(learning_rate=6e-4, schedule="linear", warmup_steps=5)
        learners = {
            name: loop.LocalLearner([policy], {name: optimizer}, steps)
            for name, policy in policies.items()
        }
        sampler = loop.LocalSampler(policies)
        longest = dict.fromkeys(policies, decode.max_new_tokens)
        tasks, state = environment.tasks("train"), loop.CreditState()
        before = await evaluate(environment, sampler, "before")
        for step in range(steps):
            # play
            drawn = [
                tasks[(step * TASKS_PER_STEP + place) % len(tasks)]
                for place in range(TASKS_PER_STEP)
            ]
            episodes = await loop.collect(
                environment, drawn, sampler, team, plan, SEED, f"step {step}"
            )
            # score: reference log-probabilities and critics' values, if the algorithm needs any
            scores = await loop.score(sampler, episodes, algorithm, team)
            # credit
            credit = loop.assign_credit(episodes, scores, algorithm, state, team, turns=1)
            state = credit.state
            # pack and learn
            objective = loop.policy_objective(algorithm)
            for batch in loop.pack(credit.samples, TOKENS_PER_BATCH, algorithm.reduce, longest):
                await learners[batch.policy].accumulate(batch, objective)
            for name, learner in learners.items():
                await learner.step([name])
            # publish
            await sampler.publish(list(policies))
            summary = loop.summarise(episodes)
            print(f"step {step + 1:2d}  reward {summary.reward:.3f}  success {summary.success:.2f}")
        after = await evaluate(environment, sampler, "after")
        print(f"held-out success: {before:.2f} -> {after:.2f}")
        return before, after


if __name__ == "__main__":
    asyncio.run(main())
