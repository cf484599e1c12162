import io

from motet.safety.visible import Console
from motet.trainer.progress import Progress
from tests.fixtures.messages import says


def shown(terminal: bool, mode: str = "auto") -> str:
    ticks = iter(range(1000))
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, _environ={})
    with Progress(mode, console=console, every=10, clock=lambda: float(next(ticks))) as progress:
        progress.stage("train", total=25, first=5)
        for step in range(6, 26):
            progress.show(step, {"reward": step / 10, "success": 0.25}, tokens=100)
    return out.getvalue()


def test_off_a_terminal_every_tenth_step_and_the_last_is_one_aligned_line():
    lines = shown(terminal=False).strip().splitlines()
    assert lines == [
        "train     10/25  reward  1.000  success  0.250      100 tokens/s  left 0:00:15",
        "train     20/25  reward  2.000  success  0.250      100 tokens/s  left 0:00:05",
        "train     25/25  reward  2.500  success  0.250      100 tokens/s  took 0:00:20",
    ]


def test_on_a_terminal_there_is_a_bar_with_the_figures():
    text = shown(terminal=True)
    assert "25/25" in text
    assert "reward  2.500  success  0.250      100 tokens/s  took 0:00:20" in text


def test_a_stage_goes_on_after_another_one_in_between():
    out = io.StringIO()
    console = Console(file=out, width=120, _environ={})
    with Progress(console=console, every=1) as progress:
        progress.stage("train", total=2)
        progress.show(1, {})
        progress.counter("step 1", 1)(None)
        progress.stage("train", total=2, first=1)
        progress.show(2, {})
    assert [line[:13] for line in out.getvalue().splitlines()] == [
        "train     1/2",
        "step 1    1/1",
        "train     2/2",
    ]
    assert [bar.description for bar in progress._bar.tasks if bar.visible] == ["train", "step 1"]


def test_the_clock_of_a_stage_goes_on_after_another_one_in_between():
    out, now = io.StringIO(), [0.0]
    console = Console(file=out, width=120, _environ={})
    with Progress(console=console, every=1, clock=lambda: now[0]) as progress:
        progress.stage("train", total=8, first=4)  # resumed
        for step in (5, 6):
            now[0] += 10
            progress.show(step, {}, tokens=50)
        count = progress.counter("step 6", 1)
        now[0] += 100
        count(None)
        progress.stage("train", total=8, first=6)
        now[0] += 16
        progress.show(7, {}, tokens=80)
        progress.stage("train", total=8, first=2)  # rolled back
        now[0] += 5
        progress.show(3, {}, tokens=5)
    assert [line[13:].split() for line in out.getvalue().splitlines()] == [
        ["5", "tokens/s", "left", "0:00:30"],
        ["5", "tokens/s", "left", "0:00:20"],
        ["took", "0:01:40"],
        ["5", "tokens/s", "left", "0:00:12"],
        ["1", "tokens/s", "left", "0:00:25"],
    ]


def test_silent_shows_nothing():
    assert shown(terminal=True, mode="silent") == ""
    assert shown(terminal=False, mode="silent") == ""


def test_off_a_terminal_there_is_a_line_a_minute_with_what_is_waited_for():
    out, now = io.StringIO(), [0.0]
    console = Console(file=out, width=120, _environ={})
    progress = Progress(console=console, clock=lambda: now[0])
    progress.stage("train", total=60)
    progress.show(3, {})
    progress.waiting("the games of step 4")
    for second in (59.0, 60.0, 119.0, 120.0, 150.0):
        now[0] = second
        progress.break_silence()
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    for line, waited in zip(lines, ("0:01:00", "0:02:00"), strict=True):
        assert says(line, f"train … 3/60 … the games of step 4 … {waited}")


def test_off_a_terminal_slow_steps_have_lines_of_their_own_with_their_figures():
    out, now = io.StringIO(), [0.0]
    progress = Progress(console=Console(file=out, width=120, _environ={}), clock=lambda: now[0])
    progress.stage("train", total=60)
    for step in (1, 2, 3):
        now[0] += 20
        progress.show(step, {"reward": step / 4})
    progress.waiting("the games of step 4")
    now[0] += 60
    progress.break_silence()
    assert out.getvalue().splitlines() == [
        "train      2/60  reward  0.500  left 0:19:20",
        "train     3/60  reward  0.750  waiting for the games of step 4, 0:02:00 so far",
    ]


def test_a_line_of_its_own_is_enough_for_a_minute():
    out, now = io.StringIO(), [0.0]
    progress = Progress(console=Console(file=out, width=120, _environ={}), clock=lambda: now[0])
    progress.stage("load", total=0)
    now[0] = 50.0
    progress.say("a warning")
    now[0] = 100.0
    progress.break_silence()
    now[0] = 110.0
    progress.break_silence()
    assert out.getvalue().splitlines() == ["a warning", "load       working, 0:01:50 so far"]


def with_completions(terminal: bool, **how) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=40, _environ={})
    with Progress(console=console, **how) as progress:
        progress.stage("train", total=2)
        progress.completions({"ann": "first\nsecond \x1b[2J" + "x" * 90, "bob": "[bold]yes"})
        progress._bar.refresh()
        progress.completions({"ann": "later"})
        progress._bar.refresh()
    return out.getvalue()


def test_on_a_terminal_each_agent_has_one_line_with_its_last_completion():
    text = with_completions(terminal=True)
    lines = [line for line in text.splitlines() if "first" in line]
    assert lines
    assert all("first\\nsecond \\x1b[2Jxx" in line and "…" in line for line in lines)
    assert "[bold]yes" in text
    assert text.index("[bold]yes") < text.index("later")


def test_completions_are_not_shown_without_a_terminal_or_if_turned_off():
    assert with_completions(terminal=False) == ""
    assert "later" not in with_completions(terminal=True, log_completions=False)
    assert "later" not in with_completions(terminal=True, mode="silent")
