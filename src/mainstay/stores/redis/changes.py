"""Inserting and changing rows.

What simply fits goes in one script, many at a time: nearly all there is. If one of them does not, none is written, and
all of them go through a transaction, in one commit. It lost a race, moves on somebody who waits, was the last unit of
its parent, or brings new jobs along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...lifecycle import Event
from ...model import Job, Leadership
from .. import change_check
from ..port import Change, ChangeResult, ClaimReport, InsertResult, NewJob
from . import waits
from .base import RedisBase
from .entry import EntryBatch, EntryFacts, answers_of, refusal_of
from .rows import claim_bytes, event_bytes, progress_text, row_bytes
from .scripts import blob
from .transaction import RedisTx, deposed, fence, transact

_decode = msgspec.msgpack.Decoder().decode
_APPLIED, _LAST = ord("0"), ord("1")


async def insert(base: RedisBase, jobs: Sequence[NewJob], *, forced: bool = False) -> list[InsertResult]:
    """Insert all or nothing. `forced`: to the server's disk, before it is answered."""
    known = EntryFacts()
    while True:
        entering = EntryBatch(jobs, known.ended, now_ms=base.clock.now_ms(), chain=base.chain)
        outcome, packed = await base.scripts.run("insert", [entering.args], forced=forced or base.forced)
        answers = _decode(packed)
        if outcome == b"done":
            base.tell(entering.written(answers))
            return answers_of(jobs, answers)
        error = refusal_of(jobs, answers, known)
        if error is not None:
            raise error


async def apply_changes(base: RedisBase, changes: Sequence[Change], lead: Leadership | None) -> list[ChangeResult]:
    """Write each change on its own merits, all in one commit."""
    if are_plain(changes):
        args = [fence(lead), [change_arg(change) for change in changes]]
        [told] = await base.scripts.run("apply", args, forced=base.forced)
        if told is None:
            raise deposed(lead)
        if all(outcome in (_APPLIED, _LAST) for outcome in told):
            base.tell([(change.before, change.after, change.events) for change in changes])
            return [
                ChangeResult("applied", change.after, outcome == _LAST)
                for change, outcome in zip(changes, told, strict=True)
            ]
    deciding = _Deciding(changes)
    answers, _ = await transact(base, deciding.decide, lead=lead, refused=deciding.refused)
    return answers


async def report(base: RedisBase, reports: Sequence[ClaimReport]) -> list[bool]:
    """Record what holders say, where they still hold."""
    [told] = await base.scripts.run("report", [[report_arg(item) for item in reports]])
    return [digit == ord("1") for digit in told]


def report_arg(item: ClaimReport) -> list[Any]:
    """A report as the scripts take it."""
    return [
        item.job_id,
        item.session,
        item.token,
        False if item.started_ms is None else item.started_ms,
        False if item.progress is None else progress_text(item.progress),
        False if item.checkpoint is None else blob(item.checkpoint),
    ]


def change_arg(change: Change) -> list[Any]:
    """A change as the scripts take it."""
    before, after = change.before, change.after
    seen: int | bool = False
    if change_check.takes_away(change):
        seen = -1 if before.progress_ms is None else before.progress_ms
    return [
        after.id,
        before.version,
        blob(row_bytes(after)),
        [blob(event_bytes(event)) for event in change.events],
        change_check.entered(change.events),
        False if (claim := claim_bytes(before)) is None else blob(claim),
        seen,
        change.on_last is not None,
        before.session or False,
        False if before.claimed_ms is None else before.claimed_ms,
    ]


def are_plain(changes: Sequence[Change]) -> bool:
    """Whether these are moves to other states, of different rows, that bring no new jobs and claim to fit."""
    return len({change.after.id for change in changes}) == len(changes) and all(
        not change.spawn and change.kind != "note" and _claims_to_fit(change) for change in changes
    )


def _claims_to_fit(change: Change) -> bool:
    """The scripts compare the version and the claim that its sender saw; so it is enough that it saw itself as the
    holder."""
    return bool(change.events) and (change.holder is None or change.before.session == change.holder)


class _Deciding:
    """Changes with all that may be in their way. One whose new jobs are refused is a conflict; the others go on."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes
        self._refused: set[int] = set()
        self._brought_by: list[int] = []

    async def decide(self, tx: RedisTx) -> list[ChangeResult]:
        self._brought_by = []
        await tx.look(
            [
                (change.after.id, change.after.status if change_check.is_settled(change.after) else None)
                for change in self._changes
            ]
        )
        answers = []
        for at, change in enumerate(self._changes):
            if at in self._refused:
                answers.append(ChangeResult("conflict", await tx.job(change.after.id)))
                continue
            answer = await _decide(tx, change)
            self._brought_by += [at] * (len(tx.new) - len(self._brought_by))
            answers.append(answer)
        return answers

    def refused(self, index: int) -> None:
        """One of the new jobs is refused."""
        self._refused.add(self._brought_by[index])


async def _decide(tx: RedisTx, change: Change) -> ChangeResult:
    job_id = change.after.id
    row = await tx.job(job_id)
    since: list[Event] = []
    if row is not None and row.version != change.before.version:
        since = (await tx.events_after(job_id, change.before.version))[: change_check.SINCE]
    outcome = change_check.judge(row, change, since)
    if outcome == "stale":
        _refuse(tx, change)
    if outcome != "applied" or row is None:
        return ChangeResult(outcome, row)
    after = change_check.landed(row, change)
    if await _takes_unique(tx, row, after):
        return ChangeResult("conflict", row)
    tx.put(row, after, change.events)
    tx.insert(change.spawn)
    await waits.settle(tx, [after])
    last = change_check.may_be_last(row, after) and await _closes(tx, after.parent or "", change)
    return ChangeResult("applied", after, last)


def _refuse(tx: RedisTx, change: Change) -> None:
    line = change_check.refusal(change, tx.now_ms)
    tx.call("HSETNX", f"refusals:{line.job_id}", line.token, msgspec.msgpack.encode(msgspec.structs.astuple(line)))


async def _takes_unique(tx: RedisTx, row: Job, after: Job) -> bool:
    """Whether a settled job would come back while another one holds its unique key."""
    if after.unique_key is None or not change_check.is_settled(row) or change_check.is_settled(after):
        return False
    return await tx.holds_unique(after.unique_key)


async def _closes(tx: RedisTx, parent_id: str, change: Change) -> bool:
    """True if no unit of the parent is open any more; its `on_last` move is then made here and now."""
    if await tx.open_units(parent_id) > 0:
        return False
    parent = await tx.job(parent_id)
    moved = change_check.parent_move(parent, change, tx.now_ms, tx.chain)
    if parent is not None and moved is not None:
        tx.put(parent, moved.job, moved.events)
        await waits.settle(tx, [moved.job])
    return True
