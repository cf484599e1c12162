"""The tool `python`: code of a model, run in the sandbox."""

import re
from collections.abc import Mapping
from typing import Any

from codejudge import Call, Raised, Report, Returned, Sandbox
from motet.user_code.tool_runs import ToolError

_RUN = "motet_run"
_RUNNER = f"""
import ast, contextlib, io

def {_RUN}(code):
    out, failed = io.StringIO(), ""
    space = {{"__name__": "__main__"}}
    with contextlib.redirect_stdout(out):
        try:
            body = ast.parse(code).body
            last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), "<code>", "exec"), space)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "<code>", "eval"), space)
                if value is not None:
                    print(repr(value))
        except BaseException as error:
            line, at = getattr(error, "lineno", None), error.__traceback__
            while at is not None:
                if at.tb_frame.f_code.co_filename == "<code>":
                    line = at.tb_lineno
                at = at.tb_next
            failed = f"{{type(error).__name__}}: {{error}}" + (f" (line {{line}})" if line else "")
    return [out.getvalue(), failed]
"""
_BREAK = re.compile(r"\r\n|\r|\n")


class PythonTool:
    """Runs a program in the sandbox, with its limits. The result is what it prints, and the value
    of its last line if that is an expression."""

    name = "python"
    description = (
        "Runs Python code and returns what it prints, and the value of its last line. Each call is "
        "a new program, without files and network."
    )
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The program."}},
        "required": ["code"],
        "additionalProperties": False,
    }

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def __call__(self, code: str) -> str:
        """Raises: ToolError if the program fails, SandboxFault if the sandbox does."""
        # The sandbox imports what the sources name, and afterwards nothing can be imported.
        named = "\n".join(f"# {line}" for line in _BREAK.split(code.replace("\0", " ")))
        return shown(await self._sandbox.run([_RUNNER, named], [Call(_RUN, (code,))]))


def shown(report: Report) -> str:
    """Return what a program printed. Raises: ToolError."""
    said = report.calls[0] if report.calls else None
    match said:
        case Returned([str(out), str(failed)]):
            if not failed:
                return out or "(it printed nothing)"
            raise ToolError(f"{failed}\n{out}" if out else failed)
        case Raised(kind, message):
            raise ToolError(f"{kind}: {message}")
    how = report.failure or "it ended"
    raise ToolError(f"{how}: {report.message}" if report.message else how)
