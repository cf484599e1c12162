"""How many GPUs a run needs, and how long a step takes on them: figures from paper, not measured.

gpus.py        memory, bandwidth and FLOP/s of GPUs
throughput.py  seconds of a step from the sizes of a run; pure
sizes.py       the shape of a model that is not at hand
homes.py       what the homes of a config hold and do
layouts.py     which home and which sampler is on which GPU, and the memory of each
"""
