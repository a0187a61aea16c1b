"""Inserting and changing rows.

Changes that simply fit are written in one script, many at a time: nearly all of them. If one does not fit, none is
written, and all of them go through a transaction, in one commit. Such a change lost a race, moves on a waiting job, is
that of the last unit of its parent, or brings new jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...lifecycle import Event
from ...model import Job, Leadership
from .. import change_check
from ..port import ChangeResult, ClaimReport, InsertResult, NewJob, SealedChange
from . import waits
from .base import RedisBase
from .entry import EntryBatch, EntryFacts, refusal_of, results_of
from .rows import claim_bytes, event_bytes, progress_text, row_bytes
from .scripts import blob
from .transaction import RedisTx, deposed, fence, transact

_decode = msgspec.msgpack.Decoder().decode
_APPLIED, _LAST = ord("0"), ord("1")


async def insert(base: RedisBase, jobs: Sequence[NewJob], *, forced: bool = False) -> list[InsertResult]:
    """Insert all or nothing. `forced`: return when it is on the server's disk."""
    known = EntryFacts()
    while True:
        entering = EntryBatch(jobs, known.ended, now_ms=base.clock.now_ms(), chain=base.chain)
        outcome, packed = await base.scripts.run("insert", [entering.args], forced=forced or base.forced)
        reply = _decode(packed)
        if outcome == b"done":
            base.observe(entering.written(reply))
            return results_of(jobs, reply)
        error = refusal_of(jobs, reply, known)
        if error is not None:
            raise error


async def apply_changes(
    base: RedisBase, changes: Sequence[SealedChange], lead: Leadership | None
) -> list[ChangeResult]:
    """Decide on each change separately, and write all in one commit."""
    if are_plain(changes):
        args = [fence(lead), [change_arg(change) for change in changes]]
        [outcomes] = await base.scripts.run("apply", args, forced=base.forced)
        if outcomes is None:
            raise deposed(lead)
        if all(outcome in (_APPLIED, _LAST) for outcome in outcomes):
            base.observe([(change.before, change.after, change.events) for change in changes])
            return [
                ChangeResult("applied", change.after, outcome == _LAST)
                for change, outcome in zip(changes, outcomes, strict=True)
            ]
    decision = _ChangeDecision(changes)
    results, _ = await transact(base, decision.decide, lead=lead, refused=decision.refused)
    return results


async def report(base: RedisBase, reports: Sequence[ClaimReport]) -> list[bool]:
    """Record the reports of holders that still hold their claim."""
    [digits] = await base.scripts.run("report", [[report_arg(item) for item in reports]])
    return [digit == ord("1") for digit in digits]


def report_arg(item: ClaimReport) -> list[Any]:
    """A report as an argument of the scripts."""
    return [
        item.job_id,
        item.session,
        item.token,
        False if item.started_ms is None else item.started_ms,
        False if item.progress is None else progress_text(item.progress),
        False if item.checkpoint is None else blob(item.checkpoint),
    ]


def change_arg(change: SealedChange) -> list[Any]:
    """A change as an argument of the scripts."""
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


def are_plain(changes: Sequence[SealedChange]) -> bool:
    """Whether these are moves of different rows that bring no new jobs, and seem to fit."""
    return len({change.after.id for change in changes}) == len(changes) and all(
        not change.spawn and change.kind != "note" and _seems_to_fit(change) for change in changes
    )


def _seems_to_fit(change: SealedChange) -> bool:
    """The scripts compare the version and the claim that the sender saw, so it is enough that it saw itself as the
    holder."""
    return bool(change.events) and (change.holder is None or change.before.session == change.holder)


class _ChangeDecision:
    """Decides on changes, with all possible obstacles. A change whose new jobs are refused is a conflict; the others
    are written."""

    def __init__(self, changes: Sequence[SealedChange]) -> None:
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
        results = []
        for at, change in enumerate(self._changes):
            if at in self._refused:
                results.append(ChangeResult("conflict", await tx.job(change.after.id)))
                continue
            results.append(await _decide(tx, change))
            self._brought_by += [at] * (len(tx.new) - len(self._brought_by))
        return results

    def refused(self, index: int) -> None:
        """The new job with this index is refused."""
        self._refused.add(self._brought_by[index])


async def _decide(tx: RedisTx, change: SealedChange) -> ChangeResult:
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


def _refuse(tx: RedisTx, change: SealedChange) -> None:
    line = change_check.refusal(change, tx.now_ms)
    tx.call("HSETNX", f"refusals:{line.job_id}", line.token, msgspec.msgpack.encode(msgspec.structs.astuple(line)))


async def _takes_unique(tx: RedisTx, row: Job, after: Job) -> bool:
    """Whether a settled job would become unsettled while another job holds its unique key."""
    if after.unique_key is None or not change_check.is_settled(row) or change_check.is_settled(after):
        return False
    return await tx.holds_unique(after.unique_key)


async def _closes(tx: RedisTx, parent_id: str, change: SealedChange) -> bool:
    """Whether no unit of the parent is open any more; then makes its `on_last` move."""
    if await tx.open_units(parent_id) > 0:
        return False
    parent = await tx.job(parent_id)
    moved = change_check.parent_move(parent, change, tx.now_ms, tx.chain)
    if parent is not None and moved is not None:
        tx.put(parent, moved.job, moved.events)
        await waits.settle(tx, [moved.job])
    return True
