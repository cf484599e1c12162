"""The benchmark beside comlrl and TRL: rows, limits, tables, and one step of Motet's side.

No peer is run.
"""

import sys
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer, Qwen2Config, Qwen3Config

from tests import fork_server
from tests.fork_server import ForkedProcess

ROOT = Path(__file__).parent.parent
SPEED = ROOT / "benchmarks" / "speed"
sys.path.insert(0, str(SPEED))
import limits  # noqa: E402
import models  # noqa: E402
import record as records  # noqa: E402
import rounds  # noqa: E402
import rows  # noqa: E402
import tables  # noqa: E402
import task  # noqa: E402
from pace import Job  # noqa: E402
from works import CLAIMED, DTYPES, WORKS, Claim, Side, Work  # noqa: E402

sys.path.remove(str(SPEED))

JOB = Job("tiny", "float32", agents=1, group=2)
OURS, THEIRS = Side("motet", JOB, "Motet"), Side("comlrl", JOB, "comlrl")
WORK = Work(
    "pair",
    "a pair",
    OURS,
    THEIRS,
    (Claim("step", "float32", 2.0, 4.0), Claim("step", "fastest", 3.0)),
)


def taken(side: Side, dtype: str, *seconds: float, memory: float = 3e6) -> rounds.Taken:
    steps = (
        {
            "seconds": each,
            "cpu": 2 * each,
            "rollout": each / 4,
            "update": each / 2,
            "memory": memory,
        }
        for each in seconds
    )
    return rounds.Taken(side.in_dtype(dtype), tuple(steps))


MEASURED = rounds.Measured(
    (taken(OURS, "float32", 1.0, 2.0, 4.0), taken(OURS, "bfloat16", 1.0, 1.0, 1.0)),
    (taken(THEIRS, "float32", 4.0, 5.0, 6.0), taken(THEIRS, "bfloat16", 7.0, 8.0, 9.0)),
)


# --------------------------------------------------------------------------------------------- rows


def test_all_that_must_hold_on_two_cores_stands_in_the_rows():
    said = {
        (work.name, claim.what, claim.dtype): (claim.must, claim.aim, claim.most)
        for work in CLAIMED
        for claim in work.claims
    }
    assert said == {
        ("pair_1", "step", "float32"): (1.4, 2, False),
        ("pair_1", "step", "fastest"): (1.8, 2.5, False),
        ("pair_8", "step", "float32"): (2, 3, False),
        ("pair_8", "step", "fastest"): (3.5, 5, False),
        ("tree_1", "step", "float32"): (2, 4, False),
        ("tree_1", "step", "fastest"): (3.5, 7, False),
        ("tree_8", "step", "float32"): (2.5, 4, False),
        ("tree_8", "step", "fastest"): (4, 7, False),
        ("solo_4", "step", "float32"): (1.5, 2, False),
        ("solo_4", "step", "fastest"): (2.5, 3.5, False),
        ("vocabulary", "update", "float32"): (8, 12, False),
        ("vocabulary", "memory", "float32"): (1.2, None, True),
        ("adapters_memory", "memory", "float32"): (0.45, 0.3, True),
        ("agents", "step", "float32"): (4.4, None, True),
        ("adapters", "step", "float32"): (4.0, None, True),
        ("nodes", "step", "float32"): (9.9, None, True),
    }


def test_the_rows_do_the_work_that_their_names_say():
    done = {
        work.name: [
            (side.job.agents, side.job.prompts, rows.answers(side))
            for side in (work.ours, work.theirs)
        ]
        for work in CLAIMED
    }
    assert done["pair_1"] == [(2, 1, 16)] * 2
    assert done["pair_8"] == [(2, 8, 128)] * 2
    assert done["tree_1"] == [(2, 1, 2 * 72)] * 2
    assert done["tree_8"] == [(2, 8, 16 * 72)] * 2
    assert done["solo_4"] == [(1, 4, 32)] * 2
    assert done["agents"] == done["adapters"] == [(4, 1, 32), (1, 1, 8)]
    assert done["nodes"] == [(1, 1, 72), (1, 1, 8)]


@pytest.mark.parametrize("device", WORKS)
def test_every_row_has_a_name_of_its_own_and_a_model_that_can_be_made(device):
    works = WORKS[device]
    assert len({work.name for work in works}) == len({work.title for work in works}) == len(works)
    assert {side.job.model for work in works for side in (work.ours, work.theirs)} <= set(
        models.SHAPES
    )


def test_peers_do_the_same_job_and_the_rows_that_only_inform_say_no_must():
    for work in WORKS["cpu"]:
        assert work.ours.program == "motet"
        if work.theirs.program != "motet":
            assert replace(work.ours.job, settings=None) == work.theirs.job
        assert work.informs == (work not in CLAIMED)
    assert all(work.informs for work in WORKS["cuda"])


