import pytest

import motet
from motet.errors import ConfigError
from motet_tasks.zero_sum import bluff, kuhn_poker
from motet_tasks.zero_sum.exploitability import exploitability, mean_reward
from motet_tasks.zero_sum.of_run import exploit
from tests.fixtures.messages import facts
from tests.small_runs import TINY, run_config

WORDS = {"kuhn_poker": ["pass", "bet"], "bluff": ["high", "low", "believe", "doubt"]}


def config(name="kuhn_poker", *, policies=("p", "p"), choices=None, **options):
    kind = {"kuhn_poker": "kuhn_poker:KuhnPoker", "bluff": "bluff:Bluff"}.get(
        name, "tic_tac_toe:TicTacToe"
    )
    said = WORDS.get(name) if choices is None else choices
    form = {} if not said else {"format": {"choices": said}}
    return run_config(
        environment={
            "name": f"motet_tasks.zero_sum.{kind}",
            "show_rules": False,
            **options,
        },
        models={"tiny": {"embedded": TINY, "device": "cpu"}},
        policies={one: {"model": "tiny"} for one in dict.fromkeys(policies)},
        team=dict(zip(("ann", "bob"), policies, strict=True)),
        decode={"max_new_tokens": 8, **form},
        rollout={"samples": [1, 1, 1] if name == "kuhn_poker" else [1, 1]},
    )


@pytest.mark.parametrize(
    ("name", "rules"), [("kuhn_poker", kuhn_poker.RULES), ("bluff", bluff.RULES)]
)
def test_the_exploitability_is_that_of_the_probabilities_of_the_answers(name, rules):
    found = exploit(config(name, policies=("p", "q")))
    assert found.exploitability.keys() == found.policy.keys() == {"ann", "bob"}
    for agent, own in found.policy.items():
        assert all(sum(chances.values()) <= 1 + 1e-5 for chances in own.values())
        assert found.exploitability[agent] == exploitability(rules, own)
    assert found.policy["ann"] == found.policy["bob"], "both start with the same weights"
    assert found.first == pytest.approx(mean_reward(rules, found.policy["ann"]))


def test_answers_that_are_no_move_there_are_missing_to_one():
    """Believe is no answer of a speaker. In Kuhn's poker all answers are always legal."""
    legal = exploit(config("kuhn_poker")).policy["ann"]
    assert all(sum(own.values()) == pytest.approx(1.0, abs=1e-5) for own in legal.values())
    some = exploit(config("bluff")).policy["ann"]
    assert all(sum(own.values()) < 0.99 for own in some.values())


def test_the_probabilities_are_those_of_the_team_at_the_prompt_of_the_game():
    said = exploit(config("kuhn_poker")).policy["bob"]["queen, pass"]
    prompt = (motet.Message("user", "You hold the queen. They pass. Pass or bet?"),)
    with motet.load_team(config("kuhn_poker")) as team:
        assert team.probabilities("bob", prompt) == said


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (config("tic_tac_toe", choices=["1"]), "got TicTacToe, expected kuhn_poker or bluff"),
        (config(choices=["pass", "fold", "bet"]), "several answers that mean pass"),
        (config(choices=[]), "decode.format has no choices"),
    ],
)
def test_what_cannot_be_computed_is_refused(said, message):
    with pytest.raises(ConfigError, match=facts(message)):
        exploit(said)
