import json
import math
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from motet_view.app import STATIC, create_viewer
from motet_view.pages import Pages
from motet_view.shelf import find_runs
from tests.fixtures.messages import says
from tests.fixtures.recorded_runs import HOSTILE, game, make_hostile_run, make_run, write_games


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    make_run(tmp_path)
    make_run(tmp_path, "other", seed=1)
    make_hostile_run(tmp_path)
    return tmp_path


@pytest.fixture
def pages(runs: Path) -> Pages:
    found = Pages(find_runs([runs]), "1.2.3")
    found.update()
    return found


@pytest.fixture
def client(pages: Pages) -> TestClient:
    return TestClient(create_viewer(pages, "1.2.3", everywhere=False), base_url="http://localhost")


def _get(client: TestClient, path: str, **query) -> dict:
    answer = client.get(f"/api/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_runs_are_listed_with_their_state(client: TestClient) -> None:
    rows = {row["name"]: row for row in _get(client, "runs")["runs"]}
    assert list(rows) == ["hostile", "other", "plain"]
    plain = rows["plain"]
    assert (plain["state"], plain["step"], plain["steps"], plain["games"]) == ("finished", 4, 4, 16)
    assert (plain["heldout"], plain["notes"]) == ({"before": 0.1, "after": 0.9}, [])


def test_the_overview_names_alarms_faults_and_games(client: TestClient) -> None:
    found = _get(client, "overview", run="plain")
    assert found["alarms"][0]["metric"] == "learn/entropy"
    assert found["faults"] == [{"step": 2, "count": 1, "where": "play"}]
    best, worst = found["highlights"]
    assert (best["title"], worst["title"]) == ("best", "worst")
    assert best["reward"] > worst["reward"]
    assert _get(client, "game", run="plain", id=best["id"])["task"]["id"] == "sum 1"
    assert found["warnings"] == ["a warning of the run"]


def test_alarms_of_a_run_without_summary_come_from_its_metrics(
    runs: Path, pages: Pages, client: TestClient
) -> None:
    (runs / "plain" / "summary.json").unlink()
    (alarm,) = _get(client, "overview", run="plain")["alarms"]
    assert (alarm["step"], alarm["metric"]) == (3, None)


def test_curves_are_those_that_were_asked_for(client: TestClient) -> None:
    found = _get(client, "curves", run="plain", metric=["play/reward", "learn/entropy"])
    assert list(found) == ["play/reward", "learn/entropy"]
    assert found["play/reward"]["steps"] == [1, 2, 3, 4]
    assert "time/tokens_per_second" in _get(client, "curves", run="plain")


def test_games_are_filtered_and_opened(client: TestClient) -> None:
    found = _get(client, "games", run="plain", text="zebra", fault="any")
    (one,) = found["games"]
    opened = _get(client, "game", run="plain", id=one["id"])
    assert (opened["task"]["id"], opened["step"], opened["kind"]) == ("sum 3", 2, "train")
    assert opened["tree"]["outcomes"][1]["fault"]["cause"] == "Timeout"
    assert opened["previous"] < one["id"] < opened["next"]


def test_a_task_a_team_and_the_differences_of_configs(client: TestClient) -> None:
    assert len(_get(client, "task", run="plain", task="sum 1")["games"]) == 4
    team = _get(client, "team", run="plain")
    assert len(team["evaluations"]) == 2
    assert team["turns"] == 1  # so the page offers no control of the messages between turns
    differing = _get(client, "configs", run=["plain", "other"])
    assert {row["key"]: row["values"] for row in differing["rows"]} == {
        "name": ["plain", "other"], "seed": [0, 1],
    }  # fmt: skip


def test_held_out_games_have_no_advantages_and_training_games_say_why_not(
    client: TestClient,
) -> None:
    held = _get(client, "games", run="plain", kind="evaluate")["games"][0]
    found = _get(client, "advantages", run="plain", id=held["id"])
    assert found == {"advantages": [], "why": "Only training games have advantages."}
    train = _get(client, "games", run="plain", kind="train")["games"][0]
    found = _get(client, "advantages", run="plain", id=train["id"])
    assert found["advantages"] == []
    assert "They cannot be computed: " in found["why"]  # the config is not a whole one


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("overview?run=nope", 404, "'nope' … hostile, other, plain"),
        ("game?run=plain&id=99999", 404, "plain … 99999"),
        ("game?run=plain&id=x", 422, "valid integer"),
        ("games?run=plain&order=x", 422, "'newest'"),
        ("games?run=plain&start=-1", 422, "start … greater … 0"),
        ("games", 422, "Field required"),
        ("nothing", 404, "Not Found"),
    ],
)
def test_wrong_questions_get_an_error(
    client: TestClient, path: str, status: int, said: str
) -> None:
    answer = client.get(f"/api/{path}")
    assert answer.status_code == status
    assert says(answer.text, said)