def test_a_side_runs_once_in_every_type_that_is_asked_for():
    assert [side.job.dtype for side in WORK.variants(OURS)] == ["float32", "bfloat16"]
    assert [side.job.dtype for side in WORK.variants(replace(OURS, program="trl"))] == list(
        DTYPES["trl"]
    )
    assert [side.job.dtype for side in replace(WORK, claims=WORK.claims[:1]).variants(OURS)] == [
        "float32"
    ]


def test_a_ratio_is_theirs_over_ours_by_medians_with_the_spread_of_the_rounds():
    one = rows.row(WORK, WORK.claims[0], MEASURED, lambda _: None, "2026-01-01")
    assert (one["ratio"], one["spread"], one["ok"], one["rounds"]) == (2.5, [1.5, 4.0], True, 3)
    assert (one["must"], one["aim"], one["date"]) == (2.0, 4.0, "2026-01-01")


def test_the_fastest_type_is_each_sides_own():
    one = rows.row(WORK, WORK.claims[1], MEASURED, lambda _: None, "2026-01-01")
    assert (one["ours"]["dtype"], one["theirs"]["dtype"]) == ("bfloat16", "float32")
    assert (one["ratio"], one["ok"]) == (5.0, True)
    assert (
        rows.row(WORK, replace(WORK.claims[1], must=6.0), MEASURED, lambda _: None, "")["ok"]
        is False
    )


def test_what_may_be_so_much_at_most_is_ours_over_theirs():
    measured = rounds.Measured(
        (taken(OURS, "float32", 1.0, memory=6e6),), (taken(THEIRS, "float32", 1.0, memory=5e6),)
    )
    claim = Claim("memory", "float32", 1.2, most=True)
    assert rows.row(WORK, claim, measured, lambda _: None, "")["ratio"] == 1.2
    assert rows.row(WORK, claim, measured, lambda _: None, "")["ok"] is True
    assert rows.row(WORK, replace(claim, must=1.1), measured, lambda _: None, "")["ok"] is False


def test_memory_without_an_account_is_not_measured():
    measured = rounds.Measured(
        (taken(OURS, "float32", 1.0, memory=0),), (taken(THEIRS, "float32", 1.0, memory=0),)
    )
    one = rows.row(WORK, Claim("memory", "float32", 1.2, most=True), measured, lambda _: None, "")
    assert (one["ratio"], one["spread"], one["ok"]) == (None, None, None)
    assert "not measured" in tables.cells(one)


def test_rates_count_answers_per_step_and_tokens_per_second_of_what_makes_them():
    ours = rows.figures(taken(OURS, "float32", 2.0), limits.Least(0.04, 0.06, 0.3))
    assert ours["samples_per_second"] == 2 / 2.0
    assert ours["generated_per_second"] == 2 * 64 / 0.5
    assert ours["trained_per_second"] == 2 * 64 / 1.0
    assert ours["share_of_limit"] == {"step": 0.2, "rollout": 0.2, "update": 0.3}
    theirs = rows.figures(taken(THEIRS, "float32", 2.0), None)
    assert theirs["trained_per_second"] == 2 * 63 / 1.0  # comlrl's loss leaves the last token out
    assert theirs["share_of_limit"] is None


def test_new_rows_replace_old_ones_of_the_same_claim_and_the_others_stay():
    def row(work: str, dtype: str, date: str) -> rows.Row:
        return {"work": work, "what": "step", "dtype": dtype, "date": date}

    works = [WORK, replace(WORK, name="other")]
    old = [
        row("pair", "float32", "old"),
        row("pair", "fastest", "old"),
        row("gone", "float32", "old"),
    ]
    found = rows.merged(old, [row("other", "float32", "new"), row("pair", "fastest", "new")], works)
    assert [(one["work"], one["dtype"], one["date"]) for one in found] == [
        ("pair", "float32", "old"),
        ("pair", "fastest", "new"),
        ("other", "float32", "new"),
    ]


def test_slow_rows_are_measured_less_often():
    assert [rounds.rounds_for(seconds) for seconds in (1, 20, 21, 60, 300)] == [5, 5, 3, 3, 2]


# ------------------------------------------------------------------------------------------- limits

SHAPE = limits.Shape(body=1000, head=500, attention=10, cache=20)


def test_the_shape_of_a_model_counts_its_linear_weights():
    config = {
        "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 3, "intermediate_size": 16, "vocab_size": 100,
    }  # fmt: skip
    # queries, keys and values, output, feed-forward
    block = 8 * 12 + 2 * 8 * 6 + 12 * 8 + 3 * 8 * 16
    assert limits.Shape.of(config) == limits.Shape(2 * block, 800, 2 * 12, 2 * 2 * 6)
    del config["head_dim"]
    assert limits.Shape.of(config).attention == 2 * 8


