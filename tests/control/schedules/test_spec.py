"""Describing a schedule, and reading a stored one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from mainstay.control import decoded
from mainstay.control.schedules import read_spec, schedule, spec_bytes
from mainstay.errors import InvalidInput, MainstayError
from mainstay.model import Settings


def test_a_spec_is_read_back_as_it_was_written() -> None:
    spec = schedule(
        "sums",
        "*/5 * * * *",
        "report.sums",
        {"day": "today"},
        tz="Europe/Berlin",
        options={"queue": "reports", "timeout": timedelta(minutes=2), "tags": {"b", "a"}, "priority": None},
        catch_up="all",
        catch_up_limit=7,
        overlap="skip",
    )
    assert read_spec(spec_bytes(spec)) == spec
    assert decoded(spec.payload) == {"day": "today"}
    assert spec.options == {"queue": "reports", "timeout": "120000ms", "tags": ["a", "b"]}


def test_what_a_newer_version_added_is_ignored_and_what_it_left_out_has_its_default() -> None:
    stored = msgspec.msgpack.encode(
        {"name": "sums", "when": {"kind": "every", "text": "", "every_ms": 5000, "colour": "red"}, "task": "t", "x": 1}
    )
    spec = read_spec(stored)
    assert (spec.catch_up, spec.overlap, decoded(spec.payload), spec.options) == ("once", "allow", None, {})


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\x01",
        b"not msgpack at all",
        msgspec.msgpack.encode({"name": "sums"}),
        msgspec.msgpack.encode({"name": "s", "when": {"kind": "lunar", "text": ""}, "task": "t"}),
        msgspec.msgpack.encode({"name": "s", "when": {"kind": "every", "text": ""}, "task": "t", "catch_up_limit": 0}),
    ],
)
def test_a_stored_spec_that_cannot_be_read_says_so(stored: bytes) -> None:
    with pytest.raises(InvalidInput, match="the stored schedule cannot be read: .*register it again, or drop it"):
        read_spec(stored)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": ""}, "schedule"),
        ({"name": "x" * 91}, "schedule"),
        ({"when": "* * *"}, "cron"),
        ({"tz": "Mars/Olympus"}, "tz"),
        ({"task": "no good"}, "task"),
        ({"payload": {"a": object()}}, "payload"),
        ({"catch_up": "maybe"}, "catch_up"),
        ({"catch_up_limit": 0}, "catch_up_limit"),
        ({"catch_up_limit": 1001}, "catch_up_limit"),
        ({"overlap": "queue"}, "overlap"),
        ({"options": {"retrys": 3}}, "retrys"),
        ({"options": {"timeout": 30}}, "timeout"),
        ({"options": {"key": "k"}}, "options.key"),
        ({"options": {"run_at": datetime(2026, 1, 1, tzinfo=UTC)}}, "options.run_at"),
        ({"options": {"queue_deadline": datetime(2026, 1, 1, tzinfo=UTC)}}, "options.queue_deadline"),
        ({"options": {"unique": True, "on_clash": "replace"}}, "options.on_clash"),
        ({"options": {"unique": True}, "overlap": "skip"}, "overlap"),
        ({"options": {"tags": [f"t{n}" for n in range(50)]}}, "tags"),
    ],
)
def test_what_would_fail_at_every_tick_is_refused_at_once(given: dict[str, Any], field: str) -> None:
    good = {"name": "sums", "when": "*/5 * * * *", "task": "report.sums"}
    with pytest.raises(MainstayError) as refused:
        schedule(**{**good, **given})
    assert refused.value.field == field  # type: ignore[attr-defined]


def test_the_payload_limit_is_that_of_the_settings() -> None:
    small = Settings(payload_limit=1024)
    with pytest.raises(InvalidInput, match="payload: .* more than the limit of 1024"):
        schedule("sums", "1h", "report.sums", "x" * 2000, settings=small)
