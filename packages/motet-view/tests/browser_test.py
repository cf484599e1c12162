"""The viewer in a real browser: every view, the filters, the keys, hostile texts, an export."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from motet.api.keeping import Keeper
from motet_view.export import export_viewer
from motet_view.pages import Pages
from motet_view.queries import GameFilter
from motet_view.server import serve_viewer
from motet_view.settings import ViewerSettings
from motet_view.shelf import find_runs
from tests.fixtures.recorded_runs import (
    BASELINES,
    HOSTILE,
    evaluated,
    game,
    make_hostile_run,
    make_run,
    write_games,
)  # fmt: skip
from tests.fixtures.wide import widely

pytestmark = pytest.mark.wide

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
Look = Callable[..., "Seen"]
VIEWS = {
    "overview?run=plain": "Alarms and faults",
    "overview?run=plain&run=other": "Differences of the configs",
    "overview?run=plain&metric=play/faults": "Alarms and faults",
    "games?run=plain": "1–50 of 94 games",
    "task?run=plain&task=sum 1": "Games of this task",
    "team?run=plain": "Who is right, and who persuades whom",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser. While it is open, no other test of this process can run an event loop."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with sync_api.sync_playwright() as playwright:
        # This user may be root, for whom Chromium has no sandbox.
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Seen:
    """A page, and the errors that it has reported. `harmed` tells whether a text ran as code."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))

    def _console(self, said: Any) -> None:
        if said.type in ("error", "warning"):
            self.errors.append(said.text)

    def go(self, address: str) -> None:
        self.page.goto("about:blank")
        self.page.goto(address)
        self.page.wait_for_selector("main > *")

    @property
    def text(self) -> str:
        return str(self.page.inner_text("main"))

    def check(self) -> None:
        """No error, no effect of a text, and nothing wider than the window."""
        assert self.errors == []
        assert self.page.evaluate("window.harmed") is None
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.evaluate(wider) <= 0


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Seen]]:
    contexts = []

    def open_page(*, width: int = 1280, dark: bool = False) -> Seen:
        contexts.append(
            browser.new_context(
                viewport={"width": width, "height": 850},
                color_scheme="dark" if dark else "light",
            )
        )
        contexts[-1].set_default_timeout(60_000)  # a busy machine is no failure
        return Seen(contexts[-1].new_page())

    yield open_page
    for context in contexts:
        context.close()


