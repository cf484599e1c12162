"""Options of a command that are made from the settings of a server."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from motet_serve.http.options import options_of
from motet_serve.http.settings import ServerSettings, setting
from motet_serve.settings import TeamServerSettings
from motet_verifier.server_settings import VerifierServerSettings
from motet_view.settings import ViewerSettings


@dataclass(frozen=True, kw_only=True)
class Odd(ServerSettings):
    """Settings of all types."""

    kind: Literal["this", "that"] = setting("this", "This or that.")


def run(kind, *words, names=()):
    """Return the settings and the argument that a command gets."""
    got = []
    app = typer.Typer()

    @app.command()
    @options_of(kind, *names)
    def command(settings: ServerSettings, place: Annotated[str, typer.Argument()] = "") -> None:
        got.append((settings, place))

    done = CliRunner().invoke(app, words)
    return got[0] if got else done


@pytest.mark.parametrize("kind", [TeamServerSettings, VerifierServerSettings, ViewerSettings, Odd])
def test_without_options_the_settings_are_the_defaults(kind):
    names = ("host", "port") if kind is ViewerSettings else ()
    assert run(kind, "there", names=names) == (kind(), "there")


def test_each_setting_has_an_option_of_its_type():
    words = "--port 1 --key-variable K --without-key --max-body-mb 0.5 --kind that there"
    settings, place = run(Odd, *words.split())
    expected = Odd(port=1, key_variable="K", without_key=True, max_body_mb=0.5, kind="that")
    assert (settings, place) == (expected, "there")


def test_a_wrong_value_and_an_option_that_is_not_named_are_refused():
    assert run(Odd, "--kind", "other").exit_code == 2
    assert run(Odd, "--port", "many").exit_code == 2
    assert run(Odd, "--port", "1", names=("host",)).exit_code == 2


def test_help_says_what_a_setting_means_and_its_default():
    said = " ".join(run(Odd, "--help").output.split())
    assert "This or that." in said
    assert "[default: 8000]" in said
