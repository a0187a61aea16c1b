"""The decisions that every adapter makes in the same way: pure functions of the stored row and the request.

An adapter reads, calls these functions, and writes. So all adapters give the same results, and the decisions can be
tested without an engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from ..errors import (
    AlreadySubmitted,
    Conflict,
    InvalidInput,
    InvalidTransition,
    KeyConflict,
    NotLeader,
    UniqueClash,
)
from ..lifecycle import Chain, Event, Move, Moved, apply, is_stopping, table_of, time_text
from ..model import LEAD_QUEUE, PLACE_MS, PLACE_QUEUE, ErrorInfo, Job, Lane, Leadership, expiry, is_claimable
from .bounds import SUBMITTED
from .port import ClaimReport, Key, NewJob, Outcome, RefusedWrite, SealedChange, Written

#: the states of a placed unit that was taken from its session; one that the session itself gave back looks the same
TAKEN_BACK = ("pending", "timed_out")
#: what placement leaders subscribe to: the status of a row that is placed, or led, has changed. Unlike the topic of a
#: queue it wakes all subscribers
PLACEMENT_TOPIC = "placement"
#: how many events after `change.before` an adapter passes to `judge`: one claim has far fewer
SINCE = 100


def judge(row: Job | None, change: SealedChange, since: Sequence[Event]) -> Outcome:
    """The outcome of a change.

    `since` are the first `SINCE` stored events of the job after `change.before.version`. If they show that this change
    was written before, the outcome is `already_applied`, even if the job was claimed again since.
    """
    if row is None:
        return "missing"
    before, after = change.before, change.after
    if change.events and _was_written(row, change, since):
        return "already_applied"
    # A server that crashed may have lost a claim whose holder is still alive. The same version and token were then
    # given to another claim, and only the heads differ.
    same = row.version == before.version and row.head == before.head
    if change.holder is not None and (
        (row.session, row.token) != (change.holder, before.token) or (row.version == before.version and not same)
    ):
        return "stale"
    # a note keeps the status, so an equal status proves nothing
    same_outcome = change.kind != "note" and row.token == before.token and row.status == after.status
    unseen = takes_away(change) and row.progress_ms != before.progress_ms
    if change.events and same and not unseen and not _shrinks(row, after):
        return "applied"
    return "already_applied" if same_outcome else "conflict"


def _was_written(row: Job, change: SealedChange, since: Sequence[Event]) -> bool:
    """Whether this change, or the same one decided at another time, was written before.

    A change that is sent again is decided again, so its time, its reasons and the events after its first may differ. A
    holder ends its claim in a given way only once, so its event counts at any place. Other callers may want the same
    change twice, so their event must be at the place where this change would be written.
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


def takes_away(change: SealedChange) -> bool:
    """Whether a caller other than the holder ends a claim. That caller must have seen the last progress: progress does
    not change the version, and a job that has just reported some must not time out for a lack of it."""
    return change.holder is None and change.before.session is not None and change.after.session is None


def new_holder(change: SealedChange) -> str | None:
    """The session that a change gives the row to; None: it does not change hands. It must be open: a row that was given
    to a closed session would wait until a sweep finds it."""
    after = change.after
    return after.session if after.session is not None and after.session != change.before.session else None


def taken_again(change: SealedChange) -> str | None:
    """The unique key that a change takes again, because it opens a settled job; None: it takes none."""
    return change.after.unique_key if is_settled(change.before) and not is_settled(change.after) else None


def retakes(changes: Iterable[SealedChange], held: Container[str] = ()) -> set[str]:
    """Of changes that fit and are written together, the jobs that would take a unique key again which is `held`, or
    which an earlier one takes. A key that one of them frees counts as held: otherwise their order would matter."""
    clashing: set[str] = set()
    taken: set[str] = set()
    for change in changes:
        if (key := taken_again(change)) is None:
            continue
        if key in taken or key in held:
            clashing.add(change.after.id)
        taken.add(key)
    return clashing


def deletion(row: Job, held: bool, versions: Mapping[str, int] | None) -> Literal["deleted", "held", "changed"]:
    """The outcome of deleting a row. `held`: a session holds the row or one of its units."""
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


