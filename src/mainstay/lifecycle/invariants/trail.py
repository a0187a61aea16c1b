"""Invariants of the audit trail, and of the row compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..events import FLAGS, Event
from .view import Flaw, Mend, View

#: Larger counters and versions are damaged.
MAX_COUNT = 2**48


def no_events(view: View) -> Iterator[Flaw]:
    job = view.job
    trimmed = job.version == job.trimmed_seq > 0 and job.head == job.trimmed_digest
    if not view.events and not trimmed:
        yield Flaw(f"there are no events after {job.trimmed_seq}, but the row is at version {job.version}")


def broken_chain(view: View) -> Iterator[Flaw]:
    if not view.events or not view.broken:
        return
    last, state = view.events[-1], view.state
    runs = state is not None and not (state.settled or state.holds)
    if view.doubtful and view.head is None and runs and last.source != last.to:
        # the changed event is the one that makes it run again
        yield Flaw(view.broken, mend=Mend.HOLD)
    else:
        yield Flaw(view.broken)


def illegal_move(view: View) -> Iterator[Flaw]:
    before: Event | None = None
    for event in view.events:
        if wrong := _wrong_with(event, before, view):
            yield Flaw(f"event {event.seq} ({event.source or 'new'} -> {event.to}): {wrong}")
        before = event


def _wrong_with(event: Event, before: Event | None, view: View) -> str | None:
    table = view.table
    if event.flag not in FLAGS:
        return f"unknown flag {event.flag!r}"
    if event.flag == "tombstone":
        return "it says that the job was deleted, but the row exists"
    if event.flag == "repair":
        return None
    if before is not None and event.source != before.to:
        return f"it starts from {event.source}, but event {before.seq} ended in {before.to}"
    if event.source is None:
        return None if event.seq == 1 and event.to in table.start else f"a {table.name} does not begin like this"
    if event.flag == "note":
        return None if event.source == event.to else "a note does not move a job"
    source, to = table.get(event.source), table.get(event.to)
    # states of a newer version are not judged; `after_final` reports moves out of a final one
    if source is None or to is None or source.final or event.flag == "forced":
        return None
    return None if table.allows(event.source, event.to) else "the table forbids it"


def after_final(view: View) -> Iterator[Flaw]:
    settled: Event | None = None
    for event in view.events:
        if settled is not None and event.to != settled.to:
            message = f"event {event.seq} moved it to {event.to}, after event {settled.seq} had made it {settled.to}"
            state = view.state
            yield Flaw(message, mend=Mend.ANCHOR if state is not None and state.settled else Mend.HOLD)
            return
        state = view.table.get(event.to)
        if settled is None and state is not None and state.final:
            settled = event


def status_mismatch(view: View) -> Iterator[Flaw]:
    job, last, state = view.job, view.last, view.state
    if view.head is not None and state is not None and view.head.to != job.status and not state.final:
        message = f"the row says {job.status}, but was sealed with event {view.head.seq}, which says {view.head.to}"
        yield Flaw(message, {"status": view.head.to})
        return
    if last is None or last.to == job.status or state is None:
        return
    message = f"the row says {job.status}, its last event ({last.seq}) says {last.to}"
    if state.final:
        yield Flaw(f"{message}; a final row is flagged, not moved")
    elif view.proof:
        yield Flaw(message, {"status": last.to})
    else:
        yield Flaw(message, mend=Mend.HOLD)


def unknown_status(view: View) -> Iterator[Flaw]:
    job, proof = view.job, view.proof
    if view.state is not None or (proof and proof.to == job.status):
        return
    message = f"there is no {view.table.name} state {job.status!r}"
    if proof:
        yield Flaw(f"{message}; the trail says {proof.to}", {"status": proof.to}, Mend.FIX)
    else:
        yield Flaw(message)


def newer_status(view: View) -> Iterator[Flaw]:
    proof = view.proof
    if view.state is None and proof and proof.to == view.job.status:
        yield Flaw(f"{view.job.status!r} was written by a newer Mainstay; upgrade this one to work with it")


def version(view: View) -> Iterator[Flaw]:
    job, last = view.job, view.last
    if not 1 <= job.version <= MAX_COUNT:
        sealed = last.seq if last else job.trimmed_seq
        yield Flaw(f"version is {job.version}", {"version": max(sealed, 1)})
    elif last and job.version != last.seq:
        known = last.seq if view.proof else max(last.seq, job.version)
        yield Flaw(f"version is {job.version}, the last event is number {last.seq}", {"version": known})
    if not 0 <= job.trimmed_seq <= max(job.version, 0):
        # the history cannot be read from such an anchor; the repair sets a new one
        yield Flaw(f"trimmed_seq is {job.trimmed_seq}, the version is {job.version}", mend=Mend.ANCHOR)


def token(view: View) -> Iterator[Flaw]:
    job = view.job
    for earlier, later in pairwise(view.events):
        if later.token < earlier.token:
            message = f"the token runs backwards, from {earlier.token} to {later.token}, in event {later.seq}"
            yield Flaw(message, mend=Mend.ANCHOR)
            break
    right = _proven_token(view)
    if job.token != right:
        yield Flaw(f"token is {job.token}, but the trail proves {right}", {"token": right})


def _proven_token(view: View) -> int:
    """How often it was claimed, as far as the trail can be trusted."""
    reached = max((event.token for event in view.events), default=0)
    if view.proof:
        return reached
    return max(reached, view.job.token) if view.job.token <= MAX_COUNT else reached


def counters(view: View) -> Iterator[Flaw]:
    """Each claim ends in at most one failure, crash or release; a failure or crash has a start, and a loss is one of
    the releases. Events of failed attempts have their number, so that a counter that was set back is detected."""
    job, claims = view.job, _proven_token(view)
    failed, crashed = (0, 0) if view.broken else (_highest(view, "attempt"), _highest(view, "crash"))
    failures, crashes, releases = max(job.failures, failed), max(job.crashes, crashed), max(job.releases, 0)
    if failures + crashes + releases > claims:
        failures = min(failed, claims)
        crashes = min(crashes, max(crashed, claims - failures - releases))
        releases = min(releases, max(claims - failures - crashes, 0))
    starts = min(max(job.starts, failures + crashes), claims)
    losses = min(max(job.losses, 0), releases)
    right = {"starts": starts, "failures": failures, "crashes": crashes, "releases": releases, "losses": losses}
    for name, value in right.items():
        if (found := getattr(job, name)) != value:
            yield Flaw(f"{name} is {found}, but {claims} claims and the trail prove {value}", {name: value})


def _highest(view: View, mark: str) -> int:
    """The highest number of an ended attempt in the details of the trail."""
    found = [0]
    for event in view.events:
        if event.flag in ("", "repair") and event.source != event.to and f'"{mark}"' in (event.details or ""):
            number = event.data.get(mark)
            if isinstance(number, int) and 0 < number <= event.token:
                found.append(number)
    return max(found)
