"""The licence of a base model, as its card says."""

import pytest

from motet.errors import ConfigError
from motet_serve.exports.hub import check_name, licence_of


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: apache-2.0\n---\n# A model\n", "apache-2.0"),
        ("---\nlicense: other\nlicense_name: own-terms\n---\n", "own-terms"),
        ("---\nlicense: other\n---\n", "unknown"),
        ("---\nlicense: [a, b]\n---\n", "unknown"),
        ("---\nlicense: {\n---\n", "unknown"),
        ("# No header\n", "unknown"),
        (None, "unknown"),
    ],
)
def test_the_licence_is_that_of_the_card_or_unknown(tmp_path, card, licence):
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    assert licence_of(tmp_path) == licence


def test_the_licence_of_a_python_package_is_that_of_its_metadata():
    assert licence_of("pip:pydantic") == "mit"
    assert licence_of("pip:no-such-package") == "unknown"


@pytest.mark.parametrize("name", ["me", "me/", "/team", "me/team/more", "me/te am", "-/..", ""])
def test_a_name_of_the_hub_has_a_user(name):
    check_name("some-user/team_1.0")
    with pytest.raises(ConfigError, match="expected USER/NAME"):
        check_name(name)
