"""The audit chain: what is written verifies, and whatever is done to it afterwards is found."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import msgspec
import pytest

from mainstay.lifecycle import Chain, Event, Move, apply, claim, details_text, story, submit, time_text
from mainstay.model import NO_DIGEST, Job
from mainstay.testing import a_job

NOW = 1_700_000_000_000


def a_history(chain: Chain) -> tuple[Job, list[Event]]:
    """Five events: submitted, claimed, failed, put back, claimed again."""
    made = submit(a_job(), now_ms=NOW, actor="ann", chain=chain, details={"from": "web"})
    taken = claim(made.job, session="s1", now_ms=NOW + 1, chain=chain)
    retry = (Move(to="failed", reason="Größe ≠ 3"), Move(to="pending", reason="retry"))
    failed = apply(taken.job, *retry, now_ms=NOW + 2, actor="s1", chain=chain)
    again = claim(failed.job, session="s2", now_ms=NOW + 3, chain=chain)
    return again.job, [*made.events, *taken.events, *failed.events, *again.events]


def changed(event: Event, **fields: Any) -> Event:
    return msgspec.structs.replace(event, **fields)


@pytest.fixture
def history() -> tuple[Job, list[Event]]:
    return a_history(Chain())


def test_a_history_as_written_is_intact(history: tuple[Job, list[Event]]) -> None:
    assert Chain().first_break(*history) is None


EDITS: list[dict[str, Any]] = [
    {"job_id": "018bcfe5-6800-7000-8000-00000000000f"},
    {"at_ms": 1},
    {"source": "scheduled"},
    {"to": "cancelled"},
    {"actor": "mallory"},
    {"reason": "nothing to see"},
    {"token": 99},
    {"flag": "forced"},
    {"details": '{"from":"cli"}'},
    {"digest": b"\1" * 32},
]


def test_there_is_an_edit_for_every_field_of_an_event() -> None:
    assert {name for edit in EDITS for name in edit} == set(Event.__struct_fields__) - {"seq"}


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: next(iter(edit)))
def test_an_edited_event_is_found_wherever_it_stands(
    history: tuple[Job, list[Event]], edit: dict[str, Any], at: int
) -> None:
    job, events = history
    events[at] = changed(events[at], **edit)

    assert Chain().first_break(job, events) == f"event {at + 1} was changed after it was written"


@pytest.mark.parametrize("at", range(4))
def test_a_missing_event_is_found(history: tuple[Job, list[Event]], at: int) -> None:
    job, events = history
    del events[at]

    assert Chain().first_break(job, events) == f"event {at + 1} is missing"


def test_a_missing_event_is_found_even_if_the_rest_is_renumbered(history: tuple[Job, list[Event]]) -> None:
    job, events = history
    del events[1]
    events = [changed(event, seq=n) for n, event in enumerate(events, 1)]

    assert Chain().first_break(job, events) == "event 2 was changed after it was written"


def test_a_history_cut_off_at_its_end_is_found(history: tuple[Job, list[Event]]) -> None:
    job, events = history

    assert Chain().first_break(job, events[:-1]) == "the last event (4) is not the one the row was sealed with"
    assert Chain().first_break(job, []) == "the last event (0) is not the one the row was sealed with"


def test_an_event_added_behind_the_row_is_found(history: tuple[Job, list[Event]]) -> None:
    job, events = history
    more = apply(job, Move(to="succeeded"), now_ms=NOW, actor="mallory", chain=Chain()).events

    broken = Chain().first_break(job, [*events, *more])

    assert broken == "the last event (6) is not the one the row was sealed with"


def test_events_out_of_order_are_found(history: tuple[Job, list[Event]]) -> None:
    job, events = history
    events[1], events[2] = events[2], events[1]

    assert Chain().first_break(job, events) == "event 2 is missing"
    swapped = [changed(event, seq=n) for n, event in enumerate(events, 1)]
    assert Chain().first_break(job, swapped) == "event 2 was changed after it was written"


def test_an_event_moved_over_from_another_job_is_found(history: tuple[Job, list[Event]]) -> None:
    job, events = history
    other = submit(a_job(id="018bcfe5-6800-7000-8000-000000000002"), now_ms=NOW, actor="ann", chain=Chain())
    events[0] = changed(other.events[0], job_id=job.id)

    assert Chain().first_break(job, events) == "event 1 was changed after it was written"


def test_an_event_with_values_of_the_wrong_type_is_named_and_does_not_raise(history: tuple[Job, list[Event]]) -> None:
    job, events = history
    events[2] = changed(events[2], reason=object())

    assert Chain().first_break(job, events) == "event 3 cannot be read"


@pytest.mark.parametrize("kept_from", range(6))
def test_a_trimmed_history_still_verifies(history: tuple[Job, list[Event]], kept_from: int) -> None:
    job, events = history
    digest = events[kept_from - 1].digest if kept_from else NO_DIGEST
    trimmed = msgspec.structs.replace(job, trimmed_seq=kept_from, trimmed_digest=digest)

    assert Chain().first_break(trimmed, events[kept_from:]) is None


def test_more_trimmed_than_the_row_admits_is_found(history: tuple[Job, list[Event]]) -> None:
    job, events = history
    trimmed = msgspec.structs.replace(job, trimmed_seq=2, trimmed_digest=events[1].digest)

    assert Chain().first_break(trimmed, events[3:]) == "event 3 is missing"
    forged = msgspec.structs.replace(trimmed, trimmed_seq=3)
    assert Chain().first_break(forged, events[3:]) == "event 4 was changed after it was written"


# what the digest is, checked with nothing but the standard library ------------------------------------


def reference_text(event: Event) -> bytes:
    values = list(msgspec.structs.astuple(event)[:-1])
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def test_any_language_can_check_the_chain(history: tuple[Job, list[Event]]) -> None:
    job, events = history
    digest = b"\0" * 32
    for event in events:
        digest = hashlib.sha256(digest + reference_text(event)).digest()
        assert event.digest == digest
    assert job.head == digest


def test_with_a_key_the_digests_are_hmacs() -> None:
    _, events = a_history(Chain(b"secret"))

    assert events[0].digest == hmac.digest(b"secret", b"\0" * 32 + reference_text(events[0]), "sha256")


def test_who_lacks_the_key_can_neither_check_nor_rewrite_a_history() -> None:
    job, events = a_history(Chain(b"secret"))
    assert Chain(b"secret").first_break(job, events) is None

    for stranger in (Chain(), Chain(b"guess")):
        assert stranger.first_break(job, events) == "event 1 was changed after it was written"
        forged_job, forged_events = a_history(stranger)
        assert Chain(b"secret").first_break(forged_job, forged_events) == "event 1 was changed after it was written"


def test_without_a_key_a_history_rewritten_whole_is_not_found() -> None:
    """The limit the documentation names: whoever can write the database can also recompute the chain."""
    job, events = a_history(Chain())
    moved = apply(a_job("running"), Move(to="succeeded"), now_ms=1, actor="mallory", chain=Chain())

    assert moved.job.head != job.head
    assert Chain().first_break(moved.job, list(moved.events)) is None
    assert len(moved.events) < len(events)


# for people -------------------------------------------------------------------------------------------


def test_the_story_is_one_line_per_event(history: tuple[Job, list[Event]]) -> None:
    _, events = history

    assert story(events) == [
        "1. 2023-11-14 22:13:20.000Z new -> pending by ann",
        "2. 2023-11-14 22:13:20.001Z pending -> running by s1",
        "3. 2023-11-14 22:13:20.002Z running -> failed by s1: Größe ≠ 3",
        "4. 2023-11-14 22:13:20.002Z failed -> pending by s1: retry",
        "5. 2023-11-14 22:13:20.003Z pending -> running by s2",
    ]


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        ("note", "1. 1970-01-01 00:00:00.000Z failed: note by ann: why"),
        ("forced", "1. 1970-01-01 00:00:00.000Z running -> failed [forced] by ann: why"),
        ("repair", "1. 1970-01-01 00:00:00.000Z running -> failed [repair] by ann: why"),
    ],
)
def test_what_was_not_an_ordinary_move_says_so_in_the_story(flag: str, line: str) -> None:
    event = Event("j", 1, 0, "running", "failed", "ann", "why", 0, flag, None, NO_DIGEST)

    assert story([event]) == [line]


@pytest.mark.parametrize("absurd", [10**30, -(10**30), None, "soon", float("nan")])
def test_a_time_that_cannot_be_one_is_shown_as_it_is(absurd: Any) -> None:
    assert time_text(absurd) == f"({absurd!r} ms)"


@pytest.mark.parametrize("broken", [None, "{", "[1]", "7", 7])
def test_details_that_cannot_be_read_are_empty(broken: Any) -> None:
    assert Event("j", 1, 0, None, "pending", "ann", None, 0, "", broken, NO_DIGEST).data == {}


def test_details_are_kept_as_json_and_nothing_as_nothing() -> None:
    assert details_text({"a": [1, "ü"]}) == '{"a":[1,"ü"]}'
    assert details_text({}) is None
    assert details_text(None) is None
