"""What every adapter decides in the same way: pure functions of the stored row and what is asked.

An adapter reads, asks here, and writes; so that all of them answer alike, and the answers can be tested
without an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from ..errors import AlreadySubmitted, Conflict, InvalidInput, InvalidTransition, KeyConflict, UniqueClash
from ..lifecycle import Chain, Event, Move, Moved, apply, is_stopping, table_of, time_text
from ..model import AWAITS_MS, ErrorInfo, Job, Lane, expiry
from .bounds import SUBMITTED
from .port import Change, ClaimReport, Key, NewJob, Outcome, RefusedWrite

#: how many events after `change.before` an adapter hands to `judge`: those of one claim are far fewer
SINCE = 100


def judge(row: Job | None, change: Change, since: Sequence[Event]) -> Outcome:
    """What becomes of a change.

    `since` are the job's stored events after `change.before.version`, the first `SINCE` of them. If they show that
    this change was written before, that wins over everything else: its sender must hear so even if the job was
    claimed again since.
    """
    if row is None:
        return "missing"
    before, after = change.before, change.after
    if change.events and _was_written(row, change, since):
        return "already_applied"
    # A server that crashed may have forgotten a claim while its holder lives on; the same version and token were given
    # again since, and only the heads tell the two apart.
    same = row.version == before.version and row.head == before.head
    if change.holder is not None and (
        (row.session, row.token) != (change.holder, before.token) or (row.version == before.version and not same)
    ):
        return "stale"
    # a note leaves the status as it is, so an equal status says nothing about it
    same_outcome = change.kind != "note" and row.token == before.token and row.status == after.status
    unseen = takes_away(change) and row.progress_ms != before.progress_ms
    if change.events and same and not unseen and not _shrinks(row, after):
        return "applied"
    return "already_applied" if same_outcome else "conflict"


def _was_written(row: Job, change: Change, since: Sequence[Event]) -> bool:
    """Whether this change, or the same one decided at another time, is among what was written.

    One that is sent again was decided anew, so its time, its reasons and what follows its first event may differ.
    A holder ends its claim in a given way once, so wherever that stands it is the one; others may wish the same
    twice, so theirs must stand right where it would be written now.
    """
    first, last = change.events[0], change.events[-1]
    if any(event.seq == row.trimmed_seq and event.digest == row.trimmed_digest for event in change.events):
        return True
    for event in since:
        if event.digest == last.digest:
            return True
        if (event.to, event.actor, event.token, event.flag) != (first.to, first.actor, first.token, first.flag):
            continue
        in_place = event.seq == first.seq and event.source == first.source
        if first.flag == "note":
            if in_place and (event.reason, event.details) == (first.reason, first.details):
                return True
        elif in_place or change.holder is not None:
            return True
    return False


def takes_away(change: Change) -> bool:
    """Whether somebody other than the holder ends a claim. It must have seen the holder's last progress: progress moves
    no version, and a job that has just shown some must not be timed out for want of it."""
    return change.holder is None and change.before.session is not None and change.after.session is None


def deletion(row: Job, held: bool, versions: Mapping[str, int] | None) -> Literal["deleted", "held", "changed"]:
    """What is to become of a row that is to be deleted, at the version that is meant; `held`: somebody works on
    it, or on one of its units."""
    if versions is not None and versions.get(row.id, row.version) != row.version:
        return "changed"
    return "held" if held else "deleted"


def _shrinks(row: Job, after: Job) -> bool:
    return (
        after.token < row.token
        or after.starts < row.starts
        or after.failures < row.failures
        or after.crashes < row.crashes
        or after.releases < row.releases
        or after.losses < row.losses
    )


def landed(row: Job, change: Change) -> Job:
    """The row an applied change leaves: `after`, with what the holder reported in the meantime."""
    after = change.after
    if row.progress_ms == after.progress_ms and row.progress == after.progress and row.checkpoint == after.checkpoint:
        return after
    kept = msgspec.structs.replace(after, progress=row.progress, progress_ms=row.progress_ms, checkpoint=row.checkpoint)
    if after.status == row.status and after.session is not None and row.expires_ms != change.before.expires_ms:
        # a note written from a row read before the last report must not take back the time it gained
        return msgspec.structs.replace(kept, expires_ms=expiry(kept))
    return kept


def reported(row: Job | None, report: ClaimReport, now_ms: int) -> Job | None:
    """The row after a holder's report; None when the token is no longer held."""
    if row is None or (row.session, row.token) != (report.session, report.token):
        return None
    fields: dict[str, object] = {}
    if report.started_ms is not None and row.started_ms is None:
        fields.update(started_ms=report.started_ms, starts=row.starts + 1)
    if report.progress is not None:
        fields.update(progress=report.progress, progress_ms=now_ms)
    if report.checkpoint is not None:
        fields.update(checkpoint=report.checkpoint)
    after = msgspec.structs.replace(row, **fields)
    if is_stopping(row.parent, row.status) or not ({"started_ms", "progress"} & fields.keys()):
        # while cancelling, the time is the end of the grace, and no progress buys more of it
        return after
    return msgspec.structs.replace(after, expires_ms=expiry(after))