def test_least_seconds_by_hand_where_products_decide():
    """One prompt of 64 tokens, two answers of 64: 1000 FLOP/s, and memory of no cost."""
    found = limits.least(SHAPE, JOB, limits.Limits(1, {"float32": 1000.0}, 1e30, 1e30))
    reading = 2 * 1000 * 64 + 4 * 10 * (64 * 65 / 2) + 2 * 500
    looked_at = sum(range(65, 128))
    drawing = 2 * (63 * 2 * 1500 + 4 * 10 * looked_at)
    assert found.rollout == pytest.approx((reading + drawing) / 1000)
    assert found.update == pytest.approx(3 * (reading + drawing) / 1000)
    assert found.step == found.rollout + found.update


def test_least_seconds_by_hand_where_memory_decides():
    """Per token, the weights and the prompt's cache are read once for both answers.

    Each answer's own cache is read, too.
    """
    found = limits.least(SHAPE, JOB, limits.Limits(1, {"float32": 1e30}, 100.0, 50.0))
    moved = sum(4 * (1500 + 20 * (64 + 2 * token)) for token in range(1, 64))
    assert found.rollout == pytest.approx(moved / 100)
    assert found.update == pytest.approx(28 * 1500 / 100)
    half = limits.least(
        SHAPE, replace(JOB, dtype="bfloat16"), limits.Limits(1, {"bfloat16": 1e30}, 100.0, 50.0)
    )
    assert half.rollout == pytest.approx(found.rollout / 2)


def test_only_weights_that_fit_are_read_at_the_speed_of_the_small_matrix():
    machine = limits.Limits(1, {}, 10.0, 40.0)
    assert (machine.bandwidth(limits.MATRIX), machine.bandwidth(limits.MATRIX + 1)) == (40.0, 10.0)


def test_agents_add_up_and_adapters_share_what_is_read():
    products = limits.Limits(1, {"float32": 1000.0}, 1e30, 1e30)
    one, four = (limits.least(SHAPE, replace(JOB, agents=agents), products) for agents in (1, 4))
    assert four.step == pytest.approx(4 * one.step)
    adapters = limits.least(SHAPE, replace(JOB, agents=4, adapters=True), products)
    assert (adapters.rollout, adapters.update) == pytest.approx((four.rollout, four.update * 2 / 3))
    memory = limits.Limits(1, {"float32": 1e30}, 100.0, 100.0)
    shared, apart = (
        limits.least(SHAPE, replace(JOB, agents=4, adapters=on), memory) for on in (True, False)
    )
    assert apart.rollout - shared.rollout == pytest.approx(63 * 3 * 4 * 1500 / 100)
    assert shared.update == pytest.approx(0)


def test_a_reference_is_one_forward_more_and_a_turn_is_what_its_prompts_are():
    products = limits.Limits(1, {"float32": 1000.0}, 1e30, 1e30)
    plain, held, tree = (
        limits.least(SHAPE, replace(JOB, **changes), products)
        for changes in ({}, {"reference_kl": True}, {"turns": 2})
    )
    assert (held.rollout, held.update) == pytest.approx((2 * plain.rollout, plain.update))
    reading = 2 * (2 * 1000 * 192 + 4 * 10 * (192 * 193 / 2) + 2 * 500)
    drawing = 4 * (63 * 2 * 1500 + 4 * 10 * sum(range(193, 256)))
    assert tree.rollout - plain.rollout == pytest.approx((reading + drawing) / 1000)


# ------------------------------------------------------------------------------------------- tables


def record() -> dict[str, Any]:
    least = limits.Least(0.04, 0.06, 0.2)
    made = [
        rows.row(
            WORK,
            claim,
            MEASURED,
            lambda side: least if side.program == "motet" else None,
            "2026-01-01",
        )
        for claim in WORK.claims
    ]
    machine = {"threads": 2, "gemm": {"float32": 1.5e11}, "read": 1e10, "matrix": 2.5e10}
    return {"machine": "a machine", "versions": {"torch": "2"}, "limits": machine, "rows": made}


def test_a_row_is_a_line_of_aligned_cells():
    first, second = map(tables.cells, record()["rows"])
    assert first == (
        "a pair", "comlrl", "step", "float32", "2 s", "5 s", "2.50", "1.50–4.00", "2", "4", "yes",
    )  # fmt: skip
    assert second[3:6] == ("fastest: bfloat16 / float32", "1 s", "5 s")
    starts = {tables.line(cells).index("step") for cells in (first, second)}
    assert starts == {tables.line(tables.HEAD).index("quantity")}


