import pytest

from motet.experiments.verifier_command import positional


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--config_file", "a.yaml", "--into", "x"], ["a.yaml", "--into", "x"]),
        (["--games", "2", "--config=a.yaml", "seed=1"], ["a.yaml", "--games", "2", "seed=1"]),
        (["a.yaml", "seed=1"], ["a.yaml", "seed=1"]),
    ],
)
def test_the_published_flag_names_the_first_argument(words, expected):
    assert positional(words) == expected
