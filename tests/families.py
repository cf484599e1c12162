"""How families of models end a turn and think: small chat templates, and a table of docs/models.md.

python -m tests.families    # writes the table

Each template has the tokens of its family, and is as short as they allow.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from motet.models.tiny import byte_level_bpe
from motet.settings import Thinking

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
BEGIN, END = "<!-- families: `python -m tests.families` writes this table -->", "<!-- /families -->"
HEAD = ("family", "ends a turn with", "thinks between", "begun by", "on", "off")

Variables = Mapping[str, Any]
NONE: Variables = {}


@dataclass(frozen=True)
class Family:
    """A family whose template ends a turn in one way."""

    template: str
    ends: tuple[str, ...]
    """The tokens with which the template ends a turn."""
    eos: str
    """The end-of-sequence token of its tokenizer."""
    tokens: tuple[str, ...] = ()
    """Other tokens of its template."""
    closing: str = ""
    """What stands between an answer and the token that ends its turn."""
    thinking: Thinking | None = None
    opens: bool = False
    """Whether the generation prompt begins to think; else the model does."""
    on: Variables | None = None
    """The variables with which it thinks; None if it never does."""
    off: Variables | None = None
    """The variables with which it does not think; None if it always does."""
    off_system: str = ""
    """What a system message says instead, so that it does not think."""

    def tokenizer(self) -> PreTrainedTokenizerFast:
        special = dict.fromkeys(("<pad>", "<bos>", self.eos, *self.ends, *self.tokens))
        raw = byte_level_bpe(["assistant user model"], 320, special_tokens=tuple(special))
        made = PreTrainedTokenizerFast(
            tokenizer_object=raw, pad_token="<pad>", bos_token="<bos>", eos_token=self.eos
        )
        made.chat_template = self.template
        return made

    def row(self, name: str) -> str:
        cells = [name, ", ".join(map(_code, self.ends))]
        if self.thinking is not None and self.on is not None:
            tags = f"{_code(self.thinking.start)} … {_code(self.thinking.end)}"
            on = _variables(self.on) or ("always" if self.off is None else "by default")
            off = "never" if self.off is None else _variables(self.off) or "by default"
            off = f"`{self.off_system}` in the system message" if self.off_system else off
            cells += [tags, "the template" if self.opens else "the model", on, off]
        return f"| {' | '.join([*cells, *[''] * (len(HEAD) - len(cells))])} |"


def _code(text: str) -> str:
    return "`" + text.replace("|", r"\|") + "`"


def _variables(given: Variables) -> str:
    return ", ".join(f"`{name}: {json.dumps(value)}`" for name, value in given.items())


# ----------------------------------------------------------------------------------- the templates


def turns(user: str, assistant: str, ask: str, before: str = "") -> str:
    """Return a template of what it writes for a message, and for an answer to come."""
    return (
        before + "{% for m in messages %}{% if m.role == 'assistant' %}" + assistant + "{% else %}"
        "" + user + "{% endif %}{% endfor %}{% if add_generation_prompt %}" + ask + "{% endif %}"
    )


def thought(start: str, end: str) -> str:
    """Return what a template writes for the thinking of an answer in the history."""
    return (
        "{% if m.reasoning_content %}" + start + "{{ m.reasoning_content }}" + end + "{% endif %}"
    )


def unless(variable: str, text: str) -> str:
    return "{% if " + variable + " is false %}" + text + "{% endif %}"


def when(condition: str, text: str, other: str = "") -> str:
    return "{% if " + condition + " %}" + text + "{% else %}" + other + "{% endif %}"


TAGS = Thinking()
PAIR = ("<think>", "</think>")
EMPTY = "<think>\n\n</think>\n\n"
THOUGHT = thought("<think>\n", "\n</think>\n\n")
SAYS = "{{ m.content }}"
OFF = {"enable_thinking": False}
ON = {"enable_thinking": True}


def chatml(ask: str = "", body: str = SAYS, last: str = "") -> str:
    head = "<|im_start|>assistant\n"
    end = when("loop.last and not add_generation_prompt", last, "<|im_end|>\n") if last else ""
    return turns(
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n",
        head + body + (end or "<|im_end|>\n"),
        head + ask,
    )


def headers(start: str, end: str, close: str) -> str:
    """Return a template that writes the role between two tokens, and a token behind the content."""
    turn = start + "{{ m.role }}" + end + "\n\n{{ m.content }}" + close
    return turns(turn, turn, f"{start}assistant{end}\n\n", "<bos>")


def roles(user: str, assistant: str, end: str, *, ends_user: bool = True, body: str = SAYS) -> str:
    """Return a template with a token for each role."""
    return turns(
        user + SAYS + (end if ends_user else ""), assistant + body + end, assistant, "<bos>"
    )


PHI_4 = turns(
    "<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>",
    "<|im_start|>assistant<|im_sep|>{{ m.content }}<|im_end|>",
    "<|im_start|>assistant<|im_sep|>",
)
COHERE = ("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")
COHERE_TOKENS = (
    "<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>",
)  # fmt: skip
GLM = turns("<|user|>\n{{ m.content }}", "<|assistant|>\n" + THOUGHT + SAYS, "<|assistant|>ASK")
DEEPSEEK = turns(
    "<｜User｜>{{ m.content }}", "<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>",
    "<｜Assistant｜>ASK", "<bos>",
)  # fmt: skip
GPT_OSS = turns(
    "<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>",
    "{% if m.thinking and loop.last %}<|start|>assistant<|channel|>analysis<|message|>"
    "{{ m.thinking }}<|end|>{% endif %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}"
    + when("loop.last and not add_generation_prompt", "<|return|>", "<|end|>"),
    "<|start|>assistant",
)
HUNYUAN, HUNYUAN_TAGS = (
    "<｜hy_Assistant:opensource｜>",
    ("<think:opensource>", "</think:opensource>"),
)
KIMI_K3 = turns(
    "<|open|>message role=user<|sep|>{{ m.content }}<|close|>message<|sep|><|end_of_msg|>",
    "<|open|>message role=assistant<|sep|><|open|>think<|sep|>{{ m.reasoning_content }}<|close|>"
    "think<|sep|><|open|>response<|sep|>{{ m.content }}<|close|>response<|sep|><|close|>message"
    "<|sep|><|end_of_msg|>",
    "<|open|>message role=assistant<|sep|>"
    + when("thinking is false", "<|open|>response<|sep|>", "<|open|>think<|sep|>"),
)

FAMILIES: Mapping[str, Family] = {
    "Falcon-H1, Kimi K2, LFM 2, Qwen 2.5, Qwen 3 Instruct, SmolLM 2, Yi 1.5": Family(
        chatml(), ("<|im_end|>",), "<|endoftext|>", ("<|im_start|>",)
    ),
    "Kimi K2 Thinking, LFM 2.5 Thinking": Family(
        chatml(body=THOUGHT + SAYS), ("<|im_end|>",), "<|im_end|>", ("<|im_start|>", *PAIR),
        thinking=TAGS, on=NONE,
    ),
    "Qwen 3, SmolLM 3": Family(
        chatml(unless("enable_thinking", EMPTY), THOUGHT + SAYS), ("<|im_end|>",), "<|endoftext|>",
        ("<|im_start|>", *PAIR), thinking=TAGS, on=NONE, off=OFF,
    ),
    "Qwen 3 Thinking, Step 3.5": Family(
        chatml("<think>\n", EMPTY + SAYS), ("<|im_end|>",), "<|im_end|>", ("<|im_start|>", *PAIR),
        thinking=TAGS, opens=True, on=NONE,
    ),
    "Qwen 3.5, Nemotron 3": Family(
        chatml(when("enable_thinking is false", EMPTY, "<think>\n"), EMPTY + SAYS),
        ("<|im_end|>",), "<|im_end|>", ("<|im_start|>", *PAIR), thinking=TAGS, opens=True, on=NONE,
        off=OFF,
    ),
    "OLMo 3 Instruct": Family(
        chatml(last="<|endoftext|>"), ("<|endoftext|>", "<|im_end|>"), "<|endoftext|>",
        ("<|im_start|>",),
    ),
    "OLMo 3 Think": Family(
        chatml("<think>", last="<|endoftext|>"), ("<|endoftext|>", "<|im_end|>"), "<|endoftext|>",
        ("<|im_start|>", *PAIR), thinking=TAGS, opens=True, on=NONE,
    ),
    "InternLM 2 and 3": Family(
        chatml(last="<|im_end|>\n</s>"), ("<|im_end|>",), "</s>", ("<|im_start|>",)
    ),
    "Phi 4": Family(PHI_4, ("<|im_end|>",), "<|endoftext|>", ("<|im_start|>", "<|im_sep|>")),
    "Phi 4 Reasoning": Family(
        PHI_4, ("<|im_end|>",), "<|im_end|>", ("<|im_start|>", "<|im_sep|>", *PAIR),
        thinking=TAGS, on=NONE,
    ),
    "Phi 3, Phi 4 mini": Family(
        turns("<|{{ m.role }}|>\n{{ m.content }}<|end|>\n",
            "<|assistant|>\n{{ m.content }}<|end|>\n", "<|assistant|>\n")
        + "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}",
        ("<|end|>",), "<|endoftext|>", ("<|user|>", "<|assistant|>"),
    ),
    "Llama 3": Family(
        headers("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), ("<|eot_id|>",),
        "<|end_of_text|>", ("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>"),
    ),
    "Llama 4": Family(
        headers("<|header_start|>", "<|header_end|>", "<|eot|>"), ("<|eot|>",),
        "<|end_of_text|>", ("<|header_start|>", "<|header_end|>", "<|eom|>"),
    ),
    "Gemma 2 and 3": Family(
        turns("<start_of_turn>user\n{{ m.content | trim }}<end_of_turn>\n",
            "<start_of_turn>model\n{{ m.content | trim }}<end_of_turn>\n",
            "<start_of_turn>model\n", "<bos>"),
        ("<end_of_turn>",), "<eos>", ("<start_of_turn>",),
    ),
    "Gemma 4": Family(
        turns("<|turn>user\n{{ m.content | trim }}<turn|>\n",
            "<|turn>model\n" + thought("<|channel>thought\n", "\n<channel|>")
            + "{{ m.content | trim }}<turn|>\n",
            "<|turn>model\n" + when("enable_thinking", "", "<|channel>thought\n<channel|>"),
            "<bos>"),
        ("<turn|>",), "<eos>", ("<|turn>", "<|channel>", "<channel|>"),
        thinking=Thinking(start="<|channel>thought", end="<channel|>"), on=ON, off=NONE,
    ),
    "Mistral, Ministral": Family(
        turns("[INST]{{ m.content }}[/INST]", "{{ m.content }}{{ eos_token }}", "", "<bos>"),
        ("</s>",), "</s>", ("[INST]", "[/INST]"),
    ),
    "Magistral, Ministral Reasoning": Family(
        turns("[INST]{{ m.content }}[/INST]",
            thought("[THINK]", "[/THINK]") + "{{ m.content }}{{ eos_token }}", "",
            "<bos>[SYSTEM_PROMPT]Begin with [THINK]how[/THINK].[/SYSTEM_PROMPT]"),
        ("</s>",), "</s>",
        ("[INST]", "[/INST]", "[THINK]", "[/THINK]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        thinking=Thinking(start="[THINK]", end="[/THINK]"), on=NONE,
    ),
    "DeepSeek V3": Family(
        DEEPSEEK.replace("ASK", ""), ("<｜end▁of▁sentence｜>",), "<｜end▁of▁sentence｜>",
        ("<｜User｜>", "<｜Assistant｜>"),
    ),
    "DeepSeek R1": Family(
        DEEPSEEK.replace("ASK", "<think>\n"), ("<｜end▁of▁sentence｜>",), "<｜end▁of▁sentence｜>",
        ("<｜User｜>", "<｜Assistant｜>", *PAIR), thinking=TAGS, opens=True, on=NONE,
    ),
    "DeepSeek V3.1": Family(
        DEEPSEEK.replace("ASK", when("thinking", "<think>", "</think>")),
        ("<｜end▁of▁sentence｜>",), "<｜end▁of▁sentence｜>",
        ("<｜User｜>", "<｜Assistant｜>", *PAIR), thinking=TAGS, opens=True, on={"thinking": True},
        off=NONE,
    ),
    "GLM 4.5 and 4.6": Family(
        GLM.replace("ASK", unless("enable_thinking", "{{ '\n' }}<think></think>")), ("<|user|>",),
        "<|endoftext|>", ("<|assistant|>", "<|observation|>", *PAIR), thinking=TAGS, on=NONE,
        off=OFF,
    ),
    "GLM 4.7 and 5": Family(
        GLM.replace("ASK", when("enable_thinking is false", "</think>", "<think>")),
        ("<|user|>",), "<|endoftext|>", ("<|assistant|>", "<|observation|>", *PAIR), thinking=TAGS,
        opens=True, on=NONE, off=OFF,
    ),
    "gpt-oss": Family(
        GPT_OSS, ("<|return|>",), "<|return|>",
        ("<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|call|>"),
        thinking=Thinking(
            start="<|channel|>analysis<|message|>",
            end="<|end|><|start|>assistant<|channel|>final<|message|>",
        ),
        on=NONE,
    ),
    "Granite 3.3": Family(
        when("thinking", "Think between <think></think>.") + roles(
            "<|start_of_role|>user<|end_of_role|>", "<|start_of_role|>assistant<|end_of_role|>",
            "<|end_of_text|>\n"),
        ("<|end_of_text|>",), "<|end_of_text|>", ("<|start_of_role|>", "<|end_of_role|>"),
        thinking=TAGS, on={"thinking": True}, off=NONE,
    ),
    "Granite 4": Family(
        roles("<|start_of_role|>user<|end_of_role|>", "<|start_of_role|>assistant<|end_of_role|>",
            "<|end_of_text|>\n"),
        ("<|end_of_text|>",), "<|end_of_text|>", ("<|start_of_role|>", "<|end_of_role|>"),
    ),
    "OLMo 2, StableLM 2": Family(
        roles("<|user|>\n", "<|assistant|>\n", "<|endoftext|>", ends_user=False),
        ("<|endoftext|>",), "<|endoftext|>",
    ),
    "Nemotron Nano 2": Family(
        roles("<SPECIAL_11>User\n", "<SPECIAL_11>Assistant\n", "\n<SPECIAL_12>\n", ends_user=False)
        + "{% if add_generation_prompt %}"
        + when("'/no_think' in messages[0].content", "<think></think>", "<think>\n")
        + "{% endif %}",
        ("<SPECIAL_12>",), "<SPECIAL_12>", ("<SPECIAL_11>",), thinking=TAGS, opens=True, on=NONE,
        off=NONE, off_system="/no_think",
    ),
    "Muse Glimmer": Family(
        turns("<|start|>{{ m.role }}<|message|>{{ m.content }}<|eot|>",
            thought("<|start|>assistant to=self<|message|>", "<|eom|>")
            + "<|start|>assistant to=user<|message|>{{ m.content }}<|eot|>",
            "<|start|>assistant"),
        ("<|eot|>",), "<|eot|>", ("<|start|>", "<|message|>", "<|eom|>"),
        thinking=Thinking(
            start="to=self<|message|>", end="<|eom|><|start|>assistant to=user<|message|>"
        ),
        on=NONE,
    ),
    "Hunyuan A13B": Family(
        turns("<|startoftext|>{{ m.content }}<|extra_0|>", "{{ m.content }}<|eos|>",
            unless("enable_thinking", EMPTY)),
        ("<|eos|>",), "<|eos|>", ("<|startoftext|>", "<|extra_0|>"), thinking=TAGS, on=NONE,
        off=OFF,
    ),
    "Hunyuan 3": Family(
        turns("<｜hy_User:opensource｜>{{ m.content }}",
            HUNYUAN + thought(*HUNYUAN_TAGS) + SAYS
            + when("loop.last and not add_generation_prompt", "", "<｜hy_eos:opensource｜>"),
            HUNYUAN
            + when("reasoning_effort == 'high'", HUNYUAN_TAGS[0], "".join(HUNYUAN_TAGS))),
        ("<｜hy_eos:opensource｜>",), "<｜hy_eos:opensource｜>",
        ("<｜hy_User:opensource｜>", HUNYUAN, *HUNYUAN_TAGS),
        thinking=Thinking(start=HUNYUAN_TAGS[0], end=HUNYUAN_TAGS[1]), opens=True,
        on={"reasoning_effort": "high"}, off=NONE,
    ),
    "ERNIE 4.5": Family(
        turns("User: {{ m.content }}\n", "Assistant: {{ m.content }}<|end_of_sentence|>",
            "Assistant: ", "<bos>"),
        ("<|end_of_sentence|>",), "</s>",
    ),
    "Kimi K3": Family(
        KIMI_K3, ("<|end_of_msg|>",), "<|end_of_msg|>", ("<|open|>", "<|close|>", "<|sep|>"),
        closing="<|close|>response<|sep|><|close|>message<|sep|>",
        thinking=Thinking(
            start="<|open|>think<|sep|>",
            end="<|close|>think<|sep|><|open|>response<|sep|>",
        ),
        opens=True, on=NONE, off={"thinking": False},
    ),
    "MiniMax M2": Family(
        turns("]~b]user\n{{ m.content }}[e~[\n", "]~b]ai\n" + THOUGHT + SAYS + "[e~[\n",
            "]~b]ai\n<think>\n", "]~!b["),
        ("[e~[",), "[e~[", ("]~b]", "]~!b[", *PAIR), thinking=TAGS, opens=True, on=NONE,
    ),
    "Seed-OSS": Family(
        turns("<seed:bos>user\n{{ m.content }}<seed:eos>",
            "<seed:bos>assistant\n" + thought("<seed:think>", "</seed:think>\n") + SAYS
            + "<seed:eos>",
            "<seed:bos>assistant\n"
            + when("thinking_budget == 0", "<seed:think>\nAt once.\n</seed:think>")),
        ("<seed:eos>",), "<seed:eos>", ("<seed:bos>", "<seed:think>", "</seed:think>"),
        thinking=Thinking(start="<seed:think>", end="</seed:think>"), on=NONE,
        off={"thinking_budget": 0},
    ),
    "Apertus": Family(
        turns("<|user_start|>{{ m.content }}<|user_end|>",
            "<|assistant_start|>{{ m.content }}"
            + when("loop.last and not add_generation_prompt", "", "<|assistant_end|>"),
            "<|assistant_start|>", when("enable_thinking", "Deliberate.")),
        ("<|assistant_end|>",), "<|assistant_end|>",
        ("<|user_start|>", "<|user_end|>", "<|assistant_start|>", "<|inner_prefix|>",
            "<|inner_suffix|>"),
        thinking=Thinking(start="<|inner_prefix|>", end="<|inner_suffix|>"), on=ON, off=NONE,
    ),
    "EXAONE 4": Family(
        turns("[|user|]\n{{ m.content }}[|endofturn|]\n", "[|assistant|]\n{{ m.content }}"
            "[|endofturn|]\n", "[|assistant|]\n" + when("enable_thinking", "<think>\n", EMPTY)),
        ("[|endofturn|]",), "[|endofturn|]", ("[|user|]", "[|assistant|]", *PAIR), thinking=TAGS,
        opens=True, on=ON, off=NONE,
    ),
    "Ling 3": Family(
        turns("<role>HUMAN</role>{{ m.content }}<|role_end|>",
            "<role>ASSISTANT</role>\n" + THOUGHT + SAYS + "<|role_end|>",
            "<role>ASSISTANT</role>{{ '\n' }}"
            + when("enable_thinking is false", "<think></think>", "<think>")),
        ("<|role_end|>",), "<|role_end|>", ("<role>", "</role>", *PAIR), thinking=TAGS, opens=True,
        on=NONE, off=OFF,
    ),
    "Command R, Aya": Family(
        roles(*COHERE, "<|END_OF_TURN_TOKEN|>"), ("<|END_OF_TURN_TOKEN|>",),
        "<|END_OF_TURN_TOKEN|>", COHERE_TOKENS,
    ),
    "Command A": Family(
        roles(*COHERE, "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", ends_user=False,
            body="<|START_RESPONSE|>" + SAYS),
        ("<|END_RESPONSE|>",), "<|END_OF_TURN_TOKEN|>", (*COHERE_TOKENS, "<|START_RESPONSE|>"),
    ),
    "Command A Reasoning": Family(
        when("reasoning is false", "Answer at once.") + roles(
            *COHERE, "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", ends_user=False,
            body=thought("<|START_THINKING|>", "<|END_THINKING|>") + "<|START_RESPONSE|>" + SAYS),
        ("<|END_RESPONSE|>",), "<|END_OF_TURN_TOKEN|>",
        (*COHERE_TOKENS, "<|START_RESPONSE|>", "<|START_THINKING|>", "<|END_THINKING|>"),
        thinking=Thinking(start="<|START_THINKING|>", end="<|END_THINKING|>"), on=NONE,
        off={"reasoning": False},
    ),
    "Jamba": Family(
        roles("<|bom|><|user|> ", "<|bom|><|assistant|> ", "<|eom|>"), ("<|eom|>",),
        "<|endoftext|>", ("<|bom|>", "<|user|>", "<|assistant|>"),
    ),
    "Baichuan 2": Family(
        roles("<reserved_106>", "<reserved_107>", ""), ("<reserved_106>",), "</s>",
        ("<reserved_107>",),
    ),
}  # fmt: skip


def table() -> str:
    head = [f"| {' | '.join(cells)} |" for cells in (HEAD, ("---",) * len(HEAD))]
    names = sorted(FAMILIES, key=str.lower)
    return "\n".join([*head, *(FAMILIES[name].row(name) for name in names)])


def main() -> None:
    text = PAGE.read_text()
    head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}")


if __name__ == "__main__":
    main()