def test_a_game_whose_file_was_written_again_or_removed_is_an_error(
    runs: Path, client: TestClient
) -> None:
    found = _get(client, "games", run="plain", task="sum 2", kind="train", order="oldest")["games"]
    path = runs / "plain/episodes/train-000001.jsonl"
    path.write_text(path.read_text()[20:])
    changed = client.get("/api/game", params={"run": "plain", "id": found[0]["id"]})
    assert says(changed.text, "file … written again")
    path.unlink()
    assert client.get("/api/game", params={"run": "plain", "id": found[0]["id"]}).status_code == 404


def test_every_answer_has_the_headers_that_keep_other_sites_out(client: TestClient) -> None:
    for path in ("/", "/js/dom.js", "/css/base.css", "/api/runs", "/nothing", "/api/game?run=x"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1", ""])
def test_another_host_gets_nothing(client: TestClient, pages: Pages, host: str) -> None:
    assert client.get("/api/runs", headers={"host": host}).status_code == 403
    everywhere = TestClient(create_viewer(pages, "1", everywhere=True), base_url=f"http://{host}x")
    assert everywhere.get("/api/runs").status_code == 200


@pytest.mark.parametrize("host", ["[::1", "a]", "[1]"])
@pytest.mark.parametrize("everywhere", [True, False])
def test_a_host_that_is_none_is_refused(pages: Pages, host: str, everywhere: bool) -> None:
    viewer = TestClient(create_viewer(pages, "1", everywhere=everywhere))
    for path in ("/", "/js", "/api/runs"):
        assert viewer.get(path, headers={"host": host}).status_code == 400


@pytest.mark.parametrize(
    ("site", "status"),
    [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)],
)
def test_pages_of_other_sites_cannot_ask(client: TestClient, site: str, status: int) -> None:
    headers = {"sec-fetch-site": site}
    assert client.get("/api/runs", headers=headers).status_code == status
    assert client.get("/", headers=headers).status_code == 200, "a link to the page works"


def test_a_run_that_is_named_often_is_read_once(client: TestClient) -> None:
    read: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("motet_view.pages._config_of", lambda run: read.append(1) or {"a": 1})
        assert client.get("/api/configs", params={"run": ["plain"] * 500}).json()["runs"] == [
            "plain"
        ]
    assert read == [1]


@pytest.mark.parametrize("host", ["localhost:8090", "127.0.0.1:8090", "[::1]:8090"])
def test_this_machine_is_answered(client: TestClient, host: str) -> None:
    assert client.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/../pages.py", "/%2e%2e/pages.py", "/..%2fapp.py", "/js/"])
