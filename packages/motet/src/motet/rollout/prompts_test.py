from motet.core import Message
from motet.rollout.prompts import with_system

ASK = Message("user", "2 + 2?")


def test_a_chat_is_led_by_the_system_message() -> None:
    assert with_system((ASK,), "Be short.") == (Message("system", "Be short."), ASK)


def test_the_environments_own_system_text_follows_in_one_message() -> None:
    assert with_system((Message("system", "You add."), ASK), "Be short.") == (
        Message("system", "Be short.\n\nYou add."),
        ASK,
    )


def test_a_raw_prompt_is_led_by_the_text() -> None:
    assert with_system("2 + 2 =", "Sums.") == "Sums.\n\n2 + 2 ="


def test_no_system_text_changes_nothing() -> None:
    assert with_system((ASK,), "") == (ASK,)
    assert with_system("x", "") == "x"
