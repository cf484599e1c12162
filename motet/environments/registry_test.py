import pytest
from pydantic import ValidationError

from motet.environments.quickstart import Quickstart
from motet.environments.registry import ENVIRONMENTS, create, options_of, resolve
from motet.environments.relay import Relay
from motet.errors import ConfigError

OWN = """
class Mine:
    async def start(self, task, seed): ...
    def observe(self, state): ...
    async def step(self, state, replies, seed): ...
    async def close(self, state): ...

class Half:
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
    assert resolve("./own.py:Mine", base_folder=folder) is resolve("own.py:Mine", base_folder=folder)


def test_every_registered_name_is_an_environment():
    assert len({resolve(name) for name in ENVIRONMENTS}) == len(ENVIRONMENTS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "quikstart",
            r"environment.name is 'quikstart' \(did you mean 'quickstart'\?\); expected one of quickstart, relay",
        ),
        ("./gone.py:Mine", "environment.name: .*gone.py does not exist"),
        ("./own.py:Mime", r"defines no 'Mime' \(did you mean 'Mine'\?\); it defines Mine, Half, play"),
        ("motet.nowhere:Mine", "environment.name: .*expected an importable package.module:NAME"),
        ("./own.py:play", "an object of type function; expected a class"),
        ("./own.py:Half", "a class without observe, step, close"),
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
    with pytest.raises(ConfigError, match=r"Quickstart asks for service 'sandbox'.*services are verifier"):
        create(Quickstart, {}, {"verifier": None})


def test_a_class_without_options_takes_none(folder):
    mine = resolve("./own.py:Mine", base_folder=folder)
    assert options_of(mine) is None
    assert type(create(mine, {}, {})) is mine
    with pytest.raises(ConfigError, match="environment sets tests, but Mine has no options"):
        create(mine, {"tests": 3}, {})


def test_a_wrong_option_is_refused():
    with pytest.raises(ValidationError):
        create(Relay, {"digit": 2}, {})