def test_no_file_outside_the_page_is_sent(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_nothing_of_the_page_comes_from_elsewhere() -> None:
    for path in STATIC.rglob("*"):
        if path.suffix in (".html", ".js", ".css") and "vendor" not in path.parts:
            text = path.read_text().replace("http://www.w3.org/2000/svg", "")
            assert "://" not in text, path
            for banned in (
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ):
                assert banned not in text, path
    assert len(list(STATIC.rglob("*.LICENSE"))) == 1


def test_hostile_texts_are_sent_whole_as_json(client: TestClient) -> None:
    listed = _get(client, "games", run="hostile", first_step=9)
    assert listed["total"] == len(HOSTILE)
    for one in listed["games"]:
        answer = client.get("/api/game", params={"run": "hostile", "id": one["id"]})
        assert answer.headers["content-type"] == "application/json"
        assert answer.content.isascii()
        said = next(text for name, text in HOSTILE.items() if one["task"].startswith(f"{name} "))
        samples = answer.json()["tree"]["samples"]["__proto__"]
        assert samples[0]["text"] == f"__proto__: {said}"


def test_secrets_of_the_machine_are_on_no_page(
    runs: Path, pages: Pages, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-0123456789abcdef"
    monkeypatch.setenv("EXPERT_KEY", secret)
    text = f"my key is {secret}"
    write_games(runs / "plain", "train", 8, [game(text, 8, [text], [1.0], fields={secret: text})])
    (runs / "plain/config.yaml").write_text(
        json.dumps({"name": text, "api_key": "other-secret", "train": {"steps": 8}})
    )
    summary = json.loads((runs / "plain/summary.json").read_text())
    summary["warnings"] = [text]
    (runs / "plain/summary.json").write_text(json.dumps(summary))
    pages.update()
    (one,) = _get(client, "games", run="plain", first_step=8)["games"]
    everything = [
        client.get("/api/runs").text,
        *(
            client.get(
                f"/api/{path}", params={"run": "plain", "id": one["id"], "task": "sum 1"}
            ).text
            for path in ("overview", "games", "game", "advantages", "task", "team", "configs")
        ),
    ]
    assert all(secret not in answer and "other-secret" not in answer for answer in everything)
    assert "[hidden]" in everything[3]  # the game


def test_what_is_wrong_with_a_run_is_said(runs: Path, pages: Pages, client: TestClient) -> None:
    run = runs / "plain"
    with (run / "episodes/train-000001.jsonl").open("a") as file:
        file.write('{"schema": 7}\nbroken\n{"half')
    with (run / "metrics.jsonl").open("a") as file:
        file.write("broken\n")
    (run / "summary.json").write_text("{")
    (run / "config.yaml").write_text("[")
    pages.update()
    row = next(row for row in _get(client, "runs")["runs"] if row["name"] == "plain")
    for part in (
        "1 broken line(s) … episode files … train-000001.jsonl",
        "1 line(s) … another version of Motet",
        "1 episode file(s) … middle of a line",
        "1 broken line(s) … metrics.jsonl",
        "config.yaml cannot be read",
        "summary.json cannot be read",
    ):
        assert any(says(note, part) for note in row["notes"])
    assert _get(client, "games", run="plain")["total"] == 16


def test_a_number_that_json_does_not_have_is_null(runs: Path, pages: Pages) -> None:
    path = runs / "plain/episodes/train-000004.jsonl"
    path.write_text(path.read_text().replace('"style": 0.5', '"style": NaN'))
    pages.update()
    client = TestClient(create_viewer(pages, "1", everywhere=True))
    one = _get(client, "games", run="plain", task="sum 3", first_step=4)["games"][0]
    terms = _get(client, "game", run="plain", id=one["id"])["tree"]["outcomes"][0]["terms"]
    assert terms["style"] is None
    assert not math.isnan(one["reward"])


@pytest.mark.parametrize("depth", [100, 300, 600, 900])
def test_values_that_are_nested_deeply_break_nothing(
    runs: Path, pages: Pages, client: TestClient, depth: int
) -> None:
    path = runs / "plain/episodes/train-000001.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    line["task"] = {"id": "deep", "fields": {"a": "HERE"}}
    nested = "[" * depth + "]" * depth
    with path.open("a") as file:
        file.write(json.dumps(line).replace('"HERE"', nested) + "\n")
    pages.update()
    found = _get(client, "games", run="plain", task="deep")["games"]
    if not found:
        row = next(row for row in _get(client, "runs")["runs"] if row["name"] == "plain")
        assert row["notes"][0].startswith("1 broken line(s)")
        return
    answer = client.get("/api/game", params={"run": "plain", "id": found[0]["id"]})
    assert answer.status_code == 200 or "nested too deeply" in answer.json()["error"]
