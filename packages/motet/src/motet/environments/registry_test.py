import pytest
from pydantic import ValidationError

from motet.environments.quickstart import Quickstart
from motet.environments.registry import check_is_environment, create, resolve
from motet.environments.relay import Relay
from motet.errors import ConfigError
from motet.user_code.installed import installed
from tests.fixtures.messages import facts

OWN = """
import motet

class Mine(motet.Environment):
    async def start(self, task, seed): ...
    def observe(self, state): ...
    async def step(self, state, replies, seed): ...

class Half(motet.Environment):
    async def start(self, task, seed): ...

class Plain:
    async def start(self, task, seed): ...

def play(): ...
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def test_a_name_is_registered_or_points_to_a_class(folder):
    assert resolve("relay") is Relay
    assert resolve("motet.environments.relay:Relay") is Relay
    assert resolve("./own.py:Mine", base_folder=folder).__name__ == "Mine"
    assert resolve("./own.py:Mine", base_folder=folder) is resolve(
        "own.py:Mine", base_folder=folder
    )


def test_every_registered_name_is_an_environment():
    names = installed("environments")
    assert {"quickstart", "relay", "debate_tiny", "functions"} <= set(names)
    assert len({resolve(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "quikstart",
            facts("environment.name … 'quikstart' … 'quickstart' … quickstart, relay"),
        ),
        ("./gone.py:Mine", "environment.name: .*gone.py does not exist"),
        (
            "./own.py:Mime",
            facts("'Mime' … 'Mine' … Mine, Half, Plain, play"),
        ),
        ("motet.nowhere:Mine", "environment.name: .*expected an importable package.module:NAME"),
        ("./own.py:play", facts("type function … a class … an instance")),
        ("./own.py:Half", facts("without observe, step … start")),
        (
            "./own.py:Plain",
            facts("class Plain … motet.Environment … class Plain(motet.Environment)"),
        ),
    ],
)
def test_what_is_no_environment_says_why(folder, name, message):
    with pytest.raises(ConfigError, match=message):
        resolve(name, base_folder=folder)


def test_a_constructor_gets_the_services_that_it_names():
    environment = create(Quickstart, {"tests": 3}, {"sandbox": "the sandbox", "another": 1})
    assert isinstance(environment, Quickstart)
    assert (environment.options.tests, environment.sandbox) == (3, "the sandbox")
    assert create(Relay, {}, {"sandbox": "unused"}).options == Relay.Options()


def test_a_service_nobody_provides_is_named():
    with pytest.raises(
        ConfigError, match=r"Quickstart needs the service 'sandbox'.*services are verifier"
    ):
        create(Quickstart, {}, {"verifier": None})


def test_a_class_without_options_takes_none(folder):
    mine = resolve("./own.py:Mine", base_folder=folder)
    assert mine.Options is None
    assert type(create(mine, {}, {})) is mine
    with pytest.raises(ConfigError, match=facts("environment … tests … Mine … no options")):
        create(mine, {"tests": 3}, {})


def test_a_wrong_option_is_refused():
    with pytest.raises(ValidationError):
        create(Relay, {"digit": 2}, {})


def test_a_program_passes_an_instance_of_the_base_class():
    check_is_environment(Relay(Relay.Options()), "environment")
    with pytest.raises(
        ConfigError,
        match=facts(
            "environment … instance … class dict … motet.Environment … "
            "class dict(motet.Environment)"
        ),
    ):
        check_is_environment({}, "environment")