def refusal(change: Change, now_ms: int) -> RefusedWrite:
    """The line a stale change leaves."""
    return RefusedWrite(change.before.id, change.before.token, change.holder or "", change.after.status, now_ms)


# what follows from a written row -------------------------------------------------------------------


def is_settled(job: Job) -> bool:
    """Whether nothing happens to it any more by itself."""
    return job.settled_ms is not None


def slot(job: Job) -> str | None:
    """The concurrency key of which this row takes a slot now: held rows do, whoever holds them."""
    return job.concurrency_key if job.session is not None else None


def freed(before: Job, after: Job | None) -> str | None:
    """The concurrency key whose best blocked rows may get ready, now that `before` became `after`.

    That is so when a slot came free, but also when a ready row left without taking the slot it was
    promoted for (cancelled, put off, deleted): without this the key would be stranded.
    """
    if before.concurrency_key is None or (after is not None and after.session is not None):
        return None
    if before.session is not None:
        return before.concurrency_key
    left = before.lane == Lane.READY and (after is None or after.lane != Lane.READY)
    return before.concurrency_key if left else None


def topics(before: Job | None, after: Job) -> list[str]:
    """Whom to wake when a row was inserted (`before` None) or changed."""
    woken = []
    if after.lane == Lane.READY and (before is None or before.lane != Lane.READY):
        woken.append(f"queue:{after.queue}")
    if is_settled(after) and (before is None or not is_settled(before)):
        woken.append(f"job:{after.id}")
    moved = before is None or before.status != after.status
    if moved and after.session and is_stopping(after.parent, after.status):
        woken.append(f"session:{after.session}")
    return woken


def falls_due(before: Job | None, after: Job) -> bool:
    """Whether a row has begun to wait for a time, or for an earlier one than before. If no other of its queue comes
    sooner, one subscriber must hear of it: those that sleep know only of the times there were."""
    if after.lane != Lane.DUE or after.due_ms == AWAITS_MS:
        return False
    return before is None or before.lane != Lane.DUE or after.due_ms < before.due_ms


#: flags of the events that move no job
NO_MOVE = frozenset({"note", "tombstone"})


def moves(event: Event) -> bool:
    """Whether an event moved its job, for the rates; notes move nothing."""
    return event.flag not in NO_MOVE


def entered(events: Iterable[Event]) -> list[str]:
    """What one row's events count for in the rates: the states that its moves led to, and that it was submitted."""
    states: list[str] = []
    for event in events:
        if event.flag in NO_MOVE:
            continue
        if event.source is None and not states:
            states.append(SUBMITTED)
        states.append(event.to)
    return states


def may_be_last(before: Job, after: Job) -> bool:
    """Whether this change settled a unit, so that the parent's open units must be counted."""
    return after.parent is not None and is_settled(after) and not is_settled(before)


def parent_move(parent: Job | None, change: Change, now_ms: int, chain: Chain) -> Moved | None:
    """`on_last` applied to the parent as it stands now; None when there is nothing to write.

    A parent that moved elsewhere meanwhile (cancelled, timed out) keeps its state: whoever sent the
    change hears `last` and decides.
    """
    if parent is None or change.on_last is None or not change.events:
        return None
    if change.on_last.unheld and not is_left_to_its_units(parent):
        return None
    try:
        moved = apply(parent, change.on_last, now_ms=now_ms, actor=change.events[-1].actor, chain=chain)
    except InvalidTransition:
        return None
    return moved if moved.events else None


def is_left_to_its_units(job: Job) -> bool:
    """Whether it is in a state that somebody holds, and nobody does: its units go on with it."""
    state = table_of(job.parent).get(job.status)
    return job.session is None and state is not None and state.holds


# waiting for other jobs -----------------------------------------------------------------------------

#: stands for the status of a job that is not there any more
GONE = "deleted"


def keeps_waiting(status: str, *, more: bool) -> bool:
    """Whether the end of one job changes nothing for whoever waits for others besides, whatever it asked for; so that
    its row need not be read."""
    return more and status == "succeeded"


