"""How a run that was stopped goes on."""

from pathlib import Path

from motet.api.teams import team_config
from motet.api.training import how_to_resume


def line(row):
    return f"Write about {row['topic']}."


def shorter(row, texts):
    return 1 / len(texts["writer"])


def of_team(**functions):
    given = {"agents": {"writer": line}, "reward": shorter} | functions
    config = team_config([{"topic": "the sea"}, {"topic": "snow"}], model="embedded", **given)
    return how_to_resume(Path("runs/team"), Path("runs"), config)


def test_a_run_whose_functions_can_be_imported_goes_on_by_the_command():
    assert of_team() == "motet train runs/team/config.yaml --resume"


def test_a_run_with_functions_of_its_program_goes_on_in_that_program():
    said = "the same call of this program, with resume=True"
    assert of_team(reward=lambda row, texts: 0.0) == said
    assert of_team(agents={"writer": lambda row: "Write."}) == said

    def inside(row, texts):
        return 0.0

    assert of_team(reward=inside) == said
