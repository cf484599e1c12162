"""A verifier's folder is checked before it is loaded, and when it is loaded."""

import json
import shutil
from functools import partial

import pytest

from motet.errors import ConfigError
from motet_verifier.folder import CARD, HEAD, check_folder
from motet_verifier.model import Verifier
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
