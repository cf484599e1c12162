import os

import numpy as np
import pytest
import torch

from motet.errors import ConfigError
from motet.models import gguf
from motet.models.loading import load_model, load_tokenizer

pytest.importorskip("gguf", reason='GGUF files need pip install "motet[gguf]"')
HIDDEN, WIDE, HEADS, KV_HEADS = 32, 64, 4, 2
TOKENS = ["<|pad|>", "<|im_start|>", "<|im_end|>", *map(chr, range(97, 123)), "Ġ", "Ċ", "th", "he"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(path, layers=1, claimed=None, hidden=HIDDEN):
    """Write a tiny Llama as llama.cpp's converter does; return the array of its embeddings.

    `claimed`: the number of layers that the file says it has.
    """
    from gguf import GGUFWriter, TokenType

    writer, draw = GGUFWriter(path, "llama"), np.random.default_rng(0)
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_block_count(claimed or layers)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(["t h", "h e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_chat_template(TEMPLATE)

    def tensor(name, *shape):
        array = draw.standard_normal(shape).astype(np.float32) * 0.05
        writer.add_tensor(name, array)
        return array

    embeddings = tensor("token_embd.weight", len(TOKENS), HIDDEN)
    tensor("output.weight", len(TOKENS), HIDDEN)
    tensor("output_norm.weight", HIDDEN)
    for layer in range(layers):
        own = KV_HEADS * HIDDEN // HEADS
        for name, *shape in (
            ("attn_norm", HIDDEN), ("ffn_norm", HIDDEN), ("attn_q", HIDDEN, HIDDEN),
            ("attn_k", own, HIDDEN), ("attn_v", own, HIDDEN), ("attn_output", HIDDEN, HIDDEN),
            ("ffn_gate", WIDE, HIDDEN), ("ffn_up", WIDE, HIDDEN), ("ffn_down", HIDDEN, WIDE),
        ):  # fmt: skip
            tensor(f"blk.{layer}.{name}.weight", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return embeddings


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
