"""The sandbox: runs untrusted Python fast, and closed in. docs/sandbox.md says what that promises.

    with Sandbox(minimum=Level.SECCOMP) as sandbox:
        report = sandbox.run_sync(["def double(x): return 2 * x"], [Call("double", (21,))])
        verdict = sandbox.judge_sync(["def double(x): return 2 * x"], Suite.asserts(("assert double(21) == 42",)))
    assert report.calls == (Returned(42),)
    assert verdict.passed

Value mode: a program's functions are called and return plain values; what was expected stays with the host, which compares with
`same`. pool.py holds servers (server.py, one per worker), each forks a child.py per program behind seccomp.py, landlock.py and
namespaces.py; protocol.py is what crosses, report.py what it means.

Test mode: trusted tests (suite.py) judge a program from a process of their own. plan.py compiles them on the host; of the two
processes (trial.py) one runs the tests (judge.py) and sees the program through stand-ins (world.py, standins.py), the other runs
the program and answers (candidate.py); heap.py is how values travel between them; verdict.py reads what the judge wrote.
"""

from motet.sandbox.pool import Sandbox
from motet.sandbox.report import Answer, Call, Failure, Level, Limits, NotRun, Raised, Report, Returned, same
from motet.sandbox.suite import Case, CaseResult, Suite, Verdict

__all__ = [
    "Answer", "Call", "Case", "CaseResult", "Failure", "Level", "Limits", "NotRun", "Raised", "Report", "Returned", "Sandbox",
    "Suite", "Verdict", "same",
]  # fmt: skip
