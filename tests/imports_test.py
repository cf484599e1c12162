"""`import motet` is fast: heavy libraries are loaded only for training or play."""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
HEAVY = (
    "torch", "transformers", "peft", "ray", "vllm", "wandb", "fastapi", "uvicorn", "datasets",
    "matplotlib", "bitsandbytes", "math_verify",
)  # fmt: skip
SCRIPT = f"""
import json, sys, time
begun = time.process_time()
import motet
seconds = time.process_time() - begun
print(json.dumps({{"seconds": seconds, "heavy": \
[name for name in {HEAVY} if name in sys.modules]}}))
"""


def imported():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_import_motet_takes_under_two_seconds_of_cpu_time_and_loads_nothing_heavy():
    tries = [imported() for _ in range(3)]
    assert min(one["seconds"] for one in tries) < 2.0
    assert tries[0]["heavy"] == []


def test_every_public_name_can_be_had():
    import motet

    missing = [name for name in motet.__all__ if not hasattr(motet, name)]
    assert missing == []
    assert motet.train is motet.api.train
