"""Attackers cannot fill the log."""

import logging

from motet_serve.http.log import OncePerMinute, bounded_log


def test_each_place_in_the_code_writes_once_a_minute_and_then_says_how_many_were_left_out():
    now = 0.0
    limit = OncePerMinute(lambda: now)

    def written(place, message, *args):
        record = logging.LogRecord("x", logging.WARNING, "file.py", place, message, args, None)
        return record.getMessage() if limit.filter(record) else None

    assert written(1, "late: %d", 1) == "late: 1"
    assert [written(1, "late: %d", k) for k in range(1000)] == [None] * 1000
    assert written(2, "full") == "full"
    now = 59.9
    assert written(1, "late: %d", 2) is None
    now = 60.0
    assert written(1, "late: %d%%", 3) == "late: 3% (1,001 similar messages since the last one)"
    now = 120.0
    assert written(1, "late: %d", 4) == "late: 4"


def test_what_asyncio_and_uvicorn_log_is_bounded_and_left_as_it_was(capsys):
    before = [logging.getLogger(name).propagate for name in ("asyncio", "uvicorn.error")]
    with bounded_log():
        for _ in range(100):
            logging.getLogger("asyncio").error("socket.accept() out of system resource")
            logging.getLogger("uvicorn.error").error("Exception in ASGI application")
            logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "ERROR: socket.accept() out of system resource",
        "ERROR: Exception in ASGI application",
    ]
    assert [logging.getLogger(name).propagate for name in ("asyncio", "uvicorn.error")] == before
