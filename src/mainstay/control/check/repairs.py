"""The repair of one row, as a pure function from findings to the repaired row and its events.

One event flagged "repair" records all of it: the findings, the replaced values, what was accepted. No row leaves a
final state, and no job is taken from a live holder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...lifecycle import Chain, Event, Move, Moved, apply, job_seal, table_of
from ...lifecycle.invariants import INVARIANTS, MAX_COUNT, Finding, Mend, accepted, fingerprint, payload_sha256
from ...model import NO_DIGEST, Job
from ..rules.overdue import lost

_DECLARED = {entry.code: entry.mend for entry in INVARIANTS}
_DIGEST_SIZE = len(NO_DIGEST)
_VALUE_LIMIT = 200
_MESSAGE_LIMIT = 1000

Look = Callable[[Job], list[Finding]]


class Mended(msgspec.Struct, frozen=True):
    """A repaired row, its events, and what was done about each code."""

    job: Job
    events: tuple[Event, ...]
    done: Mapping[str, str]


def mended(
    job: Job,
    events: Sequence[Event],
    *,
    look: Look,
    stubborn: frozenset[str] = frozenset(),
    chain: Chain,
    actor: str,
    now_ms: int,
) -> Mended | None:
    """Repair what `look` finds wrong with a row; None if that is nothing.

    `look` is called again once the status is restored, because the other findings depend on it. Codes in `stubborn`
    came back after an earlier repair, so the row is held.
    """
    findings = _violations(look(job))
    if not findings:
        return None
    restored = next((found.fix["status"] for found in findings if "status" in found.fix), job.status)
    base = msgspec.structs.replace(job, status=restored)
    reported = findings if restored == job.status else findings + _new(_violations(look(base)), findings)
    wrong = findings if restored == job.status else [f for f in _violations(look(base)) if "status" not in f.fix]
    fixes = {name: value for found in wrong for name, value in found.fix.items()}
    anchor = any(_anchors(found) for found in reported)
    base = _grounded(msgspec.structs.replace(base, **fixes), events, anchored=anchor)
    held = [found for found in wrong if found.code in stubborn or found.mend is Mend.HOLD]
    held += [found for found in findings if "status" in found.fix and found.code in stubborn]
    given_back = any(found.mend is Mend.REAP for found in wrong) and not held
    details: dict[str, Any] = {
        "found": _by_code(reported),
        "was": {name: _shown(getattr(job, name)) for name in {"status", *fixes} if _changed(job, base, name)},
        "accepted": {**accepted(job, events), **_prints(held)},
    }
    if anchor:
        # the events with these facts are no longer read, so the event of the repair records them
        details |= {"set_aside_through": base.version, "payload_sha256": payload_sha256(base.payload)}
        details["job_sha256"] = job_seal(base)
    moves = _given_back(base, now_ms) if given_back else _moves(base, held, wrong)
    codes = ", ".join(dict.fromkeys(found.code for found in reported))
    moved = _applied(base, moves, reason=f"repair: {codes}", details=details, chain=chain, actor=actor, now_ms=now_ms)
    after = moved.job
    if after.status == base.status:
        # the reason of its status has not changed
        after = msgspec.structs.replace(after, reason=base.reason)
    if anchor:
        after = msgspec.structs.replace(after, trimmed_seq=base.version, trimmed_digest=base.head)
    return Mended(after, moved.events, _done(reported, wrong, held, job, base, after))


def _violations(findings: list[Finding]) -> list[Finding]:
    return [found for found in findings if not found.notice]


def _new(later: list[Finding], earlier: list[Finding]) -> list[Finding]:
    known = {found.code for found in earlier}
    return [found for found in later if found.code not in known]


def _anchors(found: Finding) -> bool:
    return Mend.ANCHOR in (found.mend, _DECLARED.get(found.code))


def _grounded(base: Job, events: Sequence[Event], *, anchored: bool) -> Job:
    """The row to which the event of the repair can be chained: after all stored events."""
    if not anchored:
        return base
    known = [seq for seq in (base.version, base.trimmed_seq) if 0 <= seq <= MAX_COUNT]
    version = max(*known, *(event.seq for event in events), 0)
    head = base.head if isinstance(base.head, bytes) and len(base.head) == _DIGEST_SIZE else NO_DIGEST
    return msgspec.structs.replace(base, version=version, head=head)


def _moves(base: Job, held: list[Finding], wrong: list[Finding]) -> tuple[Move, ...]:
    """Where the row goes: into quarantine if it must be held and no worker holds it, else nowhere."""
    table = table_of(base.parent)
    state = table.get(base.status)
    is_held = state is not None and state.holds and not any(found.mend is Mend.REAP for found in wrong)
    if not held or is_held or (state is not None and state.settled):
        return (Move(to=base.status),)
    return (Move(to="quarantined" if "quarantined" in table.states else "cancelled"),)


def _given_back(base: Job, now_ms: int) -> tuple[Move, ...]:
    """The sweeper's decision; it names the session, so a row without one gets a placeholder."""
    moves = lost(msgspec.structs.replace(base, session=base.session or "(none)"), now_ms=now_ms)
    return moves or (Move(to=base.status),)


def _applied(
    base: Job,
    moves: tuple[Move, ...],
    *,
    reason: str,
    details: dict[str, Any],
    chain: Chain,
    actor: str,
    now_ms: int,
) -> Moved:
    first, *rest = moves
    why = f"{reason}; {first.reason}" if first.reason else reason
    facts = {key: value for key, value in details.items() if value not in ({}, None)}
    flagged = [
        msgspec.structs.replace(first, reason=why, details={**(first.details or {}), **facts}, flag="repair"),
        *(msgspec.structs.replace(move, flag="repair", reason=move.reason or reason) for move in rest),
    ]
    return apply(base, *flagged, now_ms=now_ms, actor=actor, chain=chain)


def _by_code(findings: list[Finding]) -> dict[str, str]:
    codes = dict.fromkeys(found.code for found in findings)
    return {code: "; ".join(f.message for f in findings if f.code == code)[:_MESSAGE_LIMIT] for code in codes}


def _prints(held: list[Finding]) -> dict[str, str]:
    return {code: fingerprint([f for f in held if f.code == code]) for code in {found.code for found in held}}


def _changed(job: Job, base: Job, name: str) -> bool:
    return bool(getattr(job, name) != getattr(base, name))


def _shown(value: Any) -> Any:
    """An old value, short enough for an event."""
    if value is None or isinstance(value, int | float):
        return value
    return (value.hex() if isinstance(value, bytes) else str(value))[:_VALUE_LIMIT]


def _done(
    reported: list[Finding], wrong: list[Finding], held: list[Finding], job: Job, base: Job, after: Job
) -> dict[str, str]:
    done: dict[str, str] = {}
    still = {found.code for found in wrong}
    for found in reported:
        if found.code not in still and "status" not in found.fix and not _anchors(found):
            what = "right again with the status"
        elif found in held:
            what = "kept as it is, and accepted" if after.status == base.status else f"put to {after.status}"
        elif found.mend is Mend.REAP:
            what = f"given back: {after.status}" if after.status != base.status else "disowned"
        elif _anchors(found):
            what = f"set aside; checked from event {base.version + 1} on"
        elif found.code == "unreadable":
            what = "replaced by an empty value"
        else:
            what = "; ".join(
                f"{name}: {_shown(getattr(job, name))} -> {_shown(value)}" for name, value in found.fix.items()
            )
        done[found.code] = "; ".join(filter(None, (done.get(found.code), what or "noted in the trail")))
    return done