def dependant_move(
    row: Job | None, on: str, status: str, *, more: bool, now_ms: int, chain: Chain, actor: str = "store"
) -> Moved | None:
    """What becomes of a row that waits for the job `on`, which has settled in `status` or is `GONE`; None: nothing yet.

    `more` says that it waits for others besides. A row that does not wait any more (it was cancelled, or sent on its
    way by force) is left where it is.
    """
    if row is None or not is_waiting(row):
        return None
    if row.options.after_when != "settled" and status != "succeeded":
        move = _broken(row, on, status, now_ms)
    elif more:
        return None
    else:
        move = _released(row, now_ms)
    return apply(row, move, now_ms=now_ms, actor=actor, chain=chain)


def stranded_move(row: Job, awaited: Sequence[tuple[str, str]], *, now_ms: int, chain: Chain) -> Moved | None:
    """What becomes of a row that waits though nothing is left to wait for; `awaited` are those of its jobs that are
    still there and settled. One that is gone was trimmed: that it ended badly would have been told when it did."""
    for on, status in awaited:
        if row.options.after_when != "settled" and status != "succeeded":
            return dependant_move(row, on, status, more=False, now_ms=now_ms, chain=chain, actor="check")
    return dependant_move(row, row.id, "succeeded", more=False, now_ms=now_ms, chain=chain, actor="check")


def is_waiting(row: Job) -> bool:
    """Whether a row waits for other jobs."""
    state = table_of(row.parent).get(row.status)
    return row.awaits and state is not None and state.waiting


def _released(row: Job, now_ms: int) -> Move:
    """All it waited for is done: it is ready, or waits for the time it was put off to."""
    done = "succeeded" if row.options.after_when != "settled" else "are settled"
    why = f"the jobs it waited for {done}"
    at_ms = row.options.not_before_ms
    if at_ms is None or at_ms <= now_ms:
        return Move(to="pending", reason=why, fields={"due_ms": now_ms})
    later = f"waits until {time_text(at_ms)}"
    return Move(to=row.status, reason=f"{why}; {later}", fields={"due_ms": at_ms, "reason": later}, flag="note")


def _broken(row: Job, on: str, status: str, now_ms: int) -> Move:
    why = f"waited for job {on} to succeed, and it {'was' if status == GONE else 'is'} {status}"
    details: dict[str, object] = {"dependency": on, "dependency_status": status}
    # its due time must not say any longer that it waits: somebody may send it back to the queue
    if row.options.after_failed != "fail":
        return Move(to="skipped", reason=why, details=details, fields={"due_ms": now_ms})
    error = ErrorInfo(type="DependencyFailed", code="dependency_failed", message=why, retryable=False)
    details["error"] = msgspec.to_builtins(error)
    return Move(to="failed", reason=why, details=details, fields={"due_ms": now_ms, "error": error})


# refusals of insert --------------------------------------------------------------------------------


def key_conflict(index: int, key: Key, existing: str) -> KeyConflict:
    return KeyConflict(
        f"jobs[{index}]: idempotency key {key.name!r} of {key.scope} was used before with other arguments, "
        f"by job {existing}; use another key, or submit the same arguments"
    )


def unique_clash(index: int, new: NewJob, existing: str) -> UniqueClash:
    return UniqueClash(
        f"jobs[{index}]: job {existing} holds the unique key {new.job.unique_key!r} and is not settled yet; "
        "wait for it, or submit without on_clash='refuse' to get it back"
    )


def already_there(index: int, existing: str) -> AlreadySubmitted:
    return AlreadySubmitted(
        f"jobs[{index}]: it was submitted before, as job {existing}, and had to be new; nothing was stored",
        job_id=existing,
    )


def given_back(job: Job, *, now_ms: int, chain: Chain) -> Change:
    """The release of a claim that nobody heard of: its session lives on and beats, so no sweep would ever find it."""
    move = Move(to="pending", reason="its claimer was cancelled", fields={"releases": job.releases + 1})
    moved = apply(job, move, now_ms=now_ms, actor="store", chain=chain)
    return Change.of(job, moved)


def no_parent(index: int, parent: str) -> InvalidInput:
    return InvalidInput(
        f"jobs[{index}].parent", f"there is no job {parent} for it to be a unit of; it may have been deleted or trimmed"
    )


def no_dependency(index: int, place: int, awaited: str) -> InvalidInput:
    return InvalidInput(
        f"jobs[{index}].after[{place}]", f"there is no job {awaited} to wait for; it may have been deleted or trimmed"
    )


def id_conflict(index: int, job_id: str) -> Conflict:
    return Conflict(f"jobs[{index}]: there already is a job {job_id}; make a fresh id for each new job")
