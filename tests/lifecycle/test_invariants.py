"""Every invariant on its own: what it says of a sound row (nothing), and of an edited one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, strategies as st

from mainstay.lifecycle import JOB, UNIT, Chain, Event, Move, apply, claim, seals, submit
from mainstay.lifecycle.invariants import INVARIANTS, Flaw, Invariant, Mend, View, fingerprint, inspect
from mainstay.model import PLACE_QUEUE, ErrorInfo, Job, Lane, Options, RetryPolicy
from mainstay.testing import a_job

CHAIN = Chain()
NOW = 1_700_000_000_000


def born(**fields: Any) -> tuple[Job, list[Event]]:
    draft = a_job(**{"due_ms": NOW, "rank": NOW, **fields})
    made = submit(draft, now_ms=NOW, actor="ann", chain=CHAIN)
    return made.job, list(made.events)


def moved(history: tuple[Job, list[Event]], *moves: Move) -> tuple[Job, list[Event]]:
    job, events = history
    done = apply(job, *moves, now_ms=NOW + len(events), actor="ann", chain=CHAIN)
    return done.job, [*events, *done.events]


def claimed(history: tuple[Job, list[Event]]) -> tuple[Job, list[Event]]:
    job, events = history
    done = claim(job, session="s1", now_ms=NOW + len(events), chain=CHAIN)
    return done.job, [*events, *done.events]


def codes(history: tuple[Job, list[Event]], **more: Any) -> list[str]:
    job, events = history
    given = {"chain": CHAIN, "now_ms": NOW + 1000, "live_sessions": {"s1"}, **more}
    return [found.code for found in inspect(job, events, **given)]


def test_codes_are_unique_and_every_entry_says_what_it_means() -> None:
    names = [entry.code for entry in INVARIANTS]

    assert len(set(names)) == len(names)
    assert all(entry.meaning for entry in INVARIANTS)
    assert all(entry.notice == (entry.mend is Mend.NONE) for entry in INVARIANTS)


def test_a_sound_life_breaks_nothing_at_any_step() -> None:
    history = born()
    assert codes(history) == []
    history = claimed(history)
    assert codes(history) == []
    history = moved(history, Move(to="succeeded", fields={"starts": 1, "result": b"\xc0"}))
    assert codes(history) == []


def test_an_added_invariant_is_one_entry() -> None:
    def no_x(view: View) -> Any:
        if "x" in view.job.name:
            yield Flaw("there is an x in its name")

    mine = Invariant("no_x", "names have no x", no_x, Mend.HOLD)

    assert codes(born(name="extra"), invariants=[*INVARIANTS, mine]) == ["no_x"]


def test_an_invariant_that_stumbles_is_a_finding_and_the_others_go_on() -> None:
    def stumbles(_: View) -> Any:
        yield Flaw("about to fail")
        raise ZeroDivisionError("oops")

    wild = Invariant("wild", "never mind", stumbles, Mend.FIX)
    job, events = born()
    job = msgspec.structs.replace(job, lane=Lane.NONE)

    found = inspect(job, events, chain=CHAIN, now_ms=NOW, invariants=[wild, *INVARIANTS])

    assert [each.code for each in found] == ["wild", "wrong_lane"]
    assert "ZeroDivisionError: oops" in found[0].message


def test_a_job_without_owner_between_phases_is_only_a_notice() -> None:
    history = moved(claimed(born()), Move(to="finalizing", fields={"session": "s1"}))
    nobody = {"session": None, "claimed_ms": None}
    job, events = moved(history, Move(to="finalizing", reason="owner lost", fields=nobody, flag="note"))

    found = inspect(job, events, chain=CHAIN, now_ms=NOW + 10)

    assert [(each.code, each.notice) for each in found] == [("ownerless", True)]


def test_an_ownerless_cancelling_job_is_a_dead_claim() -> None:
    job, events = moved(claimed(born()), Move(to="cancelling"))
    job = msgspec.structs.replace(job, session=None)

    assert codes((job, events)) == ["dead_claim"]


def test_a_placed_job_needs_no_holder_but_a_placed_unit_does() -> None:
    """The leader assigns pending units only: a running one without a holder would wait forever."""
    fields = {"started_ms": NOW, "token": 1}
    assert codes(moved(born(queue=PLACE_QUEUE), Move(to="running", fields=fields))) == []

    unit = moved(born(queue=PLACE_QUEUE, parent=born()[0].id, unit="node/a"), Move(to="running", fields=fields))
    assert codes(unit) == ["dead_claim"]


def test_trimmed_history_is_sound_and_an_edited_anchor_is_not() -> None:
    job, events = moved(claimed(born()), Move(to="succeeded", fields={"starts": 1}))
    trimmed = msgspec.structs.replace(job, trimmed_seq=2, trimmed_digest=events[1].digest)
    bare = msgspec.structs.replace(job, trimmed_seq=3, trimmed_digest=events[2].digest)

    assert codes((trimmed, events[2:])) == []
    assert codes((bare, [])) == []
    assert codes((msgspec.structs.replace(trimmed, trimmed_digest=b"\1" * 32), events[2:])) == ["broken_chain"]


def test_forced_moves_and_repairs_are_exempt_from_the_table_but_not_from_continuity() -> None:
    forced = moved(born(status="scheduled"), Move(to="partial", reason="because", flag="forced"))
    assert codes(forced) == []

    job, events = forced
    assert codes((job, [events[0], msgspec.structs.replace(events[1], source="failed")]))[:2] == [
        "broken_chain",
        "illegal_move",
    ]


def test_a_trail_numbered_by_its_failures_proves_the_counter() -> None:
    error = ErrorInfo(type="E", message="no")
    failed = Move(to="failed", details={"attempt": 1}, fields={"failures": 1, "starts": 1, "error": error})
    job, events = moved(claimed(born()), failed)

    assert codes((job, events)) == []
    [found] = inspect(msgspec.structs.replace(job, failures=0), events, chain=CHAIN, now_ms=NOW)
    assert (found.code, found.fix) == ("counters", {"failures": 1})


def test_a_status_of_a_newer_version_is_a_notice_only_when_the_trail_agrees() -> None:
    job, events = born()
    body = (job.id, 2, NOW, "pending", "hibernating", "newer", None, 0, "", None)
    event = Event(*body, CHAIN.digest(job.head, body))
    newer = msgspec.structs.replace(job, status="hibernating", version=2, head=event.digest)

    assert codes((newer, [*events, event])) == ["newer_status"]
    assert codes((msgspec.structs.replace(newer, status="dreaming"), [*events, event])) == ["unknown_status"]
    assert "unknown_status" in codes((msgspec.structs.replace(newer, head=b"\1" * 32), [*events, event]))


def test_options_with_impossible_numbers_are_found() -> None:
    assert codes(born(options=Options(run_timeout_s=-1.0))) == ["bad_options"]
    assert codes(born(options=Options(grace_s=float("nan")))) == ["bad_options"]


def test_a_fingerprint_changes_with_the_damage() -> None:
    job, events = born()
    prints = set()
    for payload in (b"\xc1", b"\xc1\xc1", b""):
        bad = msgspec.structs.replace(job, payload=payload)
        prints.add(fingerprint(inspect(bad, events, chain=CHAIN, now_ms=NOW)))

    assert len(prints) == 3


STATES = sorted({*JOB.states, *UNIT.states})
histories = st.lists(st.sampled_from(["claim", "succeed", "fail", "cancel", "release", "note"]), max_size=8)


def lived(steps: list[str]) -> tuple[Job, list[Event]]:
    """A history as control would write it; steps that do not apply are left out."""
    history = born()
    for step in steps:
        job, _ = history
        running = job.status == "running"
        if step == "claim" and job.status == "pending":
            history = claimed(history)
        elif step == "succeed" and running:
            history = moved(history, Move(to="succeeded", fields={"starts": job.starts + 1}))
        elif step == "fail" and running:
            n = job.failures + 1
            ended = Move(to="failed", details={"attempt": n}, fields={"failures": n, "starts": job.starts + 1})
            history = moved(history, ended, Move(to="pending"))
        elif step == "release" and running:
            history = moved(history, Move(to="pending", fields={"releases": job.releases + 1}))
        elif step == "cancel" and job.status == "pending":
            history = moved(history, Move(to="cancelled"))
        elif step == "note":
            history = moved(history, Move(to=job.status, reason="seen", flag="note"))
    return history


@given(histories)
def test_a_valid_history_is_always_clean(steps: list[str]) -> None:
    assert codes(lived(steps)) == []


EDITS: dict[str, st.SearchStrategy[Any]] = {
    "job_id": st.just("018bcfe5-6800-7000-8000-00000000000f"),
    "seq": st.integers(0, 20),
    "at_ms": st.integers(-(2**40), 2**50),
    "source": st.none() | st.sampled_from(STATES) | st.text(max_size=5),
    "to": st.sampled_from(STATES) | st.text(max_size=5),
    "actor": st.text(max_size=8),
    "reason": st.none() | st.text(max_size=8),
    "token": st.integers(-3, 9),
    "flag": st.sampled_from(["", "note", "forced", "repair", "tombstone", "x"]),
    "details": st.none() | st.text(max_size=8),
    "digest": st.binary(max_size=32),
}


@given(histories, st.data())
def test_an_edit_of_any_field_of_any_event_is_found(steps: list[str], data: st.DataObject) -> None:
    job, events = lived(steps)
    at = data.draw(st.integers(0, len(events) - 1))
    field = data.draw(st.sampled_from(sorted(EDITS)))
    value = data.draw(EDITS[field])
    assume(value != getattr(events[at], field))
    events[at] = msgspec.structs.replace(events[at], **{field: value})

    assert "broken_chain" in codes((job, events))


@given(histories, st.data())
def test_a_lost_or_doubled_event_is_found(steps: list[str], data: st.DataObject) -> None:
    job, events = lived(steps)
    at = data.draw(st.integers(0, len(events) - 1))
    changed = data.draw(st.sampled_from([events[:at] + events[at + 1 :], [*events[: at + 1], *events[at:]]]))

    assert {"broken_chain", "no_events"} & set(codes((job, changed)))


@given(histories, st.sampled_from(STATES) | st.text(max_size=8))
def test_an_edited_status_is_found(steps: list[str], status: str) -> None:
    job, events = lived(steps)
    assume(status != job.status)

    assert {"status_mismatch", "unknown_status"} & set(codes((msgspec.structs.replace(job, status=status), events)))


anything = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=6) | st.binary(max_size=6) | st.floats()


@given(histories, st.sampled_from(Job.__struct_fields__), anything)
def test_no_value_in_any_field_of_a_row_makes_the_check_stumble(steps: list[str], field: str, value: Any) -> None:
    job, events = lived(steps)

    codes((msgspec.structs.replace(job, **{field: value}), events))


@given(histories, st.sampled_from(Event.__struct_fields__), anything)
def test_no_value_in_any_field_of_an_event_makes_the_check_stumble(steps: list[str], field: str, value: Any) -> None:
    job, events = lived(steps)
    events[-1] = msgspec.structs.replace(events[-1], **{field: value})

    codes((job, events))


@pytest.mark.parametrize("field", ["starts", "failures", "crashes", "releases", "losses", "token", "version"])
def test_a_number_below_zero_or_beyond_counting_is_found_and_its_fix_is_clean(field: str) -> None:
    job, events = lived(["claim", "fail", "claim", "release", "claim"])
    for value in (-1, 2**60):
        edited = msgspec.structs.replace(job, **{field: value})
        found = inspect(edited, events, chain=CHAIN, now_ms=NOW, live_sessions={"s1"})
        assert found
        fixes = {name: fix for each in found for name, fix in each.fix.items()}
        fixed = msgspec.structs.replace(edited, **fixes)
        assert codes((fixed, events)) == []


def unsealed(history: tuple[Job, list[Event]], *, at: int = 1) -> tuple[Job, list[Event]]:
    """The same history, written by a version that sealed nothing from this event on."""
    job, events = history
    head = job.trimmed_digest
    kept = []
    for event in events:
        details = None if event.seq >= at else event.details
        body = (*msgspec.structs.astuple(event)[:9], details)
        head = CHAIN.digest(head, body)
        fields: list[Any] = [*body, head]
        kept.append(Event(*fields))
    return msgspec.structs.replace(job, head=head), kept


def test_rows_of_a_version_that_sealed_nothing_raise_no_alarm() -> None:
    history = moved(claimed(born()), Move(to="succeeded", fields={"starts": 1, "result": b"\xc0"}))
    job, events = unsealed(history)

    assert codes((job, events)) == []
    edited = msgspec.structs.replace(job, name="demo.other", queue="q", result=b"\x2a")
    assert codes((edited, events)) == [], "nothing says what they were"


def test_what_a_program_of_the_version_before_did_to_a_sealed_job_raises_no_alarm() -> None:
    noted = Move(to="pending", reason="priority changed from 0 to 5", fields={"priority": 5}, flag="note")
    later = Move(to="pending", reason="later", fields={"due_ms": NOW + 60_000}, flag="note")
    waits = moved(born(), noted, later)
    done = moved(claimed(born()), Move(to="succeeded", fields={"starts": 1, "result": b"\xc0"}))

    for history, at in ((waits, 2), (done, 3)):
        assert codes(unsealed(history, at=at)) == []


def test_a_ready_job_of_an_earlier_version_that_is_due_in_thirty_years_is_not_sent_there() -> None:
    job, events = unsealed(born())
    edited = msgspec.structs.replace(job, due_ms=NOW + 946_684_800_000)

    [found] = inspect(edited, events, chain=CHAIN, now_ms=NOW + 1000)

    assert (found.code, found.fix) == ("wrong_rank", {"due_ms": NOW})


def test_an_event_behind_the_one_that_the_row_was_sealed_with_is_not_believed() -> None:
    job, events = moved(claimed(born()), Move(to="quarantined", fields={"starts": 1}))
    last = events[-1]
    forged = Event(job.id, last.seq + 1, NOW + 9, "quarantined", "pending", "ann", "fix", 1, "", None, last.digest)
    row = msgspec.structs.replace(job, status="pending", version=last.seq + 1, settled_ms=None, lane=Lane.READY)

    found = {each.code: each for each in inspect(row, [*events, forged], chain=CHAIN, now_ms=NOW + 1000)}

    assert found["status_mismatch"].fix == {"status": "quarantined"}
    assert "broken_chain" in found


def test_a_job_that_only_a_changed_event_sends_to_run_is_held() -> None:
    job, events = moved(claimed(born()), Move(to="failed", fields={"starts": 1}), Move(to="quarantined"))
    last = msgspec.structs.replace(events[-1], to="pending")
    row = msgspec.structs.replace(job, status="pending", settled_ms=None, lane=Lane.READY)

    [found] = [
        each
        for each in inspect(row, [*events[:-1], last], chain=CHAIN, now_ms=NOW + 1000)
        if each.code == "broken_chain"
    ]

    assert found.mend is Mend.HOLD


def test_every_option_is_part_of_the_seal() -> None:
    """A new option needs a new form of the seal: rows that were sealed before it have the old one."""
    assert (len(Options.__struct_fields__), len(RetryPolicy.__struct_fields__)) == seals.FORMS[seals.FORM]


def test_a_seal_of_an_older_form_covers_the_options_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "FORMS", {**seals.FORMS, 0: (9, 5)})
    plain = a_job()
    newer = a_job(options=Options(not_before_ms=5, retry=RetryPolicy(crash_budget=9)))

    assert seals.job_seal(plain, 0) == seals.job_seal(newer, 0)
    assert seals.job_seal(plain) != seals.job_seal(newer)
    assert seals.job_seal(plain, 0) != seals.job_seal(a_job(options=Options(tags=("a",))), 0)
