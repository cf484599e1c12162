"""The cluster section: what it refuses."""

import pytest

from motet.config.load import make_config
from motet.errors import ConfigError
from tests.small_runs import run_config

BESIDE = {"engine": "vllm", "beside_home": True, "memory": 0.4}


def config(**cluster):
    return make_config(run_config(cluster=cluster))


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"learners": {"gpus": 3, "ranks": 3}}, "set learners.gpus alone"),
        ({"learners": {"gpus": -1}}, "gpus"),
        ({"samplers": {"engine": "sglang"}}, "engine"),
        ({"samplers": {"engine": "vllm", "memory": 1.0}}, "memory"),
        ({"samplers": {**BESIDE, "replicas": 2}}, "one engine on the GPU of its home"),
        ({"samplers": {**BESIDE, "memory": 0.9}}, "leaves the home 10% of the GPU"),
        ({"samplers": BESIDE, "learners": {"gpus": 0}}, r"learners of \[0\] GPUs"),
        ({"samplers": BESIDE, "transfer": "nccl"}, "NCCL does not connect two"),
        ({"replicas": 2}, "replicas: unknown key"),
    ],
)
def test_what_does_not_go_together_is_refused(cluster, message):
    with pytest.raises(ConfigError, match=message):
        config(**cluster)
