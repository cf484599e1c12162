from motet.core import Message, Prompt, Team

ASK = Message("user", "2 + 2?")


def led(prompt: Prompt, system: str) -> Prompt:
    return Team({"a": ("a",)}, {}, system={"a": system}).with_system("a", prompt)


def test_a_chat_is_led_by_the_system_message() -> None:
    assert led((ASK,), "Be short.") == (Message("system", "Be short."), ASK)


def test_the_environments_own_system_text_follows_in_one_message() -> None:
    assert led((Message("system", "You add."), ASK), "Be short.") == (
        Message("system", "Be short.\n\nYou add."),
        ASK,
    )


def test_a_raw_prompt_is_led_by_the_text() -> None:
    assert led("2 + 2 =", "Sums.") == "Sums.\n\n2 + 2 ="


def test_no_system_text_changes_nothing() -> None:
    assert led((ASK,), "") == (ASK,)
    assert led("x", "") == "x"
    assert Team({"a": ("a",)}, {}).with_system("a", (ASK,)) == (ASK,)
