"""Parse a JSON body into a pydantic model, in bounded time."""

import re
from itertools import islice
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from motet_serve.http.refusals import Refusal

MOST_PARTS = 2**18
"""Maximum number of strings, objects, arrays and commas in one request: about 37,000 messages. A
parser needs far more time and memory for many small values than for long strings.
"""
_PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[{\[,]', re.DOTALL)
"""Matches in linear time and constant memory, even if a string is cut off."""
TEXT, LIST = "(text)", "(list)"
"""Tags of the forms that one field may have. They are left out of the field's name."""
JsonBody = TypeVar("JsonBody", bound=BaseModel)


def parsed(kind: type[JsonBody], body: bytes, wrong_form: int) -> JsonBody:
    """Parse a body.

    Raises: Refusal 400 if the body is not JSON, 413 if it has too many values, and `wrong_form` if
    it does not have the expected fields.
    """
    _check_parts(body)
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        first, more = problems[0], len(problems) - 1
        if first["type"] == "json_invalid":
            raise Refusal(400, "no_json", f"the body is not JSON: {first['msg']}") from error
        where = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}"
            for part in first["loc"]
            if part not in (TEXT, LIST)
        ).lstrip(".")
        others = f" (and {more} more)" if more else ""
        raise Refusal(
            wrong_form,
            "not_expected",
            f"{where or 'the body'}: {first['msg']}{others}",
            field=where or None,
        ) from error


def _check_parts(body: bytes) -> None:
    """Refuse a body that would take the parser seconds, because all other requests wait meanwhile.

    Raises: Refusal.
    """
    if next(islice(_PART.finditer(body), MOST_PARTS, None), None) is not None:
        raise Refusal(
            413,
            "too_large",
            f"the body has more than {MOST_PARTS:,} values: ask for fewer answers at a time",
        )
