"""How fast the viewer opens a run of 100,000 games: the first indexing, the list, a search, a game.

    python benchmarks/viewer.py [--games 100000] [--folder /tmp/viewer-benchmark]

The games are like those of the quickstart: two agents with 8 completions each, of 20 tokens. With
Chromium and Playwright it also measures until the list stands on the page.
"""

import argparse
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from motet.core import Completion, Episode, Outcome, Round, Task
from motet.rollout.record import write_episode
from motet_view.pages import Pages
from motet_view.queries import GameFilter
from motet_view.server import serve_viewer
from motet_view.settings import ViewerSettings
from motet_view.shelf import find_runs

PER_STEP = 100
SAMPLES = 8
TOKENS = 20
WORDS = [f"word{number}" for number in range(40)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--games", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/viewer-benchmark"))
    given = parser.parse_args()
    run = given.folder / "large"
    if not run.is_dir():
        write_run(run, given.games)
    shutil.rmtree(run / ".view", ignore_errors=True)
    size = sum(path.stat().st_size for path in (run / "episodes").iterdir())
    print(f"{given.games:,} games, {size / 2**20:,.0f} MiB")

    pages = Pages(find_runs([run]), "benchmark")
    print(f"first indexing        {_seconds(pages.update):8.2f} s")
    index = (run / ".view" / "games.sqlite").stat().st_size
    print(f"size of the index     {index / 2**20:8.0f} MiB")
    again = Pages(find_runs([run]), "benchmark")
    print(f"nothing new           {_seconds(again.update):8.2f} s")
    asked: dict[str, Callable[[], Any]] = {
        "list of games": lambda: again.games("large", GameFilter()),
        "best reward first": lambda: again.games("large", GameFilter(order="best")),
        "last page": lambda: again.games("large", GameFilter(start=given.games - 50)),
        "text search": lambda: again.games("large", GameFilter(text="needle")),
        "one game": lambda: again.game("large", given.games // 2),
    }
    for what, ask in asked.items():
        print(f"{what:<21} {_seconds(ask):8.2f} s")
    _in_browser(again, given.games)


def write_run(run: Path, games: int) -> None:
    chance = random.Random(0)
    (run / "episodes").mkdir(parents=True)
    (run / "config.yaml").write_text("name: large\nseed: 0\n")
    with (run / "metrics.jsonl").open("w") as metrics:
        for step in range(1, games // PER_STEP + 1):
            metrics.write(f'{{"step": {step}, "play/reward": {chance.random()}}}\n')
            with (run / "episodes" / f"train-{step:06d}.jsonl").open("w") as file:
                for _ in range(PER_STEP):
                    write_episode(file, _episode(step, chance))


def _episode(step: int, chance: random.Random) -> Episode:
    task = f"task {chance.randrange(500)}"
    samples = {agent: tuple(_answer(agent, chance) for _ in range(SAMPLES)) for agent in ("a", "b")}
    outcomes = tuple(
        Outcome(
            {"a": at, "b": at},
            dict.fromkeys(("a", "b"), reward := chance.random()),
            {"success": float(reward > 0.5)},
            end="done",
        )
        for at in range(SAMPLES)
    )
    prompt = f"# {task}\n# write it\n"
    tree = Round(0, {"a": prompt, "b": prompt}, {"a": (1,) * 14, "b": (1,) * 14}, samples, outcomes)
    return Episode(f"{step:06d}:{task}", Task(task, {"question": prompt}), tree)


def _answer(agent: str, chance: random.Random) -> Completion:
    words = chance.choices(WORDS, k=TOKENS)
    if chance.random() < 0.001:
        words[3] = "needle"
    logprobs = tuple(-chance.expovariate(2) for _ in words)
    return Completion(agent, " ".join(words), "stop", 0, tuple(range(TOKENS)), logprobs, 1.0)


def _seconds(work: Callable[[], Any]) -> float:
    begun = monotonic()
    work()
    return monotonic() - begun


def _in_browser(pages: Pages, games: int) -> None:
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("no Chromium or no Playwright here: the page is not measured")
        return
    there = threading.Event()
    found: list[str] = []

    def ready(address: str) -> None:
        found.append(address)
        there.set()

    def serve() -> None:
        serve_viewer(
            pages, "benchmark", ViewerSettings(port=0), say=print, ready=ready,
            progress=lambda run, done, total: None,
        )  # fmt: skip

    threading.Thread(target=serve, daemon=True).start()
    there.wait()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto("about:blank")

        def open_list() -> None:
            page.goto(f"{found[0]}/#/games?run=large")
            page.get_by_text(f"1–50 of {games:,} games").first.wait_for()

        def open_game() -> None:
            page.goto(f"{found[0]}/#/game?run=large&id={games // 2}")
            page.get_by_text("Turn 1").wait_for()

        print(f"page with the list    {_seconds(open_list):8.2f} s")
        print(f"page with a game      {_seconds(open_game):8.2f} s")
        browser.close()


if __name__ == "__main__":
    main()
