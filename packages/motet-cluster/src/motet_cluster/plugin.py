"""What Motet calls, by the entry point `motet.clusters`: a `motet.assembly.cluster.Cluster`."""

from motet_cluster.models import open_models
from motet_cluster.served import open_engines
from motet_cluster.vllm_checks import check_engines, check_training

__all__ = ["check_engines", "check_training", "open_engines", "open_models"]
