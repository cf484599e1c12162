"""Which tools the agents of a config have, and what is refused before a run."""

import sys

import pytest

import motet
from motet.assembly.task_setup import open_task_setup
from motet.config.load import load_config, make_config
from motet.errors import ConfigError

GAME = '''
import motet


def look(word: str) -> str:
    """Looks up.

    Args:
        word: The word.
    """
    return word.upper()


async def later(word: str) -> str:
    """Looks up later.

    Args:
        word: The word.
    """
    return word


def bare(word):
    return word


class Own:
    name, description = "own", "An object."
    parameters = {"type": "object", "properties": {}}

    def __call__(self):
        return 1


class Odd(Own):
    name = "no name"


own, odd, number = Own(), Odd(), 7


class Game(motet.Environment):
    agents = ("solver", "checker")
    branches = True

    def tasks(self, split):
        return [motet.Task(f"{split} {k}", {}) for k in range(4)]

    def start(self, task, seed):
        return 0

    def observe(self, state):
        return dict.fromkeys(self.agents, "Say: ")

    def step(self, state, replies, seed):
        return motet.Transition(1, dict.fromkeys(self.agents, 0.0), True, success=0.0)


class Two(Game):
    most_turns = 2


class Declares(Game):
    tools = {"checker": [look, own]}
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "game.py").write_text(GAME)
    return tmp_path


def config(folder, *tools, game="Game", samples=(2, 1, 1), **more):
    names = [
        f"{folder}/game.py:{one}"
        if isinstance(one, str) and one.islower() and one != "python"
        else one
        for one in tools
    ]
    return make_config(
        {
            "name": "x",
            "environment": {"name": f"{folder}/game.py:{game}"},
            "models": {"tiny": {"embedded": {"hidden_size": 32, "layers": 1}}},
            "policies": {"p": {"model": "tiny"}},
            "team": {"solver": {"policy": "p", "tools": names}, "checker": "p"},
            "rollout": {"samples": list(samples)},
            "train": {"steps": 1},
            **more,
        }
    )


def opened(given):
    with open_task_setup(given, train=True) as setup:
        state_prompts = setup.environment.observe
        return setup, state_prompts


def names_of(setup, agent):
    return [tool.name for tool in setup.environment._tools[agent].values()]


def test_functions_objects_and_python_are_tools(folder):
    setup, _ = opened(config(folder, "look", "later", "own", "python"))
    assert names_of(setup, "solver") == ["look", "later", "own", "python"]
    assert setup.sandbox_level is not None
    assert setup.notes == [
        "agent solver may call look, later, own, python in at most 2 round(s) before an answer "
        "(tools.rounds 4, rollout.samples of 3 turns)"
    ]
    assert setup.derived == [
        "algorithm.credit.group_by: task, because rollout.samples [2, 1, 1] has one sample per "
        "Round after turn 1",
        "algorithm.repeat_last_reward: false, because the calls of tools take turns, so games "
        "differ in length",
    ]


def test_a_function_of_another_process_must_be_passed_again(folder):
    given = config(folder).model_copy()
    solver = given.team["solver"].model_copy(update={"tools": ("object:gone:f@0123",)})
    lost = given.model_copy(update={"team": {**given.team, "solver": solver}})
    with pytest.raises(ConfigError, match=r"team.solver.tools.0 is .*tools={'solver': \[\.\.\.\]}"):
        opened(lost)


def test_an_environment_may_declare_tools(folder):
    setup, _ = opened(config(folder, "later", game="Declares"))
    assert names_of(setup, "solver") == ["later"]
    assert names_of(setup, "checker") == ["look", "own"]
    setup, _ = opened(config(folder, game="Declares"))
    assert list(setup.environment._tools) == ["checker"]


def test_a_game_without_tools_is_the_environment_itself(folder):
    setup, _ = opened(config(folder))
    assert type(setup.environment).__name__ == "Game"
    assert setup.notes == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tools": ["look", "look"]}, "agent solver has two tools with the name 'look'"),
        ({"tools": ["number"]}, "team.solver.tools.0: got an object of type int without name"),
        ({"tools": ["own", "odd"]}, "team.solver.tools.1: got the name 'no name'; expected up to"),
        ({"tools": ["bare"]}, "team.solver.tools.0: tool bare: .* expected a function with a type"),
        ({"tools": ["nothing"]}, "team.solver.tools.0: .*defines no 'nothing'"),
        (
            {"tools": ["look"], "samples": [4]},
            r"rollout.samples \[4\] has 1 turn\(s\), but agent solver has tools, and the game has "
            r"1 turn\(s\) without any call; .* such as \[4, 1, 1\]",
        ),
        (
            {"tools": ["look"], "samples": [4, 1], "game": "Two"},
            r"has 2 turn\(s\) without any call; .* such as \[4, 1, 1, 1\]",
        ),
        (
            {"tools": ["look"], "decode": {"format": {"choices": ["yes", "no"]}}},
            "agent solver has tools and decode.format, which allows no call of them: drop one",
        ),
        ({"more": {"rounds": 2}}, "tools.rounds: got 2, which has no effect, because no agent has"),
        (
            {"tools": ["look"], "algorithm": {"repeat_last_reward": True}},
            "the calls of tools take turns, but algorithm.repeat_last_reward: true repeats",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(folder, given, message):
    more = {"tools": given["more"]} if "more" in given else {}
    more |= {key: given[key] for key in ("algorithm", "decode") if key in given}
    made = config(
        folder,
        *given.get("tools", ()),
        samples=given.get("samples", [2, 1, 1]),
        game=given.get("game", "Game"),
        **more,
    )
    with pytest.raises(ConfigError, match=message) as caught:
        opened(made)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (7, r"tools\[0\]: got 7, expected a string"),
        ("Pyton", r"got 'Pyton', expected python"),
        ({"mcp": []}, "got the command .*expected words"),
        ({"mcp": "ftp://x"}, "got 'ftp://x', expected an address"),
        ({"mcp": "http://u:pw@localhost/mcp"}, "contains a password"),
        (
            {"mcp": "http://localhost/mcp", "environment": ["X"]},
            "got environment X with the address",
        ),
        (
            {"mcp": ["x"], "key_variable": "KEY"},
            "got key_variable KEY with a command; expected an address",
        ),
        ({"mpc": ["x"]}, r"tools\[0\]\.mpc: unknown key; did you mean mcp\?"),
        ({"mcp": ["x"], "onli": ["a"]}, r"tools\[0\]\.onli: unknown key; did you mean only\?"),
    ],
)
def test_an_entry_that_names_no_tool_is_refused_with_the_forms(folder, item, message):
    with pytest.raises(ConfigError, match=message):
        config(folder, item)


def test_the_words_of_a_command_are_relative_to_the_config(folder):
    (folder / "c.yaml").write_text(
        "name: x\n"
        "environment: {name: './game.py:Game'}\n"
        "models: {tiny: {embedded: {}}}\n"
        "policies: {p: {model: tiny}}\n"
        "team:\n"
        "  solver: {policy: p, tools: [{mcp: [python, ./server.py, ../x], only: [./a]}]}\n"
        "  checker: p\n"
        "train: {steps: 1}\n"
    )
    (server,) = load_config(folder / "c.yaml").team["solver"].tools
    assert server.mcp == (
        "python",
        str(folder.resolve() / "server.py"),
        str(folder.resolve().parent / "x"),
    )
    assert server.only == ("./a",)


def test_a_function_with_any_number_of_arguments_is_no_tool():
    def total(*values: int) -> int:
        """Adds.

        Args:
            values: The numbers.
        """
        return sum(values)

    with pytest.raises(ConfigError, match=r"takes any number .*\*values.* such as a list"):
        motet.tool(total)


def test_motet_tool_makes_a_tool_of_a_function():
    @motet.tool
    def half(number: float, up: bool = False) -> float:
        """Halves.

        Args:
            number: What to halve.
            up: Whether to round up.
        """
        return number / 2

    assert (half.name, half.description) == ("half", "Halves.")
    assert half.parameters["required"] == ["number"]
    assert half(number=3.0) == 1.5
    with pytest.raises(ConfigError, match=r"tool <lambda>: .* expected a function with a type"):
        motet.tool(lambda x: x)


def test_a_server_gives_its_tools_and_a_note_if_it_is_elsewhere(folder, monkeypatch):
    pytest.importorskip("mcp", reason='needs pip install "motet[mcp]"')
    (folder / "server.py").write_text(
        f"import sys\nsys.path += {sys.path!r}\n"
        "from mcp.server import MCPServer\n"
        "server = MCPServer('s')\n"
        "@server.tool()\n"
        "def price(item: str) -> str:\n"
        "    'The price.'\n"
        "    return item\n"
        "server.run('stdio')\n"
    )
    server = {"mcp": ["python", str(folder / "server.py")], "start_seconds": 60}
    given = config(folder, server, "own")
    again = given.model_copy(update={"team": {**given.team, "checker": given.team["solver"]}})
    with open_task_setup(again, train=True) as setup:
        assert names_of(setup, "solver") == names_of(setup, "checker") == ["price", "own"]
        both = [setup.environment._tools[agent]["price"].client for agent in ("solver", "checker")]
        assert both[0] is both[1], "agents with one entry share its server"
    assert both[0]._process.poll() is not None, "the server ends with the set-up"
