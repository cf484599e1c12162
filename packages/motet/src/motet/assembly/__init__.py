"""Build the objects of a run from its config. Only this package imports every part.

task_setup  environment, tasks, sandbox; checked before anything is written or loaded
services    what environments may request: sandbox, expert, verifier, a person at the terminal
bases       model name -> the folder or hub name to load it from; embedded models are created here,
            and the warm-up trains base models here
models      policies on their base models, the sampler, the learners, the reference policies
"""
