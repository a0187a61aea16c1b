"""Each kind of damage, planted by raw SQL in a real file, is found, told, mended, and then gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import apsw
import msgspec
import pytest

from mainstay.control import Control
from mainstay.control.check import check
from mainstay.errors import StoreDamaged
from mainstay.lifecycle import Event
from mainstay.lifecycle.invariants import payload_sha256
from mainstay.model import Lane, Options
from mainstay.stores.boot import boot_id

from .conftest import Files


class Damage(NamedTuple):
    what: str
    name: str
    """whose row is damaged"""
    plant: Callable[[Files], None]
    code: str
    status: str | None
    """where the repair leaves it; None: where it stood"""


def row(what: str, name: str, code: str, ends: str | None = None, /, **columns: object) -> Damage:
    return Damage(what, name, lambda files: files.set(name, **columns), code, ends)


def event(what: str, name: str, seq: int, code: str, /, **columns: object) -> Damage:
    return Damage(what, name, lambda files: files.set_event(name, seq, **columns), code, None)


def forged(what: str, name: str, code: str, status: str | None, *steps: dict[str, object], **columns: object) -> Damage:
    return Damage(what, name, lambda files: files.forge(name, *steps, **columns), code, status)


def sql(what: str, name: str, code: str, statement: str, status: str | None = None) -> Damage:
    return Damage(what, name, lambda files: _run(files, statement, name), code, status)


def _run(files: Files, statement: str, name: str) -> None:
    files.sql(statement, *[files.ids[name]] * statement.count("?"))


FAR_MS = 32_503_680_000_001
YEAR_2053 = 2_646_684_800_000
OTHER_OPTIONS = msgspec.msgpack.encode(Options(run_timeout_s=5.0))
LOST_ALL = "DELETE FROM events WHERE job_id = ?"

DAMAGES = [
    # status
    row("unknown status of a waiting job", "pending", "unknown_status", status="pend1ng"),
    row("unknown status of a running job", "running", "unknown_status", status="RUNNING"),
    row("unknown status of a final job", "succeeded", "unknown_status", status=""),
    row("unknown status of a unit", "unit", "unknown_status", status="scheduled"),
    row("a finished job set to run again", "succeeded", "status_mismatch", status="pending"),
    row("a waiting job said to be running", "pending", "status_mismatch", status="running"),
    row("a running job said to be waiting", "running", "status_mismatch", status="pending"),
    row("a quarantined job said to have failed", "quarantined", "status_mismatch", status="failed"),
    row("a waiting job said to have succeeded", "pending", "status_mismatch", "succeeded", status="succeeded"),
    # claims
    row("running under a session nobody knows", "running", "dead_claim", "pending", session="ghost"),
    row("running under nobody", "running", "dead_claim", "pending", session=None),
    row("settled with a claim", "succeeded", "stray_claim", session="s1", claimed_ms=1_700_000_000_000),
    row("waiting with a claim", "pending", "stray_claim", session="s1"),
    row("quarantined with a start", "quarantined", "stray_claim", started_ms=1_700_000_000_000),
    # the trail
    event("an edited reason", "succeeded", 2, "broken_chain", reason="it was not me"),
    event("an edited time", "pending", 1, "broken_chain", at_ms=1_600_000_000_000),
    event("an edited actor", "running", 2, "broken_chain", actor="somebody else"),
    event("an edited target", "retried", 3, "broken_chain", to="timed_out"),
    event("an edited digest", "quarantined", 1, "broken_chain", digest=b"\1" * 32),
    event("unreadable details", "quarantined", 1, "broken_chain", details="{"),
    sql("a missing first event", "succeeded", "broken_chain", "DELETE FROM events WHERE job_id = ? AND seq = 1"),
    sql("a missing middle event", "running", "broken_chain", "DELETE FROM events WHERE job_id = ? AND seq = 1"),
    sql("a missing last event", "succeeded", "status_mismatch", "DELETE FROM events WHERE job_id = ? AND seq = 3"),
    sql(
        "a missing last event of a waiting job",
        "retried",
        "status_mismatch",
        "DELETE FROM events WHERE job_id = ? AND seq = 4",
        "quarantined",
    ),
    row("an edited head", "running", "broken_chain", head=b"\2" * 32),
    row("a short head", "pending", "broken_chain", head=b"short"),
    row("an edited anchor", "retried", "broken_chain", trimmed_digest=b"\3" * 32),
    row("an anchor beyond the last event", "retried", "version", trimmed_seq=99),
    row("a negative anchor", "pending", "version", trimmed_seq=-1),
    sql("a job with no events", "pending", "no_events", LOST_ALL),
    sql("a finished job with no events", "succeeded", "no_events", LOST_ALL),
    forged("a move the table forbids", "scheduled", "illegal_move", "validating", {"to": "validating"}, session="s1"),
    forged("an unknown flag", "pending", "illegal_move", "pending", {"to": "pending", "flag": "magic"}),
    forged("a note that moves", "pending", "illegal_move", "scheduled", {"to": "scheduled", "flag": "note"}, lane=2),
    forged("an event from elsewhere", "pending", "illegal_move", "pending", {"source": "failed", "to": "pending"}),
    forged(
        "a tombstone of a job that is there",
        "cancelled",
        "illegal_move",
        None,
        {"to": "cancelled", "flag": "tombstone"},
    ),
    forged(
        "a final job moved by force", "cancelled", "after_final", "quarantined", {"to": "pending", "flag": "forced"}
    ),
    forged(
        "a final job that ended twice",
        "cancelled",
        "after_final",
        "succeeded",
        {"to": "running"},
        {"to": "succeeded"},
    ),
    # numbers
    row("a version set back", "quarantined", "version", version=2),
    row("a version set ahead", "succeeded", "version", version=1000),
    row("an absurd version", "pending", "version", version=2**62),
    row("a token set back", "running", "token", token=0),
    row("a token set ahead", "retried", "token", token=9),
    forged(
        "a token running backwards in the trail",
        "retried",
        "token",
        None,
        {"to": "scheduled", "flag": "note", "token": 0},
    ),
    row("failures set back", "quarantined", "counters", failures=1),
    row("more failures than claims", "retried", "counters", failures=50),
    row("negative failures", "retried", "counters", failures=-1),
    row("more starts than claims", "succeeded", "counters", starts=7),
    row("fewer starts than failures", "quarantined", "counters", starts=0),
    row("negative crashes", "pending", "counters", crashes=-5),
    row("absurd releases", "pending", "counters", releases=2**60),
    row("more losses than releases", "pending", "counters", losses=1),
    row("a priority out of range", "pending", "submit_changed", priority=101),
    row("a priority far below the range", "scheduled", "submit_changed", priority=-(2**40)),
    row("a negative extension", "running", "bad_number", extra_ms=-1),
    # times
    row("created before 1970", "pending", "bad_time", created_ms=-1),
    row("created in the future", "pending", "bad_time", created_ms=1_900_000_000_000),
    row("changed after the year 3000", "succeeded", "bad_time", changed_ms=FAR_MS),
    row("due after the year 3000", "pending", "bad_time", due_ms=FAR_MS, rank=FAR_MS),
    row("a schedule nobody knows any more", "scheduled", "bad_time", "quarantined", due_ms=-5, rank=-5),
    row("started before 1970", "running", "bad_time", started_ms=-(2**50)),
    row("watched before 1970", "running", "bad_time", expires_ms=-1),
    row("settled in the future", "succeeded", "bad_time", settled_ms=1_900_000_000_000),
    row("settled with no time of it", "succeeded", "settled_time", settled_ms=None),
    row("waiting with a time of settling", "pending", "settled_time", settled_ms=1_700_000_000_000),
    # content
    row("an undecodable payload of a waiting job", "pending", "bad_payload", "quarantined", payload=b"\xc1"),
    row("an undecodable payload of a running job", "running", "bad_payload", payload=b"\xc1"),
    row("an undecodable payload of a finished job", "succeeded", "bad_payload", payload=b""),
    row("an undecodable payload of a unit", "unit", "bad_payload", "cancelled", payload=b"\xc1"),
    row("another payload", "pending", "payload_changed", "quarantined", payload=b"\x80"),
    row("another payload of a finished job", "succeeded", "payload_changed", payload=b"\x80"),
    row("another task", "pending", "submit_changed", "quarantined", name="work.other"),
    row("another queue", "pending", "submit_changed", "quarantined", queue="elsewhere"),
    row("another queue of a finished job", "succeeded", "submit_changed", queue="elsewhere"),
    row("other options", "pending", "submit_changed", "quarantined", options=OTHER_OPTIONS),
    row("other options of a running job", "running", "submit_changed", options=OTHER_OPTIONS),
    row("a unique key that was not asked for", "scheduled", "submit_changed", "quarantined", unique_key="work.do/x"),
    row("a concurrency key that is gone", "blocked", "submit_changed", "quarantined", concurrency_key=None, lane=1),
    row("another idempotency key", "retried", "submit_changed", "quarantined", key="k"),
    row("another priority", "pending", "submit_changed", priority=50, rank=1),
    row("another result", "succeeded", "result_changed", result=b"\x2a"),
    row("a result that is gone", "succeeded", "result_changed", result=None),
    row("a result of a job that never answered", "cancelled", "result_changed", result=b"\x2a"),
    row("an undecodable result", "succeeded", "bad_result", result=b"\xc1\xff"),
    row("created earlier", "pending", "created_time", created_ms=1_600_000_000_000),
    row("created a second later", "succeeded", "created_time", created_ms=1_700_000_002_000),
    row("settled years ago", "succeeded", "settled_time", settled_ms=1_500_000_000_000),
    row("kept for a moment only", "quarantined", "settled_time", expires_ms=1_700_000_000_000),
    row("due in thirty years", "pending", "due_changed", due_ms=YEAR_2053),
    row("due in thirty years, with the rank of it", "pending", "due_changed", due_ms=YEAR_2053, rank=YEAR_2053),
    row("due sooner", "scheduled", "due_changed", due_ms=1_700_000_000_001),
    row("undecodable options", "pending", "unreadable", "quarantined", options=b"\xff\x00"),
    row("undecodable options of a finished job", "succeeded", "unreadable", options=b""),
    row("an undecodable error", "quarantined", "unreadable", error="{not json"),
    row("undecodable progress", "running", "unreadable", progress="[1, 2]"),
    # place
    row("waiting in no lane", "pending", "wrong_lane", lane=Lane.NONE),
    row("set aside for no reason", "pending", "wrong_lane", lane=Lane.ASIDE),
    row("finished, but in the ready lane", "succeeded", "wrong_lane", lane=Lane.READY),
    row("a lane that does not exist", "running", "wrong_lane", lane=77),
    row("blocked without a key", "pending", "wrong_lane", lane=Lane.BLOCKED),
    row("a rank ahead of everybody", "pending", "wrong_rank", rank=-(2**62)),
    row("an orphan unit", "unit", "orphan_unit", "cancelled", parent="018bcfe5-6800-7000-8000-ffffffffffff"),
]


async def test_the_undamaged_file_is_clean(files: Files) -> None:
    report = await files.check()

    assert report.violations == ()
    assert report.notices == ()
    assert report.checked == len(files.ids)


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.what for damage in DAMAGES])
async def test_damage_is_found_and_mended_and_told(files: Files, damage: Damage) -> None:
    stood = (await files.row(damage.name)).status
    damage.plant(files)

    found = await files.check()
    assert damage.code in files.codes(found, damage.name)
    assert {each.job_id for each in found.violations} <= {files.ids[damage.name], None}
    assert not found.clean

    mended = await files.check(repair=True)
    assert mended.clean, mended.remaining
    assert all(each.repaired for each in mended.violations)

    again = await files.check()
    assert again.violations == ()
    assert (await files.row(damage.name)).status == (damage.status or stood)
    assert damage.code in _told(await files.events(damage.name))


def _told(events: list[Event]) -> set[str]:
    """The codes that repair events speak of."""
    return {code for event in events if event.flag == "repair" for code in event.data.get("found", ())}


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.what for damage in DAMAGES])
async def test_a_check_without_repair_changes_nothing(files: Files, damage: Damage) -> None:
    damage.plant(files)
    before = files.sql("SELECT * FROM jobs ORDER BY id"), files.sql("SELECT * FROM events ORDER BY job_id, seq")

    await files.check()

    assert (
        files.sql("SELECT * FROM jobs ORDER BY id"),
        files.sql("SELECT * FROM events ORDER BY job_id, seq"),
    ) == before


async def test_a_status_of_a_newer_version_is_shown_and_left_alone(files: Files) -> None:
    files.forge("scheduled", {"to": "hibernating"}, lane=0)
    files.sql("UPDATE tallies SET status = 'hibernating' WHERE queue = 'scheduled'")

    report = await files.check(repair=True)

    assert report.violations == ()
    assert [(notice.code, notice.job_id) for notice in report.notices] == [("newer_status", files.ids["scheduled"])]
    assert (await files.row("scheduled")).status == "hibernating"


async def test_a_newer_status_that_was_overwritten_is_restored(files: Files) -> None:
    files.forge("scheduled", {"to": "hibernating"}, lane=0)
    files.set("scheduled", status="bogus")

    assert (await files.check(repair=True)).clean

    assert (await files.row("scheduled")).status == "hibernating"
    assert [notice.code for notice in (await files.check()).notices] == ["newer_status"]


async def test_old_events_stay_visible_when_a_broken_chain_is_set_aside(files: Files) -> None:
    before = await files.events("quarantined")
    files.set_event("quarantined", 2, reason="edited")

    await files.check(repair=True)

    after = await files.events("quarantined")
    assert [event.seq for event in after] == [event.seq for event in before] + [before[-1].seq + 1]
    assert after[-1].data["set_aside_through"] == before[-1].seq
    assert after[1].reason == "edited"
    # and what comes later is checked again
    files.set_event("quarantined", after[-1].seq, actor="mallory")
    assert "broken_chain" in files.codes(await files.check(), "quarantined")


async def test_the_payload_stays_sealed_when_its_first_event_is_set_aside(files: Files) -> None:
    files.set_event("pending", 1, reason="edited")
    await files.check(repair=True)

    files.set("pending", payload=b"\x80")

    assert "payload_changed" in files.codes(await files.check(), "pending")


async def test_a_final_row_is_never_moved_by_a_repair(files: Files) -> None:
    files.set("succeeded", payload=b"\xc1", session="s1", version=99, settled_ms=None, lane=1, failures=-3)
    files.set_event("succeeded", 1, reason="edited")

    assert (await files.check(repair=True)).clean

    row = await files.row("succeeded")
    assert (row.status, row.session, row.lane, row.failures) == ("succeeded", None, Lane.NONE, 0)
    assert row.settled_ms is not None


async def test_accepted_damage_is_reported_again_when_it_changes(files: Files) -> None:
    files.set("succeeded", payload=b"\xc1")
    await files.check(repair=True)
    [accepted] = [event for event in await files.events("succeeded") if event.flag == "repair"]
    assert "bad_payload" in accepted.data["accepted"]

    files.set("succeeded", payload=b"\xc1\xc1")

    assert "bad_payload" in files.codes(await files.check(), "succeeded")


async def test_a_held_back_job_is_reported_again_when_somebody_sends_it_to_run(files: Files) -> None:
    files.set("pending", payload=b"\xc1")
    await files.check(repair=True)
    row = await files.row("pending")
    assert row.status == "quarantined"

    files.forge("pending", {"to": "pending"}, settled_ms=None, lane=1)

    assert "bad_payload" in files.codes(await files.check(), "pending")


async def test_a_live_holder_keeps_its_job_whatever_is_mended(files: Files) -> None:
    before = await files.row("running")
    files.set("running", payload=b"\xc1", version=50, failures=9, lane=1)

    await files.check(repair=True)

    after = await files.row("running")
    assert (after.status, after.session, after.token) == ("running", before.session, before.token)
    assert (after.started_ms, after.starts, after.failures) == (before.started_ms, before.starts, 0)


async def test_a_started_job_taken_back_counts_a_start_and_one_not_started_none(files: Files) -> None:
    files.set("running", session="ghost")
    files.set("first", session="ghost")

    assert (await files.check(repair=True)).clean

    started, waiting = await files.row("running"), await files.row("first")
    assert (started.status, started.crashes, started.releases, started.losses) == ("pending", 0, 1, 1)
    assert [event.to for event in await files.events("running")][-2:] == ["timed_out", "pending"]
    assert (waiting.crashes, waiting.releases, waiting.losses) == (0, 1, 1)
    assert (started.starts, waiting.starts) == (1, 0)
    assert all(event.flag == "repair" for event in (await files.events("running"))[-2:])


async def test_a_parent_without_owner_runs_on_while_a_unit_is_open(files: Files) -> None:
    files.set("parent", session=None, claimed_ms=None, started_ms=None)
    assert files.codes(await files.check(), "parent") == set()

    files.sql("UPDATE jobs SET parent = ? WHERE parent = ?", files.ids["pending"], files.ids["parent"])

    assert files.codes(await files.check(), "parent") == {"dead_claim"}


async def test_a_session_that_just_fell_silent_is_the_sweepers_business(files: Files) -> None:
    files.sql("UPDATE sessions SET lease_s = 8, beat_ms = ?", files.clock.lease_ms())
    files.clock.advance(9)

    soon = await files.check(repair=True)
    assert soon.violations == ()
    assert {notice.code for notice in soon.notices} == {"silent_holder"}

    files.clock.advance(120)
    assert "dead_claim" in files.codes(await files.check(), "running")


async def test_a_standing_session_keeps_its_jobs_however_long_it_is_silent(files: Files) -> None:
    files.sql("UPDATE sessions SET lease_s = 8, beat_ms = ?", files.clock.lease_ms())
    async with files.store() as store:
        for session in await store.sessions():
            await store.open_session(msgspec.structs.replace(session, standing=True))
    files.clock.advance(3600)

    found = await files.check(repair=True)

    assert (found.violations, found.notices) == ((), ())


async def test_restoring_a_job_whose_unique_key_was_taken_holds_it_back_instead(files: Files) -> None:
    # while the file said that the waiting job was settled, another took its key
    async with files.store() as store:
        control = Control(store)
        files.ids["scheduled"] = (await control.jobs.submit("work.do", {}, unique="only", delay="1h")).id
        files.set("scheduled", status="failed", settled_ms=1)
        files.ids["pending"] = (await control.jobs.submit("work.do", {}, unique="only")).id

    assert (await files.check(repair=True)).clean

    assert (await files.check()).violations == ()
    assert (await files.row("scheduled")).status == "quarantined"
    assert (await files.row("pending")).status == "pending"


async def test_everything_at_once_is_mended_in_one_repair(files: Files) -> None:
    for damage in DAMAGES:
        if damage.code not in ("after_final", "illegal_move", "token"):  # forged events need an intact trail
            damage.plant(files)

    found = await files.check()
    assert len(found.violations) > 20
    assert (await files.check(repair=True)).clean
    assert (await files.check()).violations == ()


async def test_the_engines_own_findings_are_in_the_report(files: Files) -> None:
    files.sql("UPDATE tallies SET n = n + 5 WHERE queue = 'pending'")
    files.sql("UPDATE events SET job_id = 'nobody' WHERE job_id = ?", files.ids["other_unit"])
    files.sql("DELETE FROM jobs WHERE id = ?", files.ids["other_unit"])
    files.sql("UPDATE jobs SET session = NULL, status = 'pending', lane = 2 WHERE id = ?", files.ids["first"])

    codes = {found.code for found in (await files.check()).violations}
    assert {"tally_wrong", "stray_events", "key_stranded"} <= codes

    assert (await files.check(repair=True)).clean
    assert (await files.check()).violations == ()


async def test_duplicate_ids_and_keys_are_told_apart_and_mended(files: Files) -> None:
    files.sql("DROP INDEX jobs_id")
    files.sql("DROP INDEX keys_name")
    columns = ", ".join(f'"{name}"' for name in _columns(files))
    files.sql(f"INSERT INTO jobs ({columns}) SELECT {columns} FROM jobs WHERE id = ?", files.ids["succeeded"])
    for job in ("pending", "running"):
        files.sql("INSERT INTO keys VALUES ('work.do', 'k', x'00', ?, 9999999999999)", files.ids[job])

    codes = {found.code for found in (await files.check()).violations}
    assert {"duplicate_id", "duplicate_key"} <= codes

    assert (await files.check(repair=True)).clean
    assert (await files.check()).violations == ()


def _columns(files: Files) -> list[str]:
    return [name for _, name, *_ in files.sql("PRAGMA table_info(jobs)")]


async def test_progress_is_told_while_it_runs(files: Files) -> None:
    told: list[tuple[int, int]] = []

    async with files.store() as store:
        await check(store, progress=lambda done, total: told.append((done, total)))

    assert told[-1][0] == len(files.ids)
    assert all(done <= total for done, total in told)


def test_a_payload_is_named_as_submit_names_it() -> None:
    assert payload_sha256(b"\x80") == "76be8b528d0075f7aae98d6fa57a6d3c"


TEXTS = ["name", "queue", "status", "reason", "session", "error", "unique_key", "parent", "key", "id"]


@pytest.mark.parametrize("column", TEXTS)
@pytest.mark.parametrize("name", ["pending", "running", "succeeded", "unit"])
async def test_text_that_a_flipped_bit_made_unreadable_is_damage_of_a_row(files: Files, name: str, column: str) -> None:
    files.sql(f"UPDATE jobs SET {column} = CAST(x'30ff41fe' AS TEXT) WHERE id = ?", files.ids[name])

    found = await files.check()
    assert "unreadable" in {each.code for each in found.violations}

    assert (await files.check(repair=True)).clean
    assert (await files.check()).violations == ()


@pytest.mark.parametrize("column", ["source", "to", "actor", "reason", "flag", "details"])
async def test_an_event_that_a_flipped_bit_made_unreadable_breaks_only_its_chain(files: Files, column: str) -> None:
    files.sql(
        f"UPDATE events SET \"{column}\" = CAST(x'ff' AS TEXT) WHERE job_id = ? AND seq = 2", files.ids["succeeded"]
    )

    assert "broken_chain" in files.codes(await files.check(), "succeeded")
    assert (await files.check(repair=True)).clean
    assert (await files.check()).violations == ()


async def test_what_could_not_be_read_is_kept_in_the_event_that_tells_of_it(files: Files) -> None:
    files.set("pending", options=b"\xff\x00evidence")

    await files.check(repair=True)

    [told] = [event for event in await files.events("pending") if event.flag == "repair"]
    assert b"\xff\x00evidence".hex() in told.data["found"]["unreadable"]


async def test_what_was_only_the_wrong_status_is_said_to_be_right_again(files: Files) -> None:
    files.set("pending", status="running")

    mended = await files.check(repair=True)

    done = {each.code: each.repaired for each in mended.violations if each.job_id}
    assert done == {
        "status_mismatch": "status: running -> pending",
        "dead_claim": "right again with the status",
        "wrong_lane": "right again with the status",
    }
    row = await files.row("pending")
    assert (row.token, row.crashes, row.releases, row.lane) == (0, 0, 0, Lane.READY)


async def test_an_event_whose_job_can_no_longer_be_named_becomes_a_stray(files: Files) -> None:
    files.sql("UPDATE events SET job_id = CAST(x'30ff' AS TEXT) WHERE job_id = ? AND seq = 2", files.ids["succeeded"])

    found = await files.check()
    assert "broken_text" in {each.code for each in found.violations}
    assert "broken_chain" in files.codes(found, "succeeded")

    assert (await files.check(repair=True)).clean
    assert (await files.check()).violations == ()
    assert len(files.sql("SELECT 1 FROM events WHERE job_id = ? AND flag = 'tombstone'", "0\ufffd")) == 1


@pytest.mark.parametrize("table", ["jobs", "events", "sessions"])
async def test_a_table_declared_otherwise_is_a_damaged_file(files: Files, table: str) -> None:
    """One flipped bit in the name of a column would make every row look damaged, and a repair ruin them all."""
    db = apsw.Connection(str(files.path))
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_schema SET sql = replace(sql, '_ms', '_mr') WHERE name = ?", (table,))
    db.close()

    with pytest.raises(StoreDamaged, match="damaged as a file"):
        await files.check(repair=True)


async def test_what_belongs_to_no_job_is_found_and_mended(files: Files) -> None:
    files.sql("INSERT INTO refusals VALUES ('018bcfe5-6800-7000-8000-ffffffffffff', 1, 's', 'succeeded', 1)")
    files.sql("INSERT INTO leaders VALUES ('leader', 'nobody.00', 1, ?, ?)", 1 << 60, boot_id())

    found = await files.check()
    assert {each.code for each in found.violations} == {"stray_refusal", "bad_leader"}
    assert (await files.check(repair=True)).clean
    assert (await files.check()).violations == ()


async def test_a_schedule_that_cannot_be_read_is_found_and_paused_and_kept(files: Files) -> None:
    files.sql("INSERT INTO schedules VALUES ('nightly', x'c1ff', 0, NULL)")

    [found] = (await files.check()).violations
    assert (found.code, found.repaired) == ("bad_schedule", None)
    assert "'nightly' cannot be read" in found.message

    assert (await files.check(repair=True)).clean
    again = await files.check()
    assert (again.violations, [each.code for each in again.notices]) == ((), ["bad_schedule"])
    assert files.sql("SELECT spec, paused FROM schedules") == [(b"\xc1\xff", 1)]
