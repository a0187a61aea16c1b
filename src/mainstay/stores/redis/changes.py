"""Inserting and changing rows.

Changes that simply fit are written in one script, many at a time: nearly all of them. If one does not fit, none is
written, and all of them go through a transaction, in one commit. Such a change lost a race, moves on a waiting job, is
that of the last unit of its parent, or brings new jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...lifecycle import Event
from ...model import Job, Leadership
from .. import change_check
from ..port import ChangeResult, ClaimReport, InsertResult, NewJob, SealedChange
from ..sealed_changes import FINE, withheld
from . import waits
from .base import RedisBase
from .entry import EntryBatch, EntryFacts, refusal_of, results_of
from .rows import claim_bytes, event_bytes, progress_text, row_bytes
from .scripts import blob
from .transaction import RedisTx, deposed, fence, transact

_decode = msgspec.msgpack.Decoder().decode
_APPLIED, _LAST = ord("0"), ord("1")


async def insert(
    base: RedisBase, jobs: Sequence[NewJob], lead: Leadership | None, *, forced: bool = False
) -> list[InsertResult]:
    """Insert all or nothing. `forced`: return when it is on the server's disk."""
    known = EntryFacts()
    while True:
        entering = EntryBatch(jobs, known.ended, now_ms=base.clock.now_ms(), chain=base.chain)
        args = [entering.args, fence(lead)]
        outcome, *rest = await base.scripts.run("insert", args, forced=forced or base.forced)
        if outcome == b"deposed":
            raise deposed(lead, rest)
        reply = _decode(rest[0])
        if outcome == b"done":
            base.observe(entering.written(reply))
            return results_of(jobs, reply)
        error = refusal_of(jobs, reply, known)
        if error is not None:
            raise error


async def apply_changes(
    base: RedisBase, changes: Sequence[SealedChange], lead: Leadership | None, *, together: bool = False
) -> list[ChangeResult]:
    """Decide on each change separately, and write all in one commit. `together`: all or none."""
    # one of the others may free the key: whether both fit would depend on their order
    if are_plain(changes) and not (together and any(map(change_check.taken_again, changes))):
        args = [fence(lead), [change_arg(change) for change in changes]]
        outcomes, *current = await base.scripts.run("apply", args, forced=base.forced)
        if outcomes is None:
            raise deposed(lead, current)
        if all(outcome in (_APPLIED, _LAST) for outcome in outcomes):
            base.observe([(change.before, change.after, change.events) for change in changes])
            return [
                ChangeResult("applied", change.after, outcome == _LAST)
                for change, outcome in zip(changes, outcomes, strict=True)
            ]
    decision = _ChangeDecision(changes)
    decide = decision.decide_together if together else decision.decide
    results, _ = await transact(base, decide, lead=lead, refused=decision.refused)
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
        await self._look(tx)
        results = []
        for at, change in enumerate(self._changes):
            result = await self._judge(tx, at)
            if result.outcome == "applied":
                [result] = await self._write(tx, {at: change})
            results.append(result)
        return results

    async def decide_together(self, tx: RedisTx) -> list[ChangeResult]:
        """All are judged before the first is written, so none sees the effects of another."""
        await self._look(tx)
        results = [await self._judge(tx, at) for at in range(len(self._changes))]
        fitting = {at: self._changes[at] for at, result in enumerate(results) if result.outcome == "applied"}
        clashing = change_check.retakes(fitting.values())
        results = [
            ChangeResult("conflict", result.job) if change.after.id in clashing else result
            for change, result in zip(self._changes, results, strict=True)
        ]
        if any(result.outcome not in FINE for result in results):
            return withheld(results)
        for at, result in zip(fitting, await self._write(tx, fitting), strict=True):
            results[at] = result
        return results

    async def _look(self, tx: RedisTx) -> None:
        self._brought_by = []
        await tx.look(
            [
                (change.after.id, change.after.status if change_check.is_settled(change.after) else None)
                for change in self._changes
            ]
        )

    async def _judge(self, tx: RedisTx, at: int) -> ChangeResult:
        change = self._changes[at]
        if at in self._refused:
            return ChangeResult("conflict", await tx.job(change.after.id))
        return await _judge(tx, change)

    async def _write(self, tx: RedisTx, changes: Mapping[int, SealedChange]) -> list[ChangeResult]:
        """Write changes that fit, by their place."""
        afters: list[Job] = []
        for at, change in changes.items():
            row = await tx.job(change.after.id)
            assert row is not None
            afters.append(change_check.landed(row, change))
            tx.put(row, afters[-1], change.events)
            tx.insert(change.spawn)
            self._brought_by += [at] * len(change.spawn)
        await waits.settle(tx, afters)
        _, last_units = change_check.affected(changes.values())
        last = {change.after.id for parent, change in last_units.items() if await _closes(tx, parent, change)}
        return [ChangeResult("applied", after, after.id in last) for after in afters]

    def refused(self, index: int) -> None:
        """The new job with this index is refused."""
        self._refused.add(self._brought_by[index])


async def _judge(tx: RedisTx, change: SealedChange) -> ChangeResult:
    """The outcome of a change; a stale one is recorded."""
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
    if (key := change_check.taken_again(change)) is not None and await tx.holds_unique(key):
        return ChangeResult("conflict", row)
    holder = change_check.new_holder(change)
    if holder is not None and await tx.ask("HGET", f"s:{holder}", "dead") != b"0":
        return ChangeResult("no_session", row)
    return ChangeResult("applied", row)


def _refuse(tx: RedisTx, change: SealedChange) -> None:
    line = change_check.refusal(change, tx.now_ms)
    tx.call("HSETNX", f"refusals:{line.job_id}", line.token, msgspec.msgpack.encode(msgspec.structs.astuple(line)))


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
