"""A verifier chooses among the answers of several games of the embedded debate.

The verifiers are objects, a folder and a server.
"""

import json
import shlex
import sys

import pytest

import motet
from motet.clients.http_client import PATIENCE, ServerAway
from motet.clients.reward_server import VerifierFault
from motet.commands import console
from motet.commands.main import main
from motet.config.paths import config_path
from motet.core.records import as_json
from motet.environments.debate_tiny import TinyDebate
from motet.errors import ConfigError, RewardFault
from motet_verifier.api_choosing import choose_answers, scorer_of
from motet_verifier.choosing import METHODS
from motet_verifier.model import Verifier
from tests.fixtures.http_servers import ScoreServer, running
from tests.fixtures.messages import facts, says
from tests.fixtures.model_folders import make_model_folder
from tests.small_runs import ROOT, recorded, run_config

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
CONFIG = config_path("debate_magrpo")
GOLD = {f"{task.fields['left']}{task.fields['operation']}{task.fields['right']};": task for task in
        TinyDebate(TinyDebate.Options()).tasks("eval")}  # fmt: skip


class Constant:
    async def score(self, chats):
        return [0.5] * len(chats)


class Knowing:
    """Scores without error, but refuses to read some texts."""

    def __init__(self, unreadable=lambda text: False):
        self.unreadable, self.asked = unreadable, []

    async def score(self, chats):
        self.asked += chats
        if any(self.unreadable(chat[-1].content) for chat in chats):
            raise RewardFault("unreadable")
        debate = TinyDebate(TinyDebate.Options())
        return [
            float((await debate.grade(GOLD[asked.content], said.content)).right)
            for asked, said in chats
        ]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """Twelve tasks of a debate among agents that have learnt little more than to write two
    digits."""
    warm = motet.warmup(
        CONFIG, ["warmup.steps=60", "warmup.batch_size=32"], into=tmp_path_factory.mktemp("warm")
    )
    models = [f"models.{name}={{embedded: null, path: {folder}}}" for name, folder in warm.items()]

    def evaluate(verifier, best_of=(1, 2, 4), *more, **named):
        overrides = ["warmup=null", *models, "evaluation.tasks=12", *more]
        return choose_answers(
            CONFIG, overrides, verifier=verifier, best_of=best_of, show="silent", **named
        )

    return evaluate


def means(row):
    return {method: found.mean for method, found in row.accuracy.items()}


