"""The embedded model is an ordinary folder, and a function of its corpus and options."""

from pathlib import Path

import torch

from motet.models.backbone import Backbone
from motet.models.tiny import make_tiny
from motet.settings import TinyModel

CORPUS = [
    f"largest of xs plus {n}\ndef aux(xs):\n    return [x + {n} for x in xs]\n" for n in range(30)
]
SMALL = TinyModel(
    hidden_size=32, layers=1, heads=2, kv_heads=1, feed_forward=32, vocabulary=280, context=64
)


def test_the_default_shape_is_that_of_the_quickstart(tmp_path: Path) -> None:
    backbone = Backbone.load(make_tiny(tmp_path, CORPUS, TinyModel(), seed=0), trainable_full=True)
    weights = sum(parameter.numel() for parameter in backbone.parameters_of(None))
    tokens = len(backbone.tokenizer)
    body = 3 * (128 * (4 + 2 + 2 + 4) * 32 + 3 * 128 * 384 + 2 * 128 + 2 * 32) + 128
    assert weights == body + tokens * 128
    assert tokens <= 400
    assert (backbone.context_length, backbone.pad_id, backbone.eos_ids) == (256, 0, (1,))


def test_the_same_seed_makes_the_same_bytes_and_leaves_the_global_generator_alone(
    tmp_path: Path,
) -> None:
    before = torch.random.get_rng_state()
    folders = [
        make_tiny(tmp_path / name, CORPUS, SMALL, seed)
        for name, seed in (("one", 3), ("two", 3), ("three", 4))
    ]
    assert torch.equal(torch.random.get_rng_state(), before)
    one, two, three = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert one == two != three
    assert (folders[0] / "tokenizer.json").read_bytes() == (
        folders[1] / "tokenizer.json"
    ).read_bytes()


def test_any_text_comes_back_as_it_went_in(tmp_path: Path) -> None:
    tokenizer = Backbone.load(make_tiny(tmp_path, CORPUS, SMALL, seed=0)).tokenizer
    for text in (*CORPUS[:2], "  spaces , and marks !", "ünïcode 猫\t\n"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
