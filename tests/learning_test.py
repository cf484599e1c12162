"""The claims of the README, as runs of several minutes: `make test-slow`."""

from pathlib import Path

import pytest

import motet
from motet_compare import compare_messages

pytestmark = pytest.mark.slow


def learnt(config: str, tmp_path: Path) -> tuple[float, float]:
    heldout = motet.train(config, runs=tmp_path, show="silent").heldout
    return heldout["before"].success, heldout["after"].success


def test_two_agents_learn_to_write_a_program_together(tmp_path):
    before, after = learnt("quickstart", tmp_path)
    assert before <= 0.40
    assert after >= 0.90


def test_with_a_frozen_partner_nothing_is_agreed_on(tmp_path):
    assert learnt("quickstart_frozen", tmp_path)[1] <= 0.40


@pytest.mark.parametrize("config", ["relay", "relay_tree", "relay_ippo", "relay_maac"])
def test_what_was_said_at_turn_one_earns_its_credit_at_turn_two(config, tmp_path):
    before, after = learnt(config, tmp_path)
    assert before <= 0.35
    assert after >= 0.70
    assert compare_messages(tmp_path / config, shuffle_turn=1, show="silent").success <= 0.05


def test_a_reviewer_and_a_fixer_settle_how_to_count(tmp_path):
    before, after = learnt("bugfix_tiny", tmp_path)
    assert before <= 0.45
    assert after >= 0.75
    assert compare_messages(tmp_path / "bugfix_tiny", shuffle_turn=1, show="silent").success <= 0.30


def test_two_builders_agree_on_who_places_which_block(tmp_path):
    before, after = learnt("minecraft_tiny", tmp_path)
    assert before <= 0.40
    assert after >= 0.75


def test_a_builder_with_a_frozen_partner_agrees_on_nothing(tmp_path):
    assert learnt("minecraft_tiny_frozen", tmp_path)[1] <= 0.40


@pytest.mark.parametrize("config", ["debate", "debate_magrpo"])
def test_who_hears_the_others_learns_whom_to_believe(config, tmp_path):
    heldout = motet.train(config, runs=tmp_path, show="silent").heldout
    alone, repeated = (turn.success for turn in heldout["before"].by_turn)
    assert repeated <= alone <= 0.55
    alone, decided = (turn.success for turn in heldout["after"].by_turn)
    assert alone <= 0.60
    assert decided >= 0.75
    shuffled = compare_messages(tmp_path / config, shuffle_turn=1, show="silent").by_turn
    assert shuffled[1].success <= shuffled[0].success
