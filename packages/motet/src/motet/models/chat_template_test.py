"""The chat template of a model, where its tokenizer has several."""

import pytest
from transformers import AutoTokenizer

from motet.core import Message
from motet.errors import ConfigError
from motet.models.bounded_text import template_of
from motet.models.chat_template import reads_date, tokenizer_with
from motet.models.prompts import encode
from motet.settings import ChatTemplate
from tests.fixtures.model_folders import TEMPLATE, make_model_folder

FOR_TOOLS = "{{ tools | tojson }}" + TEMPLATE


@pytest.fixture
def several(tmp_path):
    """A function that writes a model folder whose tokenizer has named templates."""
    folder = make_model_folder(tmp_path / "model")

    def of(**templates: str):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.chat_template = templates
        tokenizer.save_pretrained(folder)
        return folder

    return of


def test_chats_with_tools_have_a_template_of_their_own(several):
    tokenizer, _ = tokenizer_with(several(default=TEMPLATE, tool_use=FOR_TOOLS), None)
    assert not reads_date(tokenizer)
    assert template_of(tokenizer) == TEMPLATE
    assert template_of(tokenizer, [{}]) == FOR_TOOLS
    assert encode(tokenizer, (Message("user", "hi"),))


def test_several_templates_without_a_default_are_refused_with_their_names(several, tmp_path):
    folder = several(tool_use=FOR_TOOLS)
    with pytest.raises(ConfigError, match="has the chat templates tool_use; expected one with"):
        tokenizer_with(folder, None)
    (tmp_path / "own.jinja").write_text(TEMPLATE)
    tokenizer, _ = tokenizer_with(folder, ChatTemplate(str(tmp_path / "own.jinja")))
    assert encode(tokenizer, (Message("user", "hi"),))