def landed(row: Job, change: SealedChange) -> Job:
    """The row after an applied change: `change.after`, with what the holder has reported since `change.before`."""
    after = change.after
    if row.progress_ms == after.progress_ms and row.progress == after.progress and row.checkpoint == after.checkpoint:
        return after
    kept = msgspec.structs.replace(after, progress=row.progress, progress_ms=row.progress_ms, checkpoint=row.checkpoint)
    if after.status == row.status and after.session is not None and row.expires_ms != change.before.expires_ms:
        # a note based on an older row must not take back the time that a later report gained
        return msgspec.structs.replace(kept, expires_ms=expiry(kept))
    return kept


def reported(row: Job | None, report: ClaimReport, now_ms: int) -> Job | None:
    """The row after a holder's report; None if the session no longer holds the token."""
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
        # while cancelling, the time is the end of the grace period; progress does not extend it
        return after
    return msgspec.structs.replace(after, expires_ms=expiry(after))


def refusal(change: SealedChange, now_ms: int) -> RefusedWrite:
    """The record of a stale change."""
    return RefusedWrite(change.before.id, change.before.token, change.holder or "", change.after.status, now_ms)


# what follows from a written row -------------------------------------------------------------------


def is_settled(job: Job) -> bool:
    """Whether nothing more happens to it by itself."""
    return job.settled_ms is not None


def slot(job: Job) -> str | None:
    """The concurrency key of which this row takes a slot now: held rows do."""
    return job.concurrency_key if job.session is not None else None


def freed(before: Job, after: Job | None) -> str | None:
    """The concurrency key whose best blocked rows may become ready after a change from `before` to `after`.

    The key of a slot that became free; and of a ready row that left without taking the slot it was promoted for
    (cancelled, postponed, deleted), because otherwise no later event would free it.
    """
    if before.concurrency_key is None or (after is not None and after.session is not None):
        return None
    if before.session is not None:
        return before.concurrency_key
    left = before.lane == Lane.READY and (after is None or after.lane != Lane.READY)
    return before.concurrency_key if left else None


def topics(before: Job | None, after: Job) -> list[str]:
    """The topics to wake after a row was inserted (`before` None) or changed."""
    woken = []
    if after.lane == Lane.READY and (before is None or before.lane != Lane.READY):
        woken.append(f"queue:{after.queue}")
    if is_settled(after) and (before is None or not is_settled(before)):
        woken.append(f"job:{after.id}")
    moved = before is None or before.status != after.status
    if moved and after.session and is_stopping(after.parent, after.status):
        woken.append(f"session:{after.session}")
    if after.parent is not None:
        woken += _unit_topics(before, after)
    if moved and after.queue == PLACE_QUEUE and after.lane != Lane.READY:
        woken.append(f"queue:{PLACE_QUEUE}")
    if moved and after.queue in (PLACE_QUEUE, LEAD_QUEUE):
        woken.append(PLACEMENT_TOPIC)
    return woken


def _unit_topics(before: Job | None, after: Job) -> list[str]:
    """A unit was assigned to a session, or its session is asked about it again; or it was cancelled while a session had
    it, for a unit has no state in which it is asked to stop; or a placed unit was taken back."""
    if after.status == "dispatched" and after.session and (before is None or before.version != after.version):
        return [f"session:{after.session}"]
    ends = after.status == "cancelled" or (after.queue == PLACE_QUEUE and after.status in TAKEN_BACK)
    if ends and before is not None and before.session:
        return [f"session:{before.session}"]
    return []


def falls_due(before: Job | None, after: Job) -> bool:
    """Whether a row has begun to wait for a time, or for an earlier time than before. If it is the first of its queue,
    a subscriber must be woken: sleeping ones only know the earlier due times."""
    if after.lane != Lane.DUE or after.due_ms >= PLACE_MS:
        return False
    return before is None or before.lane != Lane.DUE or after.due_ms < before.due_ms


#: flags of events that do not move the job
NO_MOVE = frozenset({"note", "tombstone"})


def moves(event: Event) -> bool:
    """Whether an event moved its job, for the rates. A note does not."""
    return event.flag not in NO_MOVE


def entered(events: Iterable[Event]) -> list[str]:
    """What the events of one row add to the rates: the states that its moves led to, and its submit."""
    states: list[str] = []
    for event in events:
        if event.flag in NO_MOVE:
            continue
        if event.source is None and not states:
            states.append(SUBMITTED)
        states.append(event.to)
    return states