class Served:
    """A viewer in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = Pages(find_runs([folder]), "1.2.3")
        self.pages.update()
        there = threading.Event()
        self.address = ""

        def ready(address: str) -> None:
            self.address = address
            there.set()

        def serve() -> None:
            serve_viewer(
                self.pages, "1.2.3", ViewerSettings(port=0), say=print, ready=ready,
                progress=lambda run, done, total: None,
            )  # fmt: skip

        threading.Thread(target=serve, daemon=True).start()
        there.wait()

    def game(self, run: str, task: str, order: Any = "newest") -> int:
        """The number of a game of a task."""
        return int(self.pages.games(run, GameFilter(task=task, order=order))["games"][0]["id"])


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder, steps=30)
    make_run(folder, "other", seed=1)
    make_hostile_run(folder)
    return Served(folder)


@pytest.mark.parametrize("dark", widely([False, True], keep=[False]))
@pytest.mark.parametrize("width", widely([1280, 390], keep=[1280]))
def test_every_view_opens_without_an_error(
    served: Served, look: Look, width: int, dark: bool
) -> None:
    seen = look(width=width, dark=dark)
    one = f"game?run=plain&id={served.game('plain', 'sum 1')}"
    for view, said in {**VIEWS, one: "Turn 2"}.items():
        seen.go(f"{served.address}/#/{view}")
        seen.page.get_by_text(said).first.wait_for()
        seen.check()
    theme = seen.page.evaluate("document.documentElement.dataset.theme")
    assert theme == ("dark" if dark else "light")
    assert all(url.startswith(served.address) for url in seen.requests if url != "about:blank")


def test_curves_have_their_values_and_marks(served: Served, look: Look) -> None:
    seen = look()
    seen.go(f"{served.address}/#/overview?run=plain")
    seen.page.wait_for_selector(".chart canvas")
    titles = seen.page.locator(".chart h2").all_inner_texts()
    assert titles == ["Success", "Reward", "Reward terms", "Entropy (nats)",
                      "KL of the update (nats)", "Tokens per second"]  # fmt: skip
    assert seen.page.locator(".legend").first.inner_text().split("\n")[-1] == "90 %"
    assert "learn/entropy is 0.300, beyond alarms.min_entropy" in seen.text
    seen.page.get_by_role("link", name="Show them").click()
    seen.page.get_by_text("1–1 of 1 games").wait_for()
    seen.check()


@pytest.mark.wide
def test_runs_are_chosen_over_each_other(served: Served, look: Look) -> None:
    seen = look()
    seen.go(f"{served.address}/#/overview?run=plain")
    seen.page.get_by_label("other", exact=True).check()
    seen.page.get_by_text("Differences of the configs").wait_for()
    assert "seed" in seen.text
    assert "run=other" in seen.page.url
    seen.check()


@pytest.mark.parametrize(
    ("label", "value", "count"),
    [
        ("Success", "solved", 43),
        pytest.param("Faults", "reward/Timeout", 1, marks=pytest.mark.wide),
        pytest.param("Cut off", "with a cut answer", 30, marks=pytest.mark.wide),
        pytest.param("Games", "held out (4)", 4, marks=pytest.mark.wide),
    ],
)
def test_a_filter_filters(served: Served, look: Look, label: str, value: str, count: int) -> None:
    seen = look()
    seen.go(f"{served.address}/#/games?run=plain")
    seen.page.get_by_label(label, exact=True).select_option(label=value)
    seen.page.get_by_text(f"of {count} games").first.wait_for()
    seen.page.get_by_role("button", name="Clear").click()
    seen.page.get_by_text("of 94 games").first.wait_for()
    seen.check()


@pytest.mark.wide
def test_text_steps_and_rewards_filter_together_and_pages_turn(served: Served, look: Look) -> None:
    seen = look()
    seen.go(f"{served.address}/#/games?run=plain")
    seen.page.get_by_role("button", name="Next").first.click()
    seen.page.get_by_text("51–94 of 94 games").first.wait_for()
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("zebra")
    seen.page.keyboard.press("Enter")
    seen.page.get_by_text("1–30 of 30 games").wait_for()
    seen.page.get_by_label("From step").fill("10")
    seen.page.keyboard.press("Enter")
    seen.page.get_by_text("1–21 of 21 games").wait_for()
    seen.page.get_by_label("Reward from").fill("5")
    seen.page.keyboard.press("Enter")
    seen.page.get_by_text("No game matches these filters.").wait_for()
    seen.page.reload()
    seen.page.get_by_text("No game matches these filters.").wait_for()
    seen.check()


def test_a_game_is_walked_by_keyboard(served: Served, look: Look) -> None:
    seen = look()
    page = seen.page
    seen.go(f"{served.address}/#/games?run=plain&task=sum 1&order=oldest")
    page.wait_for_selector("#list")
    for key in ("j", "j", "k", "j", "Enter"):
        page.keyboard.press(key)
    page.get_by_text("ann: second").first.wait_for()
    pressed = page.locator(".round >> nth=0").locator(".act[aria-pressed=true] .at")
    assert pressed.inner_text() == "1"  # worth 1.0; joint action 0: 0.2, then (0.2 + 1.0) / 2
    assert page.locator(".round").count() == 1
    page.keyboard.press("ArrowLeft")
    page.get_by_text("ann: first answer 2").first.wait_for()
    assert pressed.inner_text() == "0"
    assert page.locator(".round").count() == 2
    page.keyboard.press("n")
    assert "focused" in page.locator(".round >> nth=1").get_attribute("class")
    page.keyboard.press("s")
    assert page.locator(".sample .lp").count() > 0
    page.keyboard.press("a")
    page.wait_for_selector(".agents.all")
    page.keyboard.press("p")
    page.get_by_text("Turn 2, bob").wait_for()
    # The first advantages import torch, which takes a busy machine minutes.
    page.get_by_text("They cannot be computed").wait_for(timeout=400_000)
    page.keyboard.press("j")
    page.get_by_role("heading", name="sum 2").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_selector("#list")
    assert "task=sum" in page.url
    page.keyboard.press("?")
    page.get_by_text("joint action before, after").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("3")
    page.get_by_text("Held-out evaluations").wait_for()
    page.keyboard.press("1")
    page.get_by_text("Games worth reading").wait_for()
    seen.check()


@pytest.mark.wide
def test_faults_and_cut_answers_are_shown(served: Served, look: Look) -> None:
    seen = look()
    with_fault = served.pages.games("plain", GameFilter(fault="any"))["games"][0]["id"]
    seen.go(f"{served.address}/#/game?run=plain&id={with_fault}")
    seen.page.get_by_label("joint action 1: fault").click()
    seen.page.get_by_text("Fault reward/Timeout").wait_for()
    seen.page.get_by_label("joint action 0").click()
    assert seen.page.get_by_text("cut off").count() == 2
    seen.check()


@pytest.mark.wide
def test_one_task_of_two_runs_stands_side_by_side(served: Served, look: Look) -> None:
    seen = look()
    seen.go(f"{served.address}/#/task?run=plain&task=sum 1")
    seen.page.get_by_text("other, step 4").wait_for()
    columns = seen.page.locator(".column > .head h2")
    assert {"plain, step 30", "other, step 4"} < set(columns.all_inner_texts())
    seen.page.locator(".timeline", has_text="plain").get_by_title("training, step 1, ").click()
    seen.page.get_by_text("plain, step 1", exact=True).wait_for()
    assert columns.count() == 3
    seen.check()


@pytest.mark.wide
def test_the_theme_is_kept(served: Served, look: Look) -> None:
    seen = look()
    seen.go(f"{served.address}/#/overview")
    for expected in ("light", "dark"):
        seen.page.click("#theme")
        assert seen.page.evaluate("document.documentElement.dataset.theme") == expected
    seen.page.reload()
    seen.page.wait_for_selector("main > *")
    assert seen.page.evaluate("document.documentElement.dataset.theme") == "dark"
    seen.check()


@pytest.mark.parametrize("games", widely([3, 50], keep=[3]))
def test_hostile_texts_are_shown_and_do_nothing(served: Served, look: Look, games: int) -> None:
    seen = look()
    for view in ("overview?run=hostile", "overview?run=hostile&run=plain", "team?run=hostile",
                 "games?run=hostile", "games?run=hostile&fault=any"):  # fmt: skip
        seen.go(f"{served.address}/#/{view}")
        seen.page.wait_for_load_state("networkidle")
        seen.check()
    for one in served.pages.games("hostile", GameFilter(first_step=9))["games"][:games]:
        seen.go(f"{served.address}/#/game?run=hostile&id={one['id']}")
        for key in ("s", "a", "p", "s"):
            seen.page.keyboard.press(key)
        seen.page.get_by_text("sample 1").first.wait_for()
        seen.check()
        query = urlencode({"run": "hostile", "task": one["task"]})
        seen.go(f"{served.address}/#/task?{query}")
        seen.page.get_by_text("Games of this task").wait_for()
        seen.check()
    name = HOSTILE["image"]
    assert name in seen.text, "an agent's name is text"


@pytest.mark.wide
def test_control_characters_are_written_out(served: Served, look: Look) -> None:
    seen = look()
    for name, shown in {"ansi": r"\x1b[31mred\x1b[2J", "rtl": r"abc\u202edetrevni\u2066\u200f",
                        "nul": r"a\x00b\x08c", "line": r"\u2028next\u2029"}.items():  # fmt: skip
        games = served.pages.games("hostile", GameFilter(first_step=9, count=50))["games"]
        one = next(game for game in games if game["task"].startswith(f"{name} "))
        seen.go(f"{served.address}/#/game?run=hostile&id={one['id']}")
        seen.page.get_by_text("Turn 1", exact=True).wait_for()
        assert shown in seen.text
        assert not set(seen.text) & set("\x1b\u202e\u2066\0\b\u2028")
        seen.check()


@pytest.mark.wide
def test_a_long_line_is_shown_in_part_until_asked(served: Served, look: Look) -> None:
    seen = look()
    games = served.pages.games("hostile", GameFilter(first_step=9, count=50))["games"]
    one = next(game for game in games if game["task"].startswith("long "))
    seen.go(f"{served.address}/#/game?run=hostile&id={one['id']}&path=0")
    button = seen.page.get_by_role("button", name="Show all 1,048,").first
    button.wait_for()
    assert len(seen.text) < 100_000
    button.click()
    # Not `wait_for_function`: where it asks twice, it evaluates a string, which the page forbids.
    deadline = time.monotonic() + 30
    while seen.page.evaluate("document.querySelector('main').textContent.length") <= 1_048_576:
        assert time.monotonic() < deadline, "the whole line was not shown"
        seen.page.wait_for_timeout(50)
    seen.check()


@pytest.mark.wide
def test_what_a_reader_opens_before_the_advantages_come_stays_open(
    served: Served, look: Look
) -> None:
    seen = look()
    waiting: list[Any] = []
    seen.page.route("**/api/advantages*", lambda route: waiting.append(route))
    games = served.pages.games("plain", GameFilter(kind="train"))["games"]
    seen.go(f"{served.address}/#/game?run=plain&id={games[0]['id']}")
    seen.page.get_by_text("Advantages are being computed").wait_for()
    prompt = seen.page.locator("main details.prompt").first
    prompt.locator("summary").click()
    others = seen.page.locator("main details.others").first
    others.locator("> summary").click()
    shown = others.locator("[data-of]")
    shown.first.wait_for(state="attached")
    assert not any(place.is_visible() for place in shown.all())
    # The figures themselves come from the credit rule, which is not what is tested.
    key = json.loads(str(shown.first.get_attribute("data-of")))
    found = {"advantages": [[*key, -0.25]], "why": ""}
    waiting.pop().fulfill(json=found)
    seen.page.get_by_text("advantage −0.25").first.wait_for()
    assert prompt.get_attribute("open") is not None
    assert others.get_attribute("open") is not None
    seen.check()


@pytest.mark.wide
def test_a_wrong_address_says_what_is_wrong(served: Served, look: Look) -> None:
    seen = look()
    for view, said in {
        "nothing": "There is no view nothing.",
        "game?run=plain&id=99999": "has no game 99999",
    }.items():
        seen.go(f"{served.address}/#/{view}")
        seen.page.get_by_text(said).wait_for()
    assert all("404" in error for error in seen.errors)


def test_a_run_that_trains_is_followed(tmp_path: Path, look: Look) -> None:
    run = make_run(tmp_path, steps=2)
    (run / "summary.json").unlink()
    (tmp_path / ".plain.lock").touch()
    own = Served(tmp_path)
    seen = look()
    seen.go(f"{own.address}/#/games")
    seen.page.get_by_text("of 10 games").first.wait_for()
    write_games(run, "train", 3, [game("sum 9", 3, ["new"], [1.0])])
    seen.page.get_by_text("of 11 games").first.wait_for()
    seen.page.keyboard.press("1")
    seen.page.get_by_text("training", exact=True).first.wait_for()
    seen.check()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_evaluations_appear_when_they_are_kept(
    tmp_path: Path, look: Look, width: int, dark: bool
) -> None:
    run = make_run(tmp_path)
    config = json.loads((run / "config.yaml").read_text())
    config["rollout"] = {"samples": [2, 2]}  # controls need a second turn
    (run / "config.yaml").write_text(json.dumps(config))
    own = Served(tmp_path)
    seen = look(width=width, dark=dark)
    seen.go(f"{own.address}/#/team?run=plain")
    seen.page.get_by_text("motet messages runs/plain --blank-turn 1").wait_for(state="attached")
    assert seen.page.locator("#controls").count() == 0
    keeper = Keeper([run])
    hostile = HOSTILE["script"] + HOSTILE["rtl"]
    keeper.keep("shuffled-turn-1", [], evaluated(0.4, "shuffled"))
    keeper.keep("blank-turn-1", [], evaluated(0.2, "blank"))
    keeper.keep("evaluation", ["--samples 4"], evaluated(0.9))
    keeper.keep("evaluation", [hostile], evaluated(0.9))
    keeper.keep("baselines", [], BASELINES)
    cross = {"runs": ["runs/plain", "runs/other"], "agents": ["x", "y"]}
    keeper.keep("crossplay", ["plain"], {**cross, "success": [[1.0, 0.25], [0.5, 0.75]]})
    rows = seen.page.locator("#controls tbody tr")
    rows.nth(2).wait_for()
    said = [row.split("\n")[0].split("\t")[0].strip() for row in rows.all_inner_texts()]
    assert said == ["as they are", "blank after turn 1", "shuffled after turn 1"]
    first, blank, _ = rows.all_inner_texts()
    assert "90 %" in first
    assert "80 % to 100 %" in first
    assert "step 4" in first
    assert "20 %" in blank
    assert "70" in blank
    evaluations = seen.page.locator("#evaluations tbody tr")
    assert evaluations.count() == 4
    assert "--samples 4" in evaluations.nth(3).inner_text() + evaluations.nth(2).inner_text()
    assert r"\u202e" in seen.text
    assert "untrained team" in seen.page.locator(".baselines").inner_text()
    seen.page.get_by_text("Cross-play: plain, other").wait_for()
    assert "25 %" in seen.text
    seen.check()


@pytest.mark.parametrize("width", widely([1280, 390], keep=[1280]))
def test_an_export_opens_from_disk(tmp_path: Path, look: Look, width: int) -> None:
    make_run(tmp_path / "runs")
    make_hostile_run(tmp_path / "runs")
    folder = tmp_path / "my report"
    export_viewer(Pages(find_runs([tmp_path / "runs"]), "1.2.3"), folder, 1000)
    seen = look(width=width)
    begin = (folder / "index.html").as_uri()
    for view, said in {
        "overview?run=plain": "Alarms and faults",
        "overview?run=plain&run=hostile": "Differences of the configs",
        "games?run=plain&text=zebra&fault=any": "1–1 of 1 games",
        "games?run=plain&text=ann sum": "of 12 games",
        "games?run=plain&agent=ann&highest=0.4&kind=train": "of 4 games",
        "games?run=hostile": "games",
        "task?run=plain&task=sum 1": "Games of this task",
        "team?run=plain": "Who is right, and who persuades whom",
    }.items():
        seen.go(f"{begin}#/{view}")
        seen.page.get_by_text(said).first.wait_for()
        seen.check()
    seen.go(f"{begin}#/games?run=plain&task=sum 1&order=oldest")
    seen.page.locator("#list a").first.click()
    seen.page.get_by_text("ann: second").first.wait_for()
    seen.page.keyboard.press("ArrowLeft")
    seen.page.get_by_text("ann: first answer 1").first.wait_for()
    seen.check()
