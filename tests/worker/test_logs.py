"""What a worker's lines look like, to people and to machines."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from mainstay.errors import InvalidInput
from mainstay.worker import logs


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("mainstay.job", logging.WARNING, __file__, 1, message, (), None)
    vars(made).update(extra)
    return made


def test_the_fields_of_a_job_follow_the_message() -> None:
    line = logs.PlainLines().format(record("sent", job_id="7", job_name="mail.send", attempt=2, to="a b"))

    assert line.endswith("warning mainstay.job sent job_id=7 job_name=mail.send attempt=2 to='a b'")


def test_the_text_of_an_error_cannot_forge_a_line_or_control_a_terminal() -> None:
    forged = "no such\n2026-01-01 00:00:00 info mainstay.worker all is well\r\x1b[2J\x00\u2028\x9b1m"
    line = logs.PlainLines().format(record(forged, job_id="7", why="a\x1b[1mb"))

    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert r"no such\n2026-01-01" in line
    assert r"\r\x1b[2J\x00\u2028\x9b1m" in line
    assert r"why='a\x1b[1mb'" in line


def test_no_line_of_a_traceback_can_pass_for_a_record() -> None:
    try:
        raise ValueError("no such\n2026-01-01 00:00:00 info mainstay.worker all is well\x1b[2J")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()

    first, *rest = logs.PlainLines().format(made).splitlines()

    assert first.endswith("warning mainstay.job failed")
    assert rest[-1] == r"  | 2026-01-01 00:00:00 info mainstay.worker all is well\x1b[2J"
    assert all(line.startswith("  | ") and line.isprintable() for line in rest)


def test_json_has_the_fields_beside_the_message_and_a_traceback_as_text() -> None:
    try:
        raise ValueError("no such address")
    except ValueError:
        made = record("failed", job_id="7", odd={1, 2})
        made.exc_info = sys.exc_info()

    told = json.loads(logs.JsonLines().format(made))

    assert (told["message"], told["level"], told["logger"], told["job_id"]) == (
        "failed",
        "warning",
        "mainstay.job",
        "7",
    )
    assert told["traceback"].endswith("ValueError: no such address")
    assert "\n" not in logs.JsonLines().format(made)


def test_an_odd_extra_does_not_lose_the_line() -> None:
    assert json.loads(logs.JsonLines().format(record("odd", what=object())))["message"] == "odd"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(InvalidInput, match="log-level: 'loud' is not one of debug, info, warning, error"):
        logs.configure("loud")