class WriteEffects:
    """What one transaction wrote, for the counts, the wakes and the observer."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.tallies: Counter[tuple[str, str]] = Counter()
        """(queue, status) -> how many more jobs it has"""
        self.entered: Counter[str] = Counter()
        """for the rates: see `entered`"""
        self.woken: Counter[str] = Counter()
        """topics to wake beside those of the written rows"""
        self.soonest: dict[str, int] = {}
        """queue -> the earliest time that a written row now waits for"""

    def wrote(self, written: Sequence[Written]) -> None:
        """Record rows that were inserted (`None` before) or changed, with their events."""
        self.written += written
        tallies, counts = self.tallies, self.entered
        for before, after, events in written:
            if after.lane == Lane.DUE and falls_due(before, after):
                self.soonest[after.queue] = min(after.due_ms, self.soonest.get(after.queue, after.due_ms))
            if after.parent is not None:
                continue
            if before is None or before.status != after.status:
                tallies[after.queue, after.status] += 1
                if before is not None:
                    tallies[after.queue, before.status] -= 1
            counts.update(entered(events))

    def count(self, queue: str, before: str | None, after: str | None, n: int = 1) -> None:
        """Record that jobs moved between statuses; None stands for "not stored"."""
        if before == after:
            return
        if before is not None:
            self.tallies[queue, before] -= n
        if after is not None:
            self.tallies[queue, after] += n

    def wake(self, topic: str, n: int = 1) -> None:
        self.woken[topic] += n

    def add(self, other: WriteEffects) -> None:
        """Add what another part of the transaction wrote."""
        self.written += other.written
        self.tallies.update(other.tallies)
        self.entered.update(other.entered)
        self.woken.update(other.woken)
        for queue, due_ms in other.soonest.items():
            self.soonest[queue] = min(due_ms, self.soonest.get(queue, due_ms))


def affected(changes: Iterable[SealedChange]) -> tuple[set[str], dict[str, SealedChange]]:
    """What applied changes may affect: the concurrency keys that may have a free slot; and parent -> the change of a
    unit that may be its last open one."""
    keys: set[str] = set()
    last_units: dict[str, SealedChange] = {}
    for change in changes:
        after = change.after
        if after.parent is not None and may_be_last(change.before, after):
            last_units[after.parent] = change
        # the caller may have seen an older lane: a blocked row may have become ready since
        if after.concurrency_key is not None and after.session is None:
            keys.add(after.concurrency_key)
    return keys, last_units


def may_be_last(before: Job, after: Job) -> bool:
    """Whether this change settled a unit, so that the parent may have no open unit left."""
    return after.parent is not None and is_settled(after) and not is_settled(before)


def parent_move(parent: Job | None, change: SealedChange, now_ms: int, chain: Chain) -> Moved | None:
    """`on_last` applied to the parent as it is now; None if there is nothing to write.

    A parent that has moved since (cancelled, timed out) keeps its state; the sender of the change gets `last` and
    decides.
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
    """Whether its state needs a holder and it has none, because its units advance it."""
    state = table_of(job.parent).get(job.status)
    return job.session is None and state is not None and state.holds


# waiting for other jobs -----------------------------------------------------------------------------

#: the status that stands for a deleted job
GONE = "deleted"


def keeps_waiting(status: str, *, more: bool) -> bool:
    """Whether the end of one job leaves its dependants waiting, because they wait for `more` jobs. Then their rows need
    not be read, whatever their options say."""
    return more and status == "succeeded"


