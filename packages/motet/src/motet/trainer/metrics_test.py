import json
import os

import pytest

from motet.errors import ConfigError, MotetError
from motet.trainer.metrics import (
    MetricsWriter,
    kept_lines,
    read_metrics,
)


class Mirrored:
    """A mirror that records its calls."""

    def __init__(self):
        self.rows, self.closed = [], False

    def write(self, step, values):
        self.rows.append((step, dict(values)))

    def close(self):
        self.closed = True


def test_a_line_is_the_step_then_names_in_order_with_exact_floats(tmp_path):
    with MetricsWriter(tmp_path / "m.jsonl") as metrics:
        metrics.write(3, {"play/reward": 0.1 + 0.2, "learn/kl/aux": 1e-12, "credit/samples": 64})
        line = (tmp_path / "m.jsonl").read_text()  # flushed at once
    assert line == (
        '{"step": 3, "credit/samples": 64, "learn/kl/aux": 1e-12, "play/reward": '
        "0.30000000000000004}\n"
    )
    assert read_metrics(tmp_path / "m.jsonl")[0]["play/reward"] == 0.1 + 0.2


@pytest.mark.parametrize(
    "name", ["reward", "train/reward", "play/", "play/Reward", "play/reward/", "play reward"]
)
def test_a_name_outside_the_grammar_is_refused_and_nothing_written(tmp_path, name):
    with (
        MetricsWriter(tmp_path / "m.jsonl") as metrics,
        pytest.raises(MotetError, match="expected stage/name"),
    ):
        metrics.write(1, {"play/reward": 1.0, name: 1.0})
    assert (tmp_path / "m.jsonl").read_text() == ""


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_refused(tmp_path, value):
    with (
        MetricsWriter(tmp_path / "m.jsonl") as metrics,
        pytest.raises(MotetError, match=r"metric learn/kl is .* at step 1"),
    ):
        metrics.write(1, {"learn/kl": value})


def test_mirrors_get_what_the_files_get_and_are_not_closed_with_them(tmp_path):
    mirror = Mirrored()
    with MetricsWriter(tmp_path / "m.jsonl", [mirror]) as metrics:
        with MetricsWriter(tmp_path / "warmup.jsonl", [mirror]) as warmup:
            warmup.write(20, {"warmup/loss": 1.5})
        metrics.write(1, {"play/reward": 1.0})
    assert [step for step, _ in mirror.rows] == [20, 1]
    assert not mirror.closed


def test_a_resumed_run_drops_what_came_after_the_lines_that_count_and_half_a_line(tmp_path):
    path = tmp_path / "m.jsonl"
    with MetricsWriter(path) as metrics:
        for step in range(4):
            metrics.write(step, {"play/reward": step / 3})
    unbroken = path.read_text()
    path.write_text(unbroken + '{"step": 4, "play/re')
    assert len(read_metrics(path)) == 4
    with MetricsWriter(path, keep=3) as metrics:
        metrics.write(3, {"play/reward": 3 / 3})
    assert path.read_text() == unbroken


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (
            lambda lines: lines[:2],
            "has 2 complete lines, expected the 3 that the checkpoint recorded",
        ),
        (lambda lines: [*lines[:2], lines[2][:-4]], "has 2 complete lines, expected the 3"),
        (lambda lines: [], "has 0 complete lines"),
        (lambda lines: [lines[0], lines[2], lines[3]], "first 3 lines differ from those"),
        (
            lambda lines: [lines[0].replace(b"0", b"1"), *lines[1:]],
            "first 3 lines differ from those",
        ),
        (lambda lines: [lines[0], b"\n", *lines[1:]], "line 2: got "),
        (lambda lines: [lines[0], b'{"step": "\xff"}\n', *lines[1:]], "line 2: got "),
        (lambda lines: [b"3\n", *lines[1:]], "line 1: got "),
        (lambda lines: [b'{"step": "0"}\n', *lines[1:]], "line 1: got "),
        (lambda lines: [b'{"step": [0]}\n', *lines[1:]], "line 1: got "),
        (lambda lines: [lines[0][:9], *lines[1:]], "line 1: got "),
    ],
)
def test_lines_that_count_and_are_not_there_as_they_were_are_an_error_and_stay_as_they_are(
    tmp_path, harm, complaint
):
    path = tmp_path / "m.jsonl"
    with MetricsWriter(path) as metrics:
        for step in range(3):
            metrics.write(step, {"play/reward": step / 3})
        digest = metrics.digest
        metrics.write(3, {"play/reward": 1.0})
    assert kept_lines(path, 3, digest).count("\n") == 3
    harmed = b"".join(harm(path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(harmed)
    with pytest.raises(ConfigError, match=rf"m\.jsonl.*{complaint}.*: restore the file"):
        kept_lines(path, 3, digest)
    assert path.read_bytes() == harmed


def test_a_name_with_a_line_separator_is_one_line_again(tmp_path):
    with MetricsWriter(tmp_path / "m.jsonl") as metrics:
        metrics.write(1, {"learn/kl/a\u2028b\x85": 0.5})
    assert read_metrics(tmp_path / "m.jsonl") == [{"step": 1, "learn/kl/a\u2028b\x85": 0.5}]
    with MetricsWriter(tmp_path / "m.jsonl", keep=1) as again:
        assert again.digest == metrics.digest


def test_a_large_file_without_lines_is_refused_before_it_is_read_whole(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    os.truncate(path, 7 << 30)  # sparse: no byte of it is on the disk
    with pytest.raises(ConfigError, match=r"metrics\.jsonl, line 2 is longer than 256 MiB"):
        read_metrics(path)


def test_metrics_of_two_runs_are_the_same_bytes(tmp_path):
    for name, order in (
        ("a", ("play/reward", "play/success")),
        ("b", ("play/success", "play/reward")),
    ):
        with MetricsWriter(tmp_path / name) as metrics:
            metrics.write(1, dict.fromkeys(order, 1 / 3))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert json.loads((tmp_path / "a").read_text())["play/reward"] == 1 / 3
