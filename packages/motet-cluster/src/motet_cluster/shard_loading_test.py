"""A process reads its part of a model's weights, and never holds the whole model."""

import ctypes
import gc
import re
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from motet.errors import ConfigError
from motet.models import backbone as backbone_module
from motet.models.backbone import Backbone
from motet.models.causal_lm import Capabilities
from motet.models.loading import load_model
from motet.models.shards import whole
from motet_cluster.shards import HomeRanks, hollow_model, meeting_store, read_weights
from tests.architectures import SOUND, make
from tests.fixtures.model_folders import make_model_folder
from tests.fixtures.wide import widely
from tests.fork_server import run_ranks

pytestmark = pytest.mark.wide

CPU = torch.device("cpu")
CONVERTED = SOUND.keys() & {
    "afmoe", "deepseek v2", "deepseek v3", "dots 1", "ernie 4.5 moe", "exaone moe", "flex olmo",
    "gemma 3 with pictures", "glm 4 moe", "glm 4 moe lite", "gpt neox", "granite moe",
    "granite moe hybrid", "granite moe shared", "hunyuan moe", "internvl", "jamba", "kimi linear",
    "lfm 2 moe", "lfm 3", "llava", "minimax m2", "mistral 3 with pictures", "mixtral",
    "nemotron h", "olmo hybrid", "olmoe", "phimoe", "qwen 2 moe", "qwen 2.5 vl", "qwen 3 moe",
    "qwen 3 next", "qwen 3.5 moe", "qwen 3.5 with pictures",
}  # fmt: skip
"""Models whose files have other tensors than the model: transformers converts them."""


def filled(folder: Path) -> torch.nn.Module:
    """Return the hollow model of a folder with all of its weights."""
    model = hollow_model(folder, "auto")
    assert model is not None
    assert all(weight.is_meta for weight in model.parameters())
    model._apply(lambda one: torch.empty_like(one, device=CPU) if one.is_meta else one)
    model.tie_weights()
    read_weights(model, folder)
    return model.eval()


@pytest.mark.parametrize(
    "kind", widely(sorted(SOUND.keys() - CONVERTED), keep=("qwen 3", "gpt 2", "gpt oss", "opt"))
)
def test_the_weights_are_those_that_transformers_loads(kind: str, tmp_path: Path) -> None:
    folder = make(kind, tmp_path / "model")
    found, expected = filled(folder), load_model(folder, torch.float32, CPU).eval()
    tensors = [
        dict(model.state_dict()) | dict(model.named_buffers()) for model in (found, expected)
    ]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    assert found.config.to_dict() == expected.config.to_dict()
    assert found.generation_config.to_dict() == expected.generation_config.to_dict()
    tokens = torch.arange(3, 20)[None]
    with torch.no_grad():
        assert torch.equal(found(input_ids=tokens).logits, expected(input_ids=tokens).logits)


@pytest.mark.parametrize("kind", widely(sorted(CONVERTED), keep=("mixtral",)))
def test_a_model_whose_weights_are_converted_is_loaded_whole(kind: str, tmp_path: Path) -> None:
    assert hollow_model(make(kind, tmp_path / "model"), "auto") is None


def test_a_file_with_other_names_or_shapes_is_loaded_whole(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "model", "llama")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    for changed in ({name: tensors[name].T.contiguous()}, {"other": tensors[name]}):
        kept = {key: tensor for key, tensor in tensors.items() if key != name}
        save_file(kept | changed, folder / "model.safetensors", {"format": "pt"})
        assert hollow_model(folder, "auto") is None


def test_a_file_of_narrow_weights_gives_their_float32(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    narrow = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    save_file(narrow, folder / "model.safetensors", {"format": "pt"})
    for name, weight in filled(folder).named_parameters():
        assert torch.equal(weight, narrow[name].float())


def test_a_damaged_file_is_a_config_error(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "model")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"cannot be loaded: .* Expected a local folder"):
        hollow_model(folder, "auto")


# ---------------------------------------------------------------------------- two processes


MMAP_THRESHOLD = -3
"""The name of glibc's option in malloc.h."""
LAYERS, WIDTH = 24, 256


def large_folder(path: Path) -> Path:
    """Write a model of 36 million weights, in 24 blocks."""
    sizes = {
        "hidden_size": WIDTH, "intermediate_size": 3 * WIDTH, "num_hidden_layers": LAYERS,
        "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128,
    }  # fmt: skip
    return make("llama", path, **sizes)


def anonymous() -> int:
    """Return the memory of this process in bytes, without pages of files."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def load_divided(folder: Path, ranks: HomeRanks) -> Backbone:
    return Backbone.load(folder, device="cpu", dtype="bfloat16", trainable_full=True, ranks=ranks)


def one_pass(backbone: Backbone, _: Path) -> Capabilities:
    tokens = torch.arange(3, 20)[None]
    backbone.hidden(tokens, torch.ones_like(tokens, dtype=torch.bool), tokens)
    return Capabilities()


def load_watched(rank: int, meet: str, small: Path, folder: Path, out: Path) -> None:
    """Load a model among two processes, and note the growth of memory until then and at the end.

    A small model comes first, for what libraries load when they are first used. One pass stands for
    the trials of the large one, which would gather it some twenty times.
    """
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 16)  # glibc then keeps no freed tensor
    ranks = HomeRanks(rank, 2, meet, 300.0, CPU)
    load_divided(small, ranks)
    backbone_module.capabilities_of = one_pass
    gc.collect()
    before, peak, loaded = anonymous(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not loaded.wait(0.002):
            peak = max(peak, anonymous())

    watching = threading.Thread(target=watch)
    watching.start()
    backbone = load_divided(folder, ranks)
    loaded.set()
    watching.join()
    weights = [whole(weight.detach()) for weight in backbone.parameters_of(None)]
    found = {
        "peak": peak - before,
        "lasting": sum(w.to_local().nbytes for w in backbone.parameters_of(None)),
        "weights": weights,
    }
    torch.save(found, out / f"{rank}.pt")


def test_no_process_holds_a_whole_model(tmp_path: Path) -> None:
    folder = large_folder(tmp_path / "model")
    small = make_model_folder(tmp_path / "small", "llama")
    store = meeting_store("127.0.0.1")
    run_ranks(load_watched, f"127.0.0.1:{store.port}", small, folder, tmp_path)
    alone = load_model(folder, torch.float32, CPU)
    size = sum(weight.nbytes for weight in alone.parameters())
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found["lasting"] < 0.51 * size
        # Its half in float32, and a few gathered blocks in bfloat16. A whole copy has 1.0.
        assert 0.5 * size < found["peak"] < 0.75 * size
        for own, expected in zip(found["weights"], alone.parameters(), strict=True):
            assert torch.equal(own, expected)
