import subprocess
import sys
import urllib.error
from pathlib import Path
from types import SimpleNamespace

import pytest

from motet.doctor import machine
from motet.doctor.findings import GpuFacts
from motet.errors import ConfigError

SMI = "NVIDIA H100 80GB HBM3, 81559, 81000, 570.10\nNVIDIA H100 80GB HBM3, 81559, 100, 570.10\n"


def test_lines_of_nvidia_smi_are_read_in_mib():
    first, second = machine.parsed_gpus(SMI)
    assert first == GpuFacts("NVIDIA H100 80GB HBM3", 81559 * 2**20, 81000 * 2**20, "570.10")
    assert second.free == 100 * 2**20
    assert machine.parsed_gpus("No devices were found\n[N/A], [N/A], 1, 2\n") == ()


def test_a_driver_that_does_not_answer_counts_as_no_gpu(monkeypatch):
    def hangs(*args: object, **how: object) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", 10)

    monkeypatch.setattr(machine.shutil, "which", lambda name: "/bin/nvidia-smi")
    monkeypatch.setattr(machine.subprocess, "run", hangs)
    assert machine.nvidia_gpus() == ()
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    assert machine.nvidia_gpus() == ()


@pytest.mark.parametrize(
    ("line", "version"),
    [("cuda: Optional[str] = '12.8'", "12.8"), ("cuda: Optional[str] = None", None)],
)
def test_the_cuda_version_of_torch_is_read_from_its_file(line, version, tmp_path, monkeypatch):
    (tmp_path / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\nhip = None\n")
    found = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(machine, "find_spec", lambda name: found)
    assert machine.torch_cuda() == version


def test_any_answer_of_the_hub_counts_and_silence_does_not(monkeypatch):
    def answers(status: int | None) -> object:
        def send(request: object, timeout: float) -> object:
            if status is None:
                raise urllib.error.URLError("no route")
            raise urllib.error.HTTPError("https://hub", status, "", {}, None)  # type: ignore[arg-type]

        return send

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(machine.urllib.request, "urlopen", answers(403))
    assert machine.hub_state("https://hub") == "reachable"
    monkeypatch.setattr(machine.urllib.request, "urlopen", answers(None))
    assert machine.hub_state("https://hub") == "unreachable"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert machine.hub_state("https://hub") == "offline"


def test_a_sandbox_that_does_not_start_has_no_level(monkeypatch):
    def refuses(*args: object, **how: object) -> None:
        raise ConfigError("no")

    monkeypatch.setattr(machine, "Sandbox", refuses)
    assert machine.sandbox_level() is None


def test_the_facts_of_this_machine(tmp_path):
    facts = machine.ask_machine(tmp_path / "runs", ask_hub=False)
    assert facts.python == sys.version_info[:3]
    assert "torch" in facts.versions
    assert facts.sandbox in {"LIMITS", "SECCOMP", "LANDLOCK", "NAMESPACES"}
    assert next(iter(facts.disk)) == str(tmp_path / "runs")
    assert facts.cores >= 1


def test_asking_imports_neither_vllm_nor_ray_and_without_a_gpu_no_torch():
    program = (
        "import sys; from pathlib import Path; from motet.doctor import machine;"
        "machine.nvidia_gpus = lambda: ();"
        "machine.ask_machine(Path('runs'), ask_hub=False);"
        "print(sorted({'torch', 'ray', 'vllm', 'transformers'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[5]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True
    )
    assert done.stdout.strip() == "[]"
