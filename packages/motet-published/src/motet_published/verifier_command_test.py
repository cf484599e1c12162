import sys

import pytest

from motet_published.verifier_command import main, positional


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


def test_a_published_config_of_these_scripts_is_one_line(monkeypatch, capsys):
    words = ["reward_gen_data.py", "--config", "config/config_gen.py"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="2"):
        main("sample")
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("error: config/config_gen.py: ")
    assert "gsm8k_debate" in said
