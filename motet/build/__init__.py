"""From a config to the objects that play and learn: the only room that knows every part.

scene    what is played: environment, tasks, sandbox; checked before anything is written or loaded
bases    model name -> folder or hub name to load it from; embedded ones are made, warmed-up ones are trained
company  who plays: policies on their backbones, the sampler, the learners, the references
"""