def dependant_move(
    row: Job | None, on: str, status: str, *, more: bool, now_ms: int, chain: Chain, actor: str = "store"
) -> Moved | None:
    """The move of a row that waits for the job `on`, which has settled in `status` or is `GONE`; None: none yet.

    `more`: it waits for other jobs, too. A row that no longer waits (it was cancelled, or forced on) stays as it is.
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
    """The move of a row that still waits although none of its jobs is open. `awaited` are the settled ones that are
    still stored. The others were trimmed; a bad end of one would have moved the row at that time."""
    for on, status in awaited:
        if row.options.after_when != "settled" and status != "succeeded":
            return dependant_move(row, on, status, more=False, now_ms=now_ms, chain=chain, actor="check")
    return dependant_move(row, row.id, "succeeded", more=False, now_ms=now_ms, chain=chain, actor="check")


def is_waiting(row: Job) -> bool:
    """Whether a row waits for other jobs."""
    state = table_of(row.parent).get(row.status)
    return row.awaits and state is not None and state.waiting


def _released(row: Job, now_ms: int) -> Move:
    """All jobs it waited for are done: it becomes ready, or waits for its own time."""
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
    # the due time must no longer mark it as waiting: an operator may send it back to the queue
    if row.options.after_failed != "fail":
        return Move(to="skipped", reason=why, details=details, fields={"due_ms": now_ms})
    error = ErrorInfo(type="DependencyFailed", code="dependency_failed", message=why, retryable=False)
    details["error"] = msgspec.to_builtins(error)
    return Move(to="failed", reason=why, details=details, fields={"due_ms": now_ms, "error": error})


# refusals -------------------------------------------------------------------------------------------


def not_leader(lead: Leadership, current: Leadership | None = None) -> NotLeader:
    """The refusal of a leader whose epoch is over. `current` is the leadership as it is stored now."""
    holder = (current.holder or None) if current is not None else None
    by = f"; session {holder} leads now, in epoch {current.epoch}" if current is not None and holder else ""
    return NotLeader(
        f"session {lead.holder} no longer leads {lead.name!r} (epoch {lead.epoch} is over){by}; nothing was written",
        holder=holder,
        epoch=None if current is None else current.epoch,
    )


def admit_claim(queues: Iterable[str]) -> None:
    """Refuse a claim from a queue whose rows are assigned."""
    for queue in queues:
        if not is_claimable(queue):
            raise InvalidInput("queues", f"{queue!r} is reserved: a leader assigns its rows; claim from other queues")


# keys of new jobs -----------------------------------------------------------------------------------


class BatchKeys:
    """Finds the job that stands for a new one, by its idempotency key or its unique key: among the stored jobs, and
    among the earlier ones of the batch."""

    def __init__(
        self, stored_key: Callable[[Key], tuple[bytes, str] | None], stored_unique: Callable[[str], str | None]
    ) -> None:
        """`stored_key` returns the content and the job of a live key; `stored_unique` the unsettled holder."""
        self._stored_key = stored_key
        self._stored_unique = stored_unique
        self._keys: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._uniques: dict[str, str] = {}

    def holder(self, index: int, new: NewJob) -> tuple[str, Literal["key", "unique"]] | None:
        """The other job, and which key it holds. If there is none, the new job takes both keys for the rest of the
        batch."""
        job, key = new.job, new.key
        if key is not None:
            known = self._keys.get((key.scope, key.name)) or self._stored_key(key)
            if known is not None:
                content, holder = known
                if content != key.content:
                    raise key_conflict(index, key, holder)
                return holder, "key"
        if job.unique_key is not None:
            unique_holder = self._uniques.get(job.unique_key) or self._stored_unique(job.unique_key)
            if unique_holder is not None:
                if unique_holder != job.id and new.on_clash == "refuse":
                    raise unique_clash(index, new, unique_holder)
                return unique_holder, "unique"
            self._uniques[job.unique_key] = job.id
        if key is not None:
            self._keys[key.scope, key.name] = (key.content, job.id)
        return None


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
        f"jobs[{index}] must be new, but was already submitted as job {existing}; nothing was stored",
        job_id=existing,
    )


def given_back(job: Job, *, now_ms: int, chain: Chain) -> SealedChange:
    """The release of a claim whose caller was cancelled. Its session lives and beats, so no sweep would find it."""
    move = Move(to="pending", reason="its claimer was cancelled", fields={"releases": job.releases + 1})
    moved = apply(job, move, now_ms=now_ms, actor="store", chain=chain)
    return SealedChange.of(job, moved)


def was_inserted(new: NewJob, first: Event | None, row: Job | None) -> bool:
    """Whether this very job is stored already: it was sent again because the answer was lost. `first` is its oldest
    stored event, `row` the stored row."""
    digest = new.events[0].digest
    if first is not None and first.seq == 1:
        return first.digest == digest
    return row is not None and row.trimmed_seq == 1 and row.trimmed_digest == digest


def no_parent(index: int, parent: str) -> InvalidInput:
    return InvalidInput(
        f"jobs[{index}].parent", f"there is no job {parent} for this unit; it may have been deleted or trimmed"
    )


def no_dependency(index: int, place: int, awaited: str) -> InvalidInput:
    return InvalidInput(
        f"jobs[{index}].after[{place}]", f"there is no job {awaited} to wait for; it may have been deleted or trimmed"
    )


def id_conflict(index: int, job_id: str) -> Conflict:
    return Conflict(f"jobs[{index}]: a job {job_id} already exists; use a fresh id for each new job")
