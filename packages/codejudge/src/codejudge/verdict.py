"""Parse what a judge wrote into a Verdict.

After a test that took too long, the remaining tests run again in another attempt.
"""

import marshal
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from codejudge import imports, plan, protocol
from codejudge.errors import SandboxFault
from codejudge.report import Failure, Limits, refuse_string, unfinished
from codejudge.suite import CaseResult, Status, Suite, Verdict

_LINE_BYTES: Final = 8 << 10
"""Larger than the lines about one test: class and message, 300 characters each, as JSON."""
_MOST_RESTARTS: Final = 3
_EARLY: Final = "the tests were over"
_STATUSES: Final = frozenset({"passed", "failed", "not_run"})


def write(sources: Sequence[str], suite: Suite, limits: Limits) -> bytes:
    """Return the request as bytes.

    Raises ValueError for a suite that has no tests to run, and TypeError for a string in place of
    sources.
    """
    refuse_string(sources)
    if not suite.chosen:
        raise ValueError("the suite runs none of its tests, expected at least one")
    mode = protocol.TOGETHER if suite.together else protocol.APART
    if suite.kind == "asserts":
        # Programs may also use what the set-up imports.
        sources = [plan.imports(suite.source), *sources]
    program = {"sources": list(sources), "modules": imports.named(sources)}
    words = plan.words(suite.text)
    modules = list(dict.fromkeys(name for name, word in imports.known(sources) if word in words))
    room = max(limits.output_bytes, _LINE_BYTES * len(suite.chosen))
    head = protocol.REQUEST.pack(
        limits.wall_seconds, limits.cpu_seconds, limits.memory_mb, room, mode, suite.files
    )
    compiled = plan.compiled(suite.text, suite.entry_point, suite.chosen)
    frames = marshal.dumps(program), marshal.dumps((modules, compiled))
    return head + b"".join(protocol.framed(frame) for frame in frames)


@dataclass(frozen=True)
class JudgeRun:
    """The result of one pair of processes. `results` are by position among the chosen tests."""

    results: dict[int, CaseResult]
    hung: bool
    """Whether a time limit ended one of the processes."""
    failure: Failure | None
    message: str
    seconds: float
    unrun: tuple[str, str] = ("", "")
    """Class and message of what kept the remaining tests from running, if that was not a failure of
    the program.
    """


def judge(suite: Suite, attempt: Callable[[Suite], JudgeRun]) -> Verdict:
    """Judge a suite in several attempts.

    If a time limit ends a test, that test fails with status timeout. The tests that did not run yet
    run again in fresh processes.
    """
    cases, results = suite.cases, dict[int, CaseResult]()
    seconds, failure, message = 0.0, None, ""
    part = suite
    for restarts_left in reversed(range(1 + _MOST_RESTARTS)):
        left = part.chosen
        done = attempt(part)
        seconds += done.seconds
        failure, message = (done.failure, done.message) if done.failure else (failure, message)
        results |= {left[position]: result for position, result in done.results.items()}
        missing = tuple(index for index in left if index not in results)
        if not (done.hung and missing and restarts_left):
            break
        part = suite.choose(missing)
    results |= {index: CaseResult(cases[index].name, "not_run", *done.unrun) for index in missing}
    return Verdict(
        tuple(results[index] for index in suite.chosen), failure, message, suite.together, seconds
    )


def read(reply: bytes, suite: Suite, limits: Limits) -> JudgeRun:
    """Parse a reply into the results of the chosen tests of a suite.

    Raises SandboxFault if the sandbox itself failed.
    """
    late, much, status, cpu, their_status, their_cpu, seconds = protocol.REPLY.unpack_from(reply)
    written = reply[protocol.REPLY.size :]
    cases = suite.cases
    names = [cases[index].name for index in suite.chosen]
    if protocol.READY_LINE.match(written) is None:
        raise SandboxFault(
            f"a judge of the sandbox ended before it ran the program: wait status {status}, "
            f"{seconds:.1f} s, output {written[:300]!r}"
        )
    try:
        results, current, end = _lines(written, names)
    except ValueError as error:
        if not suite.together:
            raise SandboxFault(f"a judge of the sandbox wrote an invalid line: {error}") from error
        results, current, end = (
            {},
            None,
            ("garbled", "", "the program wrote into the results of its tests"),
        )
    if end is None:
        ended = unfinished(late, much, status, cpu, limits, _EARLY)
        bounded = ended[0] in ("timeout", "output") or (suite.files and _killed(status))
        if not suite.together and not bounded:
            raise SandboxFault(
                f"a judge of the sandbox ended early: wait status {status}, {seconds:.1f} s"
            )
        return _cut(results, current, names, ended, seconds)
    kind, first, second = end
    if kind == "fault" and not suite.together:
        raise SandboxFault(f"a judge of the sandbox failed: {first}: {second}")
    if kind == "gone":
        # If the program closed its pipe and continued, the server killed it afterwards.
        ended = unfinished(False, False, their_status, their_cpu, limits, _EARLY)
        return _cut(results, current, names, ended, seconds)
    if kind == "garbled":
        return _cut(
            results,
            current,
            names,
            ("garbled", second or "the program sent an invalid answer"),
            seconds,
        )
    if kind == "program":
        return JudgeRun(results, False, cast(Failure, first), second, seconds)
    return JudgeRun(results, False, None, "", seconds, (first, second))


def _killed(status: int) -> bool:
    """Test whether the process was killed with SIGKILL.

    That happens to programs that overfill a scratch folder, and to all processes that share it.
    """
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _cut(
    results: dict[int, CaseResult],
    current: int | None,
    names: Sequence[str],
    ended: tuple[Failure, str],
    seconds: float,
) -> JudgeRun:
    """Return the result of an attempt in which the program, or its time, ended during test
    `current`.
    """
    failure, message = ended
    if current is None:
        return JudgeRun(results, False, failure, message, seconds)
    status: Status = "timeout" if failure == "timeout" else "failed"
    results = results | {current: CaseResult(names[current], status, failure, message)}
    return JudgeRun(results, failure == "timeout", failure, message, seconds)


def _lines(
    written: bytes, names: Sequence[str]
) -> tuple[dict[int, CaseResult], int | None, tuple[Any, ...] | None]:
    """Return results, the test that had begun and not ended, and the end from the last line.

    Raises ValueError for any other line.
    """
    texts = written.split(b"\n")[:-1]
    if len(texts) > 2 * len(names) + 2:  # check before parsing: a line costs more than its bytes
        raise ValueError(
            f"got {len(texts)} lines for {len(names)} tests, expected at most {2 * len(names) + 2}"
        )
    first, *rest = map(protocol.loads, texts)
    secret = first[0]
    results: dict[int, CaseResult] = {}
    current: int | None = None
    end: tuple[Any, ...] | None = None
    for line in rest:
        match line:
            case _ if end is not None or not isinstance(line, list) or line[:1] != [secret]:
                raise ValueError(repr(line)[:200])
            case [_, protocol.BEGIN, int(index)] if 0 <= index < len(names):
                current = index
            case [_, protocol.DONE, int(index), str(status), str(kind), str(message)] if (
                status in _STATUSES and 0 <= index < len(names) and index not in results
            ):
                results[index] = CaseResult(
                    names[index], cast(Status, status), kind[:300], message[:300]
                )
                current = None
            case [
                _,
                protocol.END,
                None | "suite" | "program" | "gone" | "garbled" | "fault" as how,
                str(kind),
                str(message),
            ]:
                end = how, kind, message[:700]
            case _:
                raise ValueError(repr(line)[:200])
    return results, current, end
