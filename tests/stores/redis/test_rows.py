"""Rows as Redis keeps them."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from mainstay.lifecycle import JOB, UNIT, Chain, claim, submit
from mainstay.model import BLANK, IdSource, Job, Options, Progress
from mainstay.model.job import ErrorInfo
from mainstay.stores.open_claim import claim_event
from mainstay.stores.redis.rows import (
    RawRow,
    beside_bytes,
    claim_bytes,
    event_bytes,
    event_from,
    fixed_bytes,
    is_open,
    job_from,
    readable_event,
    readable_job,
    row_bytes,
)
from mainstay.stores.redis.scripts import blob

CHAIN = Chain(b"key")
[JOB_ID] = IdSource(random.Random(1)).take(1_700_000_000_000, 1)
FULL = Job(
    id=JOB_ID,
    kind="task",
    name="mail.send",
    queue="ünïcode",
    parent=JOB_ID,
    unit="u1",
    group=JOB_ID,
    options=Options(run_timeout_s=0.5, stall_timeout_s=2, tags=("a", "b"), metadata={"x": "y"}, keep_s=3),
    key="k",
    unique_key="u",
    concurrency_key="c",
    priority=-5,
    status="running",
    reason="because",
    version=7,
    token=3,
    session="s1",
    starts=1,
    failures=2,
    crashes=3,
    releases=4,
    losses=5,
    created_ms=10,
    changed_ms=11,
    due_ms=12,
    claimed_ms=13,
    started_ms=14,
    settled_ms=15,
    expires_ms=16,
    extra_ms=17,
    error=ErrorInfo(type="ValueError", message="no", retryable=False),
    result=b"\x00\xff",
    head=b"\xfe" * 32,
    trimmed_seq=4,
    trimmed_digest=b"\xfd" * 32,
    lane=0,
    rank=-(1 << 50),
    progress=Progress(done=1, total=2, message="half"),
    progress_ms=18,
    checkpoint=b"\x80 at 7",
    payload=b"\xc1\x00",
)
PLAIN = msgspec.structs.replace(BLANK, id=JOB_ID, name="n")


def raw_of(job: Job) -> RawRow:
    return RawRow(row_bytes(job), fixed_bytes(job), beside_bytes(job))


def open_raw(job: Job, session: str, now_ms: int) -> RawRow:
    """What the script makes of a row that it claims."""
    pair = msgspec.msgpack.decode(row_bytes(job))
    row = pair[0]
    for place, value in ((0, "running"), (1, job.version + 1), (2, job.token + 1), (3, session), (4, 0)):
        row[place] = value
    row[7], row[18], row[19], row[20], row[22], row[24] = False, False, now_ms, now_ms, False, True
    return RawRow(msgspec.msgpack.encode(pair), fixed_bytes(job), beside_bytes(job))


@pytest.mark.parametrize("job", [FULL, PLAIN])
def test_a_job_is_read_as_it_was_stored(job: Job) -> None:
    assert job_from(raw_of(job), CHAIN) == job
    assert readable_job(JOB_ID, raw_of(job), CHAIN) == (job, {})


def test_most_jobs_keep_nothing_beside_their_row() -> None:
    assert beside_bytes(PLAIN) is None


def test_an_open_claim_reads_as_if_its_event_had_been_written() -> None:
    new = submit(PLAIN, now_ms=5, actor="test", chain=CHAIN)
    moved = claim(new.job, session="s1", now_ms=9, chain=CHAIN)

    raw = open_raw(new.job, "s1", 9)

    assert is_open(raw)
    job = job_from(raw, CHAIN)
    assert job == moved.job
    assert (claim_event(job),) == moved.events
    assert claim_bytes(job) == event_bytes(moved.events[0])
    assert CHAIN.first_break(job, [*new.events, claim_event(job)]) is None


def test_a_row_that_was_changed_since_its_claim_is_not_open() -> None:
    assert not is_open(raw_of(FULL))


@pytest.mark.parametrize("table", [JOB, UNIT])
def test_only_pending_rows_are_claimed_so_an_open_claim_came_from_there(table: Any) -> None:
    assert table.named("claimable") == ("pending",)
    assert table.allows("pending", "running")


def test_an_event_is_read_as_it_was_stored() -> None:
    [event] = submit(PLAIN, now_ms=5, actor="test", chain=CHAIN, details={"x": 1}).events
    assert event_from(JOB_ID, event_bytes(event)) == event


@pytest.mark.parametrize(("part", "column"), [("row", "queue"), ("fixed", "payload"), ("beside", "checkpoint")])
@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x92\x90\x90", b"\x93\x00", b"\xff" * 9])
def test_of_a_damaged_part_nothing_is_believed_and_the_rest_is_read(part: str, column: str, damage: bytes) -> None:
    raw = raw_of(FULL)._replace(**{part: damage})
    with pytest.raises((msgspec.MsgspecError, UnicodeError)):
        job_from(raw, CHAIN)

    job, damaged = readable_job(JOB_ID, raw, CHAIN)

    assert set(damaged) == {column}
    assert job.id == JOB_ID
    assert (job.queue == FULL.queue) == (part != "row")
    assert (job.name == FULL.name) == (part != "fixed")
    assert (job.checkpoint == FULL.checkpoint) == (part != "beside")


def test_a_field_that_cannot_be_read_is_named_and_has_a_stand_in() -> None:
    pair = msgspec.msgpack.decode(row_bytes(FULL))
    pair[1][1] = "no json"
    pair[0][5] = "no number"
    job, damaged = readable_job(JOB_ID, raw_of(FULL)._replace(row=msgspec.msgpack.encode(pair)), CHAIN)
    assert set(damaged) == {"error", "rank"}
    assert (job.error, job.rank, job.status) == (None, 0, "running")


def test_a_fixed_part_that_is_gone_is_damage() -> None:
    job, damaged = readable_job(JOB_ID, raw_of(FULL)._replace(fixed=None), CHAIN)
    assert "payload" in damaged
    assert job.status == "running"


def test_a_damaged_event_is_one_that_no_chain_accepts() -> None:
    [event] = submit(PLAIN, now_ms=5, actor="test", chain=CHAIN).events
    stored = event_bytes(event)
    for damage in (b"", b"\x90", stored[:-1], b"\xc1" + stored):
        assert CHAIN.first_break(PLAIN, [readable_event(JOB_ID, damage)]) is not None


@pytest.mark.parametrize("n", [0, 31, 32, 255, 256, 65_535, 65_536])
def test_bytes_of_any_length_go_to_a_script_as_text(n: int) -> None:
    packed = msgspec.msgpack.encode([blob(b"x" * n), 1])
    assert msgspec.msgpack.decode(packed) == ["x" * n, 1]
