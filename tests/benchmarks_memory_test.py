"""The benchmark of the memory estimate: its cases and its verdict. Nothing is measured."""

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "speed")]
import memory  # noqa: E402
import models  # noqa: E402
import real_size  # noqa: E402

for folder in (BENCHMARKS, BENCHMARKS / "speed"):
    while str(folder) in sys.path:
        sys.path.remove(str(folder))


def test_every_measured_job_is_a_case_of_its_own():
    found = list(memory.peaks())
    assert len(found) >= 10 + 10, "the ten of real size, and those beside peers"
    assert len({peak.title for peak in found}) == len(found)
    assert {peak.job.model for peak in found} <= set(models.SHAPES)
    assert any(peak.job.model == "Qwen2.5-0.5B" for peak in found)


@pytest.mark.parametrize(("factor", "code", "error"), [(1.2, 0, "+20%"), (0.7, 1, "-30%")])
def test_the_verdict_and_the_page(tmp_path, monkeypatch, factor, code, error):
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{memory.BEGIN}\n\nold\n\n{memory.END}\n\nafter\n")
    monkeypatch.setattr(real_size, "PAGE", page)
    measured = list(memory.peaks())
    monkeypatch.setattr(memory, "estimate", lambda peak: factor * peak.bytes)
    assert memory.main() == code
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.count(f"| {error} |") == len(measured)


@pytest.mark.parametrize(("date", "bound"), [("2026-11-24", None), ("2026-11-25", 0.3)])
def test_old_peaks_are_compared_with_estimates_of_unbounded_steps(monkeypatch, date, bound):
    bounds = []
    monkeypatch.setattr(models, "make", lambda name, build: name)
    monkeypatch.setattr(memory, "Words", lambda job: None)
    monkeypatch.setattr(memory, "memory_of", lambda setup: {"total": 1})

    @contextmanager
    def opened(config, words, train):
        bounds.append(config.train.max_step_kl)
        yield None

    monkeypatch.setattr(memory, "open_task_setup", opened)
    assert memory.estimate(memory.Peak("one", real_size.BASE, 1.0, date)) == 1
    assert bounds == [bound]
