"""Untrusted chat templates and tokenizers give what plain transformers gives, or stop at their
limits.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tokenizers import Regex, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from motet.core import Message
from motet.errors import SamplerFault
from motet.models import bounded_text
from motet.models.bounded_text import TextLimit, chat_text, matching, token_ids
from motet.models.loading import load_tokenizer
from motet.models.prompts import encode
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import TEMPLATE, make_model_folder, make_tokenizer
from tests.fixtures.wide import widely

ROWS = [
    {"role": "system", "content": "Be kind.\n"},
    {"role": "user", "content": "the quick brown fox — 你好 🎼"},
]
PATTERN = (
    r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATES = (
    TEMPLATE,
    "{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}{{ m['role'] | upper }}: "
    "{{ m.content | trim }}\n"
    "{% endfor %}{% if add_generation_prompt %}A:{% endif %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% if ns.n > 1 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}{{ eos_token }}"
    "{% generation %}x{% endgeneration %}{{ strftime_now('%d') | length }}",
)


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer("llama", True, 96, 300)


def with_pattern(tokenizer: PreTrainedTokenizerFast, pattern: str) -> PreTrainedTokenizerFast:
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return tokenizer


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_gives_what_transformers_gives(
    tokenizer: PreTrainedTokenizerFast, template: str
) -> None:
    tokenizer.chat_template = template
    expected = tokenizer.apply_chat_template(ROWS, add_generation_prompt=True, tokenize=False)
    assert chat_text(tokenizer, ROWS) == expected
    chat = tuple(Message(row["role"], row["content"]) for row in ROWS)
    assert list(encode(tokenizer, chat)) == list(
        tokenizer.apply_chat_template(ROWS, add_generation_prompt=True, return_dict=False)
    )


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize(
    "text", ["", "the dog's 12345", "<eos>x<end>", "你好 🎼\n\n  a", "x" * 5000]
)
def test_a_tokenizer_with_patterns_gives_what_transformers_gives(
    tokenizer: PreTrainedTokenizerFast, text: str, special: bool
) -> None:
    with_pattern(tokenizer, PATTERN)
    tokenizer.backend_tokenizer.enable_truncation(3)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    assert bounded_text._described(tokenizer) is not None, "it works in the other process"
    assert (
        token_ids(tokenizer, text, special=special)
        == tokenizer(text, add_special_tokens=special)["input_ids"]
    )


BOMBS = {
    "loops": "{% for a in range(9**5) %}{% for b in range(9**5) %}{% for c in range(9**5) %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "a long text": "{{ 'x' * 10**9 }}",
    "a longer text": "{{ 'x' * 10**12 }}",
    "a growing text": "{% set n = namespace(t='x') %}{% for a in range(99999) %}"
    "{% set n.t = n.t + n.t %}{% endfor %}",
    "a large number": "{{ 9**(9**9) }}",
    "a list": "{{ ([0] * 10**11) | length }}",
    "a macro of itself": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "filters": "{{ ('x' * 10**6) | wordwrap(1) | center(10**9) | indent(10**8) }}",
    "a format": "{{ '%1000000000d' | format(1) }}",
    "only at one text": "{% if 'now' in messages[0].content %}{% for a in range(9**5) %}"
    "{% for b in range(9**5) %}{% endfor %}{% endfor %}{% endif %}fine",
}


@pytest.mark.parametrize("bomb", widely(BOMBS, keep=["loops", "a long text", "only at one text"]))
def test_a_template_that_would_not_end_or_fills_the_memory_ends_at_its_limits(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, bomb: str
) -> None:
    sound = make_tokenizer("llama", True, 96, 300)
    expected = chat_text(sound, ROWS)
    monkeypatch.setattr(bounded_text, "SECONDS", 0.5)
    tokenizer.chat_template = BOMBS[bomb]
    with pytest.raises(SamplerFault, match="the model's chat template"):
        chat_text(tokenizer, [{"role": "user", "content": "now"}])
    assert chat_text(sound, ROWS) == expected, "the next one is answered"


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*$", "(.*)*b", "((a*)*)*c", r"(?:a?){30}a{30}b", r"(\w|\d|a)+;"]
)
def test_a_tokenizers_pattern_that_would_not_end_ends_at_its_limits(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.setattr(bounded_text, "SECONDS", 0.5)
    for made in (with_pattern(tokenizer, pattern), make_tokenizer("llama", True, 96, 300)):
        if made is not tokenizer:
            made.backend_tokenizer.normalizer = normalizers.Replace(Regex(pattern), "x")
        begun = time.process_time()
        with suppress(SamplerFault):
            encode(made, "a" * 20_000 + "!")
        assert time.process_time() - begun < 5.0, "no pattern works in this process"


def test_a_pattern_is_matched_as_python_does_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["model.q_proj", "model.k_proj", "lm_head"]
    assert matching(r".*\.(q|k)_proj", names) == [
        name for name in names if re.fullmatch(r".*\.(q|k)_proj", name)
    ]
    monkeypatch.setattr(bounded_text, "SECONDS", 0.5)
    with pytest.raises(TextLimit, match=facts("pattern … more than … 0.5 s")):
        matching("(a+)+b", ["a" * 40])
    with pytest.raises(SamplerFault, match="the pattern failed"):
        matching("(", names)


@pytest.mark.wide
def test_a_template_that_came_to_its_limits_some_times_is_asked_no_more(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_text, "SECONDS", 0.3)
    tokenizer.chat_template = BOMBS["loops"] + "{# given up #}"
    for _ in range(bounded_text.TRIES):
        with pytest.raises(TextLimit, match="takes more than"):
            chat_text(tokenizer, ROWS)
    with pytest.raises(TextLimit, match="is not called again"):
        chat_text(tokenizer, ROWS)


@pytest.mark.wide
def test_long_texts_give_nothing_up(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one user of a verifier server could make it stop working for all others."""
    monkeypatch.setattr(bounded_text, "SECONDS", 0.05)
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.content | length > 1000 %}{% for i in range(90000) %}"
        "{% for j in range(90000) %}{% endfor %}{% endfor %}{% endif %}{{ m.content }}"
        "{% endfor %}{# long #}"
    )
    long = [{"role": "user", "content": "x" * (bounded_text.LONG + 1)}]
    for _ in range(bounded_text.TRIES + 1):
        with pytest.raises(TextLimit, match="takes more than"):
            chat_text(tokenizer, long)
    monkeypatch.undo()
    assert chat_text(tokenizer, ROWS).startswith("Be kind.")


