"""Batches made of samples, and the objectives that a learner minimises on them.

A Batch belongs to one policy. A prompt is stored once, not once per completion.

batches.py      Rows, Batch and ValueBatch: padded tensors, and their parts for several processes
packing.py      samples -> minibatches -> Batches
objectives.py   what a learner minimises on them, and the protocol of a learner
"""

from motet.batch.batches import Batch, Rows, ValueBatch
from motet.batch.objectives import (
    BatchMetrics,
    Learner,
    Mean,
    Objective,
    ValueObjective,
    merge,
    pair_objective,
    policy_objective,
    value_objective,
    weighs_completions,
)
from motet.batch.packing import minibatches, pack, pack_value_pairs, pack_values

__all__ = [
    "Batch",
    "BatchMetrics",
    "Learner",
    "Mean",
    "Objective",
    "Rows",
    "ValueBatch",
    "ValueObjective",
    "merge",
    "minibatches",
    "pack",
    "pack_value_pairs",
    "pack_values",
    "pair_objective",
    "policy_objective",
    "value_objective",
    "weighs_completions",
]
