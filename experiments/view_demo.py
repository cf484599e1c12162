"""Train the quickstart, open the viewer in a headless browser, and leave screenshots of every view.

    make view-demo          or: python experiments/view_demo.py [--into FOLDER] [--runs RUN ...]

It needs Chromium (apt-get install chromium) and Playwright for Python, a part of the group dev.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
QUICKSTART = Path("runs/quickstart")
WIDTHS = {1280: 900, 390: 844}
"""Width -> height of the window, in pixels: a small laptop and a phone."""
MOST_HEIGHT = 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, default=Path("output-view"))
    parser.add_argument("--runs", type=Path, nargs="+", default=[QUICKSTART])
    given = parser.parse_args()
    if QUICKSTART in given.runs and not (QUICKSTART / "summary.json").is_file():
        train = [sys.executable, "-m", "motet", "train", "quickstart", "--overwrite"]
        subprocess.run(train, check=True, cwd=ROOT)
    given.into.mkdir(exist_ok=True, parents=True)
    command = [sys.executable, "-m", "motet", "view", *map(str, given.runs), "--port", "0"]
    with subprocess.Popen([*command, "--no-open"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split(" at ")[1].split()[0]
        try:
            for picture in photograph(address, given.into):
                print(picture)
        finally:
            server.terminate()


def photograph(address: str, into: Path) -> list[Path]:
    """Open every view, light and dark, wide and narrow. Return the screenshots.

    Raises: RuntimeError if a page reports an error.
    """
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("there is no Chromium here: apt-get install chromium")
    found, errors = [], list[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for color in ("light", "dark"):
            for width, height in WIDTHS.items():
                context: Any = browser.new_context(
                    color_scheme=color, viewport={"width": width, "height": height}
                )
                context.set_default_timeout(120_000)  # a busy machine is no failure
                page = context.new_page()
                page.on(
                    "console",
                    lambda said: errors.append(said.text) if said.type == "error" else None,
                )
                page.on("pageerror", lambda error: errors.append(str(error)))
                for name, link in _views(page, address).items():
                    path = into / f"{name}-{color}-{width}.png"
                    _open(page, f"{address}/{link}")
                    tall = page.evaluate("document.documentElement.scrollHeight")
                    clip = {"x": 0, "y": 0, "width": width, "height": min(tall, MOST_HEIGHT)}
                    page.screenshot(path=path, full_page=True, clip=clip)
                    found.append(path)
                context.close()
        browser.close()
    if errors:
        raise RuntimeError(f"the page reported errors: {errors}")
    return found


def _views(page: Any, address: str) -> dict[str, str]:
    """Return name -> address of each view: those of the first run with games, and one game."""
    page.goto(address)
    runs = page.request.get(f"{address}/api/runs").json()["runs"]
    page.wait_for_selector("main > *")
    while any(run["indexing"] is not None for run in runs) or not any(run["games"] for run in runs):
        page.wait_for_timeout(500)
        runs = page.request.get(f"{address}/api/runs").json()["runs"]
    run = next(run["name"] for run in runs if run["games"])
    listed = page.request.get(f"{address}/api/games", params={"run": run, "kind": "train"}).json()
    game = listed["games"][-1]
    return {
        "overview": f"#/overview?run={run}",
        "games": f"#/games?run={run}",
        "game": f"#/game?run={run}&id={game['id']}",
        "task": page.evaluate(
            "([run, task]) => '#/task?' + new URLSearchParams({run, task})", [run, game["task"]]
        ),
        "team": f"#/team?run={run}",
    }


def _open(page: Any, link: str) -> None:
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("main > *")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(400)


if __name__ == "__main__":
    main()