def test_signals_to_all_processes_of_a_job_fail_no_text(tokenizer: PreTrainedTokenizerFast) -> None:
    chat_text(tokenizer, ROWS)
    process = bounded_text._WORKER._process
    assert process is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
    chat_text(tokenizer, ROWS)
    assert bounded_text._WORKER._process is process


def test_what_a_template_says_when_it_fails_is_not_endless(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokenizer.chat_template = "{{ raise_exception('no' * 10**7) }}"
    with pytest.raises(SamplerFault) as refused:
        chat_text(tokenizer, ROWS)
    assert 1000 < len(str(refused.value)) < 3000


def test_a_machine_that_allows_less_than_the_limits_is_obeyed_and_one_that_allows_too_little_is_named(  # noqa: E501
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = (
        "import resource as r; from motet.models.text_worker import limit\n"
        "r.setrlimit(r.RLIMIT_CPU, (50, 100)); limit(); print(r.getrlimit(r.RLIMIT_CPU))\n"
    )
    said = subprocess.run([sys.executable, "-c", tried], capture_output=True, text=True, check=True)
    if sys.platform == "linux":
        assert said.stdout.strip() == "(50, 50)"
    bounded_text._WORKER.close()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SamplerFault, match=facts("exit code 1 … start … memory")):
        chat_text(tokenizer, ROWS)


def worker_pid() -> int:
    process = bounded_text._WORKER._process
    assert process is not None
    return process.pid


def test_a_process_that_ended_between_two_texts_is_no_fault_of_a_text(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    with_pattern(tokenizer, PATTERN)
    expected, prompt = token_ids(tokenizer, "the dog"), chat_text(tokenizer, ROWS)
    counted = bounded_text._WORKER._over.copy()
    for ask, was in ((token_ids, expected), (chat_text, prompt)):
        os.kill(worker_pid(), signal.SIGKILL)
        os.waitid(os.P_PID, worker_pid(), os.WEXITED | os.WNOWAIT)
        assert (
            ask(tokenizer, "the dog" if ask is token_ids else ROWS)  # type: ignore[arg-type]
            == was
        )
    assert bounded_text._WORKER._over == counted


def test_a_process_that_forks_keeps_its_worker_for_itself(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    with_pattern(tokenizer, PATTERN)
    expected, mine = token_ids(tokenizer, "the dog"), worker_pid()
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):
            code = int(token_ids(tokenizer, "the dog") != expected or worker_pid() == mine)
            bounded_text._WORKER.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert token_ids(tokenizer, "the dog") == expected
    assert worker_pid() == mine


def test_the_same_tokenizer_is_learnt_once_and_too_many_do_not_fill_the_memory(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded_text._WORKER.close()
    for made in (tokenizer, make_tokenizer("llama", True, 96, 300)):
        token_ids(with_pattern(made, PATTERN), "the dog")
    assert len(bounded_text._WORKER._learnt) == 1
    first = worker_pid()
    other = with_pattern(make_tokenizer("llama", True, 96, 290), PATTERN)
    expected = token_ids(other, "the dog")
    assert worker_pid() == first
    monkeypatch.setattr(bounded_text, "_MOST_LEARNT", 1)
    one_more = with_pattern(make_tokenizer("llama", True, 96, 280), PATTERN)
    token_ids(one_more, "the dog")
    assert worker_pid() != first
    assert len(bounded_text._WORKER._learnt) == 1
    assert token_ids(other, "the dog") == expected


@pytest.mark.skipif(
    sys.platform != "linux", reason="limits of processors' seconds are Linux's here"
)
def test_a_process_whose_parent_was_killed_ends_and_one_that_is_used_long_is_replaced(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_text(tokenizer, ROWS)
    first = worker_pid()
    (limit,) = re.findall(r"Max cpu time +(\d+)", Path(f"/proc/{first}/limits").read_text())
    most = max(bounded_text.SECONDS, bounded_text.LEARN_SECONDS)
    assert bounded_text._RENEWED + most < int(limit) < 3600
    assert os.getsid(first) == first, "Ctrl-C is not sent to it"
    monkeypatch.setattr(bounded_text, "_RENEWED", 0.0)
    chat_text(tokenizer, ROWS)
    assert worker_pid() != first


def test_a_text_that_spells_a_token_without_an_embedding_is_a_fault(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    known = len(tokenizer)
    tokenizer.add_tokens(["<picture>"])
    assert token_ids(tokenizer, "the <picture>")[-1] == known
    bounded_text.limit_tokens(tokenizer, known)
    assert token_ids(tokenizer, "the dog")
    with pytest.raises(SamplerFault, match=facts("'<picture>' … token … without an embedding")):
        encode(tokenizer, (Message("user", "the <picture>"),))


def test_what_escapes_jinja_meets_no_file_no_network_and_no_process(tmp_path: Path) -> None:
    """Test the lock of the process itself, without jinja's sandbox."""
    from codejudge import seccomp

    if seccomp._PROGRAMS["nothing"] is None:
        pytest.skip("no system call filter on this machine")
    place = Path(bounded_text.__file__).with_name("text_worker.py")
    tried = (
        f"import sys, os, socket; sys.path.insert(0, {str(place.parents[2])!r})\n"
        "from motet.models.text_worker import lock\nlock()\n"
        f"for tried in (lambda: open('/etc/passwd'), lambda: open({str(tmp_path / 'x')!r}, 'w'), "
        "socket.socket, os.fork,\n"
        "              lambda: os.kill(os.getppid(), 0), lambda: os.listdir('/'), lambda: "
        "os.execv('/bin/true', ['x'])):\n"
        "    try: tried()\n"
        "    except OSError as error: print('refused', flush=True)\n"
        "    else: print('done', flush=True)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", tried], capture_output=True, text=True, check=False
    )
    assert said.stdout.split() == ["refused"] * 7, said.stderr


def test_the_template_of_a_folder_works_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process never compiles an untrusted template."""
    from transformers.utils import chat_template_utils

    def never(*_: object) -> None:
        raise AssertionError("compiled here")

    monkeypatch.setattr(chat_template_utils, "_compile_jinja_template", never)
    folder = make_model_folder(tmp_path / "m", chat_template=True)
    said = (
        json.loads((folder / "tokenizer_config.json").read_text())
        if (folder / "chat_template.jinja").is_file()
        else {}
    )
    assert "chat_template" not in said
    tokenizer, _ = load_tokenizer(folder)
    assert encode(tokenizer, (Message("user", "hello"),))
