"""A verifier's folder is checked before it is loaded, and when it is loaded."""

import json
import shutil
from functools import partial

import pytest

from motet.errors import ConfigError
from motet.settings import Lora
from motet_verifier.folder import CARD, HEAD, check_folder
from motet_verifier.model import Verifier
from tests.fixtures.gguf_files import written
from tests.fixtures.messages import facts
from tests.fixtures.verifiers import make_verifier_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_verifier_folder(tmp_path_factory.mktemp("verifier"))


def test_a_verifier_that_learnt_at_the_end_only_is_read_there_only(folder, tmp_path):
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps({**card, "facts": {"loss": "last"}}))
    try:
        assert Verifier.load(folder, device="cpu").reads == "end"
        with pytest.raises(
            ConfigError,
            match=facts("reads … lowest … loss: last"),
        ):
            Verifier.load(folder, device="cpu", reads="lowest")
    finally:
        (folder / CARD).write_text(json.dumps(card))


@pytest.mark.parametrize("read", [check_folder, partial(Verifier.load, device="cpu")])
def test_a_head_that_is_a_link_out_of_the_folder_is_refused(read, folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "verifier")
    (place / HEAD).rename(tmp_path / HEAD)
    (place / HEAD).symlink_to(tmp_path / HEAD)
    with pytest.raises(ConfigError, match=facts("head.safetensors … link … file in the folder")):
        read(place)


def test_a_verifier_may_be_an_adapter_on_a_gguf_file(tmp_path, monkeypatch):
    pytest.importorskip("gguf", reason='GGUF files need pip install "motet[gguf]"')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "tiny.gguf")
    Verifier.new("tiny.gguf", lora=Lora(rank=2), seed=0, device="cpu").save(tmp_path / "verifier")
    monkeypatch.chdir("/")
    assert Verifier.load(tmp_path / "verifier", device="cpu").context_length == 128
    (tmp_path / "tiny.gguf").unlink()
    with pytest.raises(ConfigError, match=facts("tiny.gguf … does not exist")):
        check_folder(tmp_path / "verifier")
