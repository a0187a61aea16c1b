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