def test_the_page_has_every_side_once_and_what_the_machine_can_do():
    page = tables.page(record())
    assert (
        "| a pair | comlrl | step | float32 | 2 s | 5 s | 2.50 | 1.50–4.00 | 2 | 4 | yes |" in page
    )
    assert (
        page.count("| a pair | Motet | float32 |")
        == page.count("| a pair | comlrl | float32 |")
        == 1
    )
    assert "| 15% (20%, 20%) |" in page  # of 0.3 s in 2 s, 0.1 in 0.5 and 0.2 in 1
    assert "150 GFLOP/s in float32" in page
    assert "Measured 2026-01-01 on a machine, 2 threads, torch 2." in page


def test_numbers_have_three_digits():
    assert [tables.short(number) for number in (0.01234, 1.234, 99.94, 1234.5)] == [
        "0.0123",
        "1.23",
        "99.9",
        "1,234",
    ]


def test_only_the_measured_part_of_the_page_is_replaced():
    page = (ROOT / "docs" / "performance.md").read_text()
    before, after = page.split(tables.BEGIN)[0], page.split(tables.END)[1]
    assert tables.replaced(page, "new") == f"{before}{tables.BEGIN}\n\nnew\n\n{tables.END}{after}"
    with pytest.raises(ValueError, match="in the page"):
        tables.replaced("a page without a place", "new")


def test_a_record_is_gone_on_with_on_the_same_machine_and_versions_only(tmp_path):
    file, page = tmp_path / "results" / "latest.json", tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    made = {**record(), "date": "2026-01-01"}
    records.save(made, file, page)
    assert (
        page.read_text()
        == f"before\n{tables.BEGIN}\n\n{tables.page(made)}\n\n{tables.END}\nafter\n"
    )
    again = records.earlier(file, "a machine", {"torch": "2", "trl": "1"})
    assert (again["rows"], again["versions"]) == (made["rows"], {"torch": "2", "trl": "1"})
    assert records.earlier(file, "a machine", {"torch": "3"})["rows"] == []
    assert records.earlier(file, "another", {"torch": "2"})["rows"] == []
    assert records.earlier(tmp_path / "none", "a machine", {})["rows"] == []


# ------------------------------------------------------------------------------------------- a side


@pytest.mark.wide
def test_one_step_of_motets_side_says_what_it_took(tmp_path):
    side = Side(
        "motet",
        Job(str(models.make("6.6M", tmp_path)), "float32", agents=1, group=2, threads=1),
        "Motet",
    )
    with rounds.Running(side, tmp_path / "log") as running:
        assert running.answer() == {"ready": True}
        took = running.step()
    assert {"seconds", "cpu", "rollout", "update", "memory", "estimate"} <= took.keys()
    assert took["memory"] >= max(took["memory/play"], took["memory/learn"])
    assert took["seconds/play"] >= took["seconds/play/decode"] > 0
    assert 0 < took["rollout"] + took["update"] <= took["seconds"]
    # weights, and gradients or moments
    assert sys.platform != "linux" or took["memory"] > 2 * 6.6e6 * 4


def test_a_side_that_crashes_shows_the_end_of_its_log_and_stops(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(rounds, "subprocess", SimpleNamespace(Popen=ForkedProcess, PIPE=PIPE))
    side = Side("motet", Job(str(tmp_path / "no model"), "float32"), "Motet")
    with (
        rounds.Running(side, tmp_path / "log") as running,
        pytest.raises(SystemExit, match="motet in float32 stopped"),
    ):
        running.answer()
    assert "Traceback" in capsys.readouterr().err


def test_a_row_that_is_not_there_is_named():
    done = fork_server.run(
        [sys.executable, str(SPEED / "__main__.py"), "--only", "pair_3"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("no row is called pair_3; there are: pair_1, pair_8")
    assert done.stdout == ""


@pytest.mark.parametrize(("family", "kind"), [("Qwen3", Qwen3Config), ("Qwen2", Qwen2Config)])
def test_a_word_is_a_token_of_the_tokenizer_that_transformers_loads(
    family, kind, tmp_path, monkeypatch
):
    """transformers reads the folder of a Qwen2 with its own tokenizer, whatever the folder says."""
    size = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
    }
    shape = kind(vocab_size=20_000, intermediate_size=8, head_dim=8, **size)
    monkeypatch.setitem(models.SHAPES, family, shape)
    loaded = AutoTokenizer.from_pretrained(models.make(family, tmp_path))
    assert {len(loaded(task.prompt(number, 64))["input_ids"]) for number in range(50)} == {64}
    assert loaded.eos_token_id == 20_000, "no model of these says it, so no answer ends early"
    said = [loaded.decode(range(15_000 + start, 15_000 + start + 64)) for start in (0, 500)]
    second = task.second_prompt(task.prompt(0, 64), said, 0)
    assert len(loaded(second)["input_ids"]) == 192


def test_no_two_words_are_alike():
    assert len({task.word(number) for number in range(152_000)}) == 152_000
