"""Tests the formatting of metrics."""

from motet.commands.console import step_took


def test_a_step_is_told_by_its_shares_the_most_first_and_play_by_its_parts():
    play = {"play": 1.2, "play/prefill": 0.02, "play/decode": 1.0, "play/environment": 0.18}
    said = step_took({**play, "learn": 0.7, "pack": 0.08, "publish": 0.02})
    assert said == "a step took 2.00 s: decode 50%, learn 35%, environment 9%, pack 4%"
    assert step_took({"play": 0.3, "learn": 0.1}) == "a step took 0.40 s: play 75%, learn 25%"
