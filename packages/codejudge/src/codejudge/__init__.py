"""Sandbox: run untrusted Python programs fast in isolated processes.

README.md says how to use it, and docs/reference.md beside it what the isolation guarantees.

    program = "def double(x): return 2 * x"
    with Sandbox(minimum=Level.SECCOMP) as sandbox:
        report = sandbox.run_sync([program], [Call("double", (21,))])
        verdict = sandbox.judge_sync([program], Suite.asserts(("assert double(21) == 42",)))
    assert report.calls == (Returned(42),)
    assert verdict.passed

Value mode (`run`): the sandbox calls the program's functions, and they return plain values. The
expected values stay in the host process, which compares them with `same`.

- pool.py keeps a pool of server processes, one per worker.
- server.py is one server. It forks one child process (child.py) per program.
- seccomp.py, landlock.py and namespaces.py lock the child down.
- protocol.py defines the messages between the processes. report.py turns them into a Report.

Test mode (`judge`): trusted tests (suite.py) test a program from a separate process.

- plan.py compiles the tests on the host.
- trial.py runs two processes per program: the judge and the candidate.
- The judge (judge.py) runs the tests. It uses the program's objects through proxies, called
  stand-ins (candidate_client.py, standins.py, standin_roots.py). The program may use
  what the tests pass to it (lending.py).
- The candidate (candidate.py) runs the program and answers the judge's requests. It uses the
  functions and classes of the tests through proxies (borrowed.py).
- object_table.py transfers values between the two.
- verdict.py turns the judge's output into a Verdict.
"""

from codejudge.errors import SandboxError, SandboxFault
from codejudge.pool import Sandbox
from codejudge.report import (
    Call,
    CallResult,
    Failure,
    Level,
    Limits,
    NotRun,
    Raised,
    Report,
    Returned,
    same,
)
from codejudge.suite import Case, CaseResult, Suite, Verdict

__all__ = [
    "Call",
    "CallResult",
    "Case",
    "CaseResult",
    "Failure",
    "Level",
    "Limits",
    "NotRun",
    "Raised",
    "Report",
    "Returned",
    "Sandbox",
    "SandboxError",
    "SandboxFault",
    "Suite",
    "Verdict",
    "same",
]  # fmt: skip
