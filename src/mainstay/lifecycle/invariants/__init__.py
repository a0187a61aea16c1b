"""Invariants of every stored row, one small function each.

Pure: a row with its events in, findings out. `INVARIANTS` is the list of all; to add one, write a function that yields
a `Flaw` for each problem and add its entry. A function reads the row through a `View` and must not trust it: any value
may be damaged. If a function raises, that is a finding, so no damage stops a check.

>>> from mainstay.testing import a_job
>>> job = a_job("succeeded", version=1, session="s1", settled_ms=0)
>>> [found.code for found in inspect(job, [], chain=Chain(), now_ms=0)]
['no_events', 'stray_claim']
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from ...model import Job
from ..events import Chain, Event
from ..states import table_of
from . import content, place, trail
from .trail import MAX_COUNT
from .view import Finding, Flaw, Invariant, Mend, View, fingerprint, payload_sha256

#: All invariants, in the order in which an operator wants to read about them.
INVARIANTS: tuple[Invariant, ...] = (
    Invariant("unreadable", "every column can be read", content.unreadable, Mend.FIX),
    Invariant("unknown_status", "a row is in one of the declared states", trail.unknown_status, Mend.HOLD),
    Invariant("newer_status", "a state of a newer version is left alone", trail.newer_status, Mend.NONE, notice=True),
    Invariant("no_events", "every row has events", trail.no_events, Mend.ANCHOR),
    Invariant("broken_chain", "the event chain verifies", trail.broken_chain, Mend.ANCHOR),
    Invariant("status_mismatch", "the last event's `to` equals the row's status", trail.status_mismatch, Mend.FIX),
    Invariant("illegal_move", "every unflagged event obeys the table", trail.illegal_move, Mend.ANCHOR),
    Invariant("after_final", "a final row never changed after", trail.after_final, Mend.ANCHOR),
    Invariant("version", "the version is the number of the last event", trail.version, Mend.FIX),
    Invariant("token", "the token only grows, and is the last event's", trail.token, Mend.FIX),
    Invariant("counters", "counters only grow, and no faster than claims", trail.counters, Mend.FIX),
    Invariant("dead_claim", "running implies a live session or an unsettled unit", place.dead_claim, Mend.REAP),
    Invariant("silent_holder", "a silent session is left to the sweeper", place.silent_holder, Mend.NONE, notice=True),
    Invariant("ownerless", "a phase without an owner waits for the next one", place.ownerless, Mend.NONE, notice=True),
    Invariant("stray_claim", "only states that hold a claim have one", place.stray_claim, Mend.FIX),
    Invariant(
        "settled_time",
        "settled rows, and only they, have the time of settling",
        place.settled_time,
        Mend.FIX,
    ),
    Invariant("bad_payload", "the payload decodes", content.bad_payload, Mend.HOLD),
    Invariant("payload_changed", "the payload is the one submitted", content.payload_changed, Mend.HOLD),
    Invariant("submit_changed", "what was submitted has not changed", content.submit_changed, Mend.HOLD),
    Invariant("bad_result", "the result decodes", content.bad_result, Mend.HOLD),
    Invariant("result_changed", "the result is the one answered", content.result_changed, Mend.HOLD),
    Invariant("bad_options", "options are sensible numbers", content.bad_options, Mend.HOLD),
    Invariant("bad_number", "numbers are within their range", content.bad_number, Mend.FIX),
    Invariant("bad_time", "times are after 1970 and before 3000; past ones have passed", content.bad_time, Mend.FIX),
    Invariant("created_time", "the time of creation is that of the first event", place.created_time, Mend.FIX),
    Invariant("due_changed", "the due time is the one the trail says", place.due_changed, Mend.FIX),
    Invariant("orphan_unit", "a unit's job exists", place.orphan_unit, Mend.HOLD),
    Invariant("wrong_lane", "the lane fits the status", place.wrong_lane, Mend.FIX),
    Invariant("wrong_rank", "the rank fits priority and due time", place.wrong_rank, Mend.FIX),
)


def inspect(
    job: Job,
    events: Sequence[Event],
    *,
    chain: Chain,
    now_ms: int,
    live_sessions: Collection[str] = (),
    silent_sessions: Collection[str] = (),
    damaged: Mapping[str, str] | None = None,
    parent_exists: bool = True,
    open_units: bool = False,
    invariants: Sequence[Invariant] = INVARIANTS,
) -> list[Finding]:
    """All problems of one row, and notices, without the damage that an earlier repair accepted.

    `events` are those after `job.trimmed_seq`, in order. `silent_sessions` are known but have not beaten for a while;
    the sweeper handles them. Never raises, whatever the row contains.
    """
    broken = _first_break(chain, job, events)
    view = View(
        job=job,
        events=events,
        damaged=damaged or {},
        broken=broken,
        head=_head(chain, job, events) if broken else None,
        doubtful=broken is not None and _doubtful(chain, job, events),
        now_ms=now_ms,
        live_sessions=live_sessions,
        silent_sessions=silent_sessions,
        parent_exists=parent_exists,
        open_units=open_units,
    )
    known = accepted(job, events)
    findings: list[Finding] = []
    for entry in invariants:
        found = _look(entry, view)
        if found and known.get(entry.code) != fingerprint(found):
            findings += found
    return findings


def _look(entry: Invariant, view: View) -> list[Finding]:
    try:
        flaws = list(entry.look(view))
    except Exception as error:  # noqa: BLE001 - an error caused by a damaged row is a finding
        flaws = [Flaw(f"cannot be judged: {type(error).__name__}: {error}", mend=Mend.HOLD)]
    return [
        Finding(
            code=entry.code,
            message=flaw.message,
            mend=flaw.mend or entry.mend,
            fix=flaw.fix,
            notice=entry.notice,
        )
        for flaw in flaws
    ]


def _first_break(chain: Chain, job: Job, events: Sequence[Event]) -> str | None:
    try:
        return chain.first_break(job, events)
    except Exception as error:  # noqa: BLE001 - as in `_look`
        return f"the chain cannot be computed: {type(error).__name__}: {error}"


def _head(chain: Chain, job: Job, events: Sequence[Event]) -> Event | None:
    """The event that the row was sealed with, if there are later ones."""
    for n in range(len(events) - 1, 0, -1):
        if events[n - 1].digest == job.head:
            return events[n - 1] if _first_break(chain, job, events[:n]) is None else None
    return None


def _doubtful(chain: Chain, job: Job, events: Sequence[Event]) -> bool:
    """Whether only the last event was changed."""
    if len(events) < 2:
        return False
    before = events[-2]
    if _first_break(chain, msgspec.structs.replace(job, head=before.digest), events[:-1]) is not None:
        return False
    try:
        return chain.digest(before.digest, msgspec.structs.astuple(events[-1])[:-1]) != events[-1].digest
    except (TypeError, ValueError, msgspec.EncodeError):
        return True


def accepted(job: Job, events: Sequence[Event]) -> dict[str, str]:
    """Damage that repairs could not undo and have accepted: code -> fingerprint.

    It is accepted while the row is settled or stays with the same claim; once the job is to run again, the damage is
    reported again.
    """
    state = table_of(job.parent).get(job.status)
    if state is None or not (state.settled or state.holds):
        return {}
    known: dict[str, str] = {}
    for event in events:
        if event.flag != "repair" or not isinstance(event.details, str):
            continue
        found = event.data.get("accepted")
        if isinstance(found, dict) and (state.settled or event.token == job.token):
            known.update(found)
    return known


__all__ = [
    "INVARIANTS",
    "MAX_COUNT",
    "Finding",
    "Flaw",
    "Invariant",
    "Mend",
    "View",
    "accepted",
    "fingerprint",
    "inspect",
    "payload_sha256",
]