def lines_of(folder, sections, monkeypatch, capsys):
    """Return `line -> (exit code, stdout, stderr)` in `folder`. run.yaml is a config of
    `sections`."""
    (folder / "run.yaml").write_text(json.dumps(sections))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(console.out, "_width", 80)

    def motet_command(line):
        monkeypatch.setattr(sys, "argv", ["motet", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return motet_command


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Two random players of the embedded debate, four tasks."""
    sections = run_config(
        environment={"name": "debate_tiny"}, evaluation={"tasks": 4}, rollout={"samples": [2, 1]}
    )
    return lines_of(tmp_path, sections, monkeypatch, capsys)


# ---------------------------------------------------------------------------------------- selection


@pytest.mark.wide
def test_a_verifier_that_never_errs_reaches_the_ceiling_at_every_turn_and_k(evaluated):
    verifier = Knowing()
    figures = evaluated(verifier)
    found = figures.selection
    assert (figures.episodes, figures.samples) == (12, 4)
    assert [[row.k for row in rows] for rows in found.turns] == [[1, 2, 4]] * 2
    for rows in found.turns:
        for row in rows:
            assert (row.tasks, row.all_subsets) == (12, True)
            assert list(row.accuracy) == list(METHODS)
            assert means(row)["best"] == pytest.approx(means(row)["any"])
        ceilings = [means(row)["any"] for row in rows]
        assert ceilings[0] < ceilings[1] < ceilings[2]
        assert means(rows[0])["single"] == means(rows[2])["single"]
    assert found.turns[0][2].accuracy["any"].mean > found.turns[0][0].accuracy["single"].mean > 0
    assert found.scored == len(verifier.asked) == len(set(verifier.asked))
    assert (found.left_out, found.causes) == (0, {})
    assert json.loads(json.dumps(as_json(found))) == as_json(found)


def test_single_answers_and_tokens_are_those_of_the_evaluation_itself(evaluated):
    figures = evaluated(Constant())
    first, second = figures.selection.turns
    assert [means(rows[0])["single"] for rows in (first, second)] == pytest.approx(
        figures.success_by_turn
    )
    assert second[2].tokens_per_task == pytest.approx(figures.tokens_per_episode)
    for rows in (first, second):
        assert [row.tokens_per_task for row in rows] == pytest.approx(
            [k * rows[0].tokens_per_task for k in (1, 2, 4)]
        )
    assert first[0].tokens_per_task < second[0].tokens_per_task


def test_a_verifier_that_says_the_same_of_all_is_a_majority_vote_and_two_evaluations_are_alike(
    evaluated,
):
    figures = evaluated(Constant(), (1, 4, 6), "evaluation.samples=9")
    for rows in figures.selection.turns:
        assert [row.k for row in rows] == [1, 4, 6]
        assert [row.all_subsets for row in rows] == [True, False, False]  # 9, 126 and 84
        assert all(row.accuracy["weighted"] == row.accuracy["majority"] for row in rows)
    again = evaluated(Constant(), (6, 4, 1), "evaluation.samples=9")
    assert recorded(again) == recorded(figures)


def test_an_answer_that_cannot_be_scored_leaves_with_its_game_and_is_counted(evaluated):
    whole = evaluated(Knowing(), None, "evaluation.samples=4")
    odd = evaluated(Knowing(lambda text: "1" in text), None, "evaluation.samples=4")
    found = odd.selection
    assert found.left_out > 0
    assert found.causes == {"reward/RewardFault": sum(found.causes.values())}
    assert odd.faults == 0  # the games themselves succeeded
    assert found.scored < whole.selection.scored
    assert found.turns[0][2].tasks < 12
    assert (odd.success, odd.reward) == (whole.success, whole.reward)


def test_a_verifier_that_can_score_nothing_leaves_the_figures_of_play(evaluated):
    found = evaluated(Knowing(lambda text: True), [2])
    assert found.selection.turns == []
    assert found.selection.left_out == 24
    assert found.success is not None


def test_a_server_that_says_503_to_everything_ends_it_with_one_message(evaluated):
    class Away:
        calls = 0

        async def score(self, chats):
            Away.calls += 1
            raise VerifierFault(
                "refused", "verifier: http://there answered with status 503 (4 tries)"
            )

    with pytest.raises(ServerAway, match=r"failed in 16 calls in a row.*status 503 \(4 tries\)"):
        evaluated(Away(), [4])
    assert Away.calls == PATIENCE


def test_a_folder_of_an_untrained_verifier_scores_all_alike(evaluated, tmp_path):
    model = make_model_folder(tmp_path / "model", "llama", seed=0)
    Verifier.new(model, lora=None, seed=0, device="cpu").save(tmp_path / "verifier")
    by_folder = evaluated(tmp_path / "verifier", [1, 2])
    assert by_folder.selection == evaluated(Constant(), [1, 2]).selection


# ---------------------------------------------------------------------------------- at the terminal


def test_a_server_chooses_and_it_is_printed_as_json_as_a_table_and_as_a_picture(command, tmp_path):
    with running(ScoreServer(0.75)) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        line = f"verifier choose run.yaml --verifier {address} --best-of 1,2,8"
        code, out, _ = command(f"{line} --json --plot {tmp_path}/curves.png")
        assert (code, out.count("\n")) == (0, 1)
        figures = json.loads(out)
        turns = figures["selection"]["turns"]
        assert (figures["samples"], [row["k"] for row in turns[1]]) == (8, [1, 2, 8])
        assert (tmp_path / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        asked = [json.dumps(chat) for _, one in server.asked for chat in one["query_responses"]]
        # the first request tests whether the server is there
        assert len(asked) == figures["selection"]["scored"] + 1
        code, out, _ = command(line)
    table_rows = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line
    ]
    for row in (row for turn in turns for row in turn):
        shown = [f"{found['mean']:.3f}" for found in row["accuracy"].values()]
        assert [str(row["k"]), "4", f"{row['tokens_per_task']:,.1f}", *shown] in table_rows
    assert says(out, "from k games … turn 2")
    assert all(len(line) <= 80 for line in out.splitlines() if "│" in line)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--verifier nowhere", "nowhere … verifier.json … folder of a verifier"),
        ("--verifier http://127.0.0.1:1", "http://127.0.0.1:1/predict: the connection failed"),
        (
            "--verifier http://",
            "verifier.base_url … 'http://' … http://localhost:8000",
        ),
        ("--verifier ftp://there", "verifier.base_url … 'ftp://there' … an address"),
        (
            "--verifier nowhere --samples 2 --best-of 1,4",
            "best_of … 4 … 1 to 2 … games per task",
        ),
        ("--verifier nowhere --best-of 0", "best_of … 0 … 1 to 1 … games per task"),
        (
            "--verifier nowhere --best-of 2,2",
            "--best-of … '2,2' … whole numbers … commas",
        ),
        ("--best-of 2", "Missing option '--verifier'"),
        (
            "--verifier nowhere --plot no/x.png",
            "--plot … no/x.png … .png … existing folder",
        ),
        ("--verifier nowhere --plot x.jpg", "--plot … x.jpg … .png"),
        (
            f"environment.name={ROOT}/tests/games.py:Coded --verifier nowhere",
            "Coded … no question … no grade",
        ),
    ],
)
def test_what_cannot_work_is_one_line_before_any_play(command, options, complaint):
    code, out, err = command(f"verifier choose run.yaml {options}")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says(err, complaint)


def test_what_is_no_verifier_is_refused(evaluated):
    with pytest.raises(ConfigError, match=facts("address … folder … score")):
        evaluated(0.5)
    with pytest.raises(ConfigError, match=facts("address … folder … score")):
        evaluated(None)


def test_a_key_goes_only_to_the_server_that_the_config_names_it_for(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    section = {"base_url": "http://localhost:8000", "key_variable": "NO_SUCH_KEY"}
    config = motet.read_config(run_config(verifier=section))
    with pytest.raises(
        ConfigError, match=r"verifier\.key_variable names NO_SUCH_KEY, which is not set"
    ):
        scorer_of("http://localhost:8000", config)
    assert scorer_of("http://localhost:8001", config) is not None
