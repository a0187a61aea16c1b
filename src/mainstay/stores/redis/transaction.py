"""Decisions that Python must make: read, decide, and commit in one script that checks everything that was read.

If anything that was read has changed since, nothing is written and the decision runs again. So a decision may run
several times, and must only read and write through its `RedisTx`.

At first nothing is locked. But a decision about many jobs would never succeed while some of them change all the time.
So after a few attempts it takes the turn (`lua/turn.lua`): other calls that would change the jobs it has read wait
until it is written, or its time is over. One decision has the turn at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

import msgspec

from ...errors import MainstayError, NotLeader, StoreLocked
from ...lifecycle import Event
from ...model import Job, Leadership
from .. import change_check
from ..port import InsertResult, NewJob, Written
from .base import RedisBase
from .entry import EntryBatch, EntryFacts, refusal_of, results_of
from .rows import RawRow, claim_bytes, event_bytes, readable_job, row_bytes
from .scripts import blob

T = TypeVar("T")

_TRIES = 200
_LONGEST_PAUSE_S = 0.05
#: attempts that others may spoil before a decision takes the turn
_PATIENCE = 3
#: heartbeats of others may wait for it, so it is short against a lease; a long decision needs a longer one
_SHORTEST_TURN_S, _LONGEST_TURN_S = 1.0, 10.0
_decode = msgspec.msgpack.Decoder().decode


class RedisTx:
    """One attempt: what was read for it, and what it will write. Its reads include its own writes."""

    def __init__(self, base: RedisBase, standing: Collection[str] = ()) -> None:
        self.base = base
        self._standing = standing
        """units that are not inserted, because others stand for them"""
        self.chain = base.chain
        self.now_ms = base.clock.now_ms()
        self.written: list[Written] = []
        self._raw: dict[str, RawRow | None] = {}
        self._jobs: dict[str, Job | None] = {}
        self._damaged: set[str] = set()
        self._replies: dict[tuple[Any, ...], Any] = {}
        """command -> the reply, which must be the same at the commit"""
        self._acts: list[list[Any]] = []
        self.settling: dict[str, str] = {}
        self._units: Counter[str] = Counter()
        self._closed: set[tuple[str, str]] = set()
        self._fewer: Counter[str] = Counter()
        self._uniques: set[str] = set()
        self.new: Sequence[NewJob] = ()

    # -- reading --------------------------------------------------------------------------------

    async def load(self, ids: Sequence[str]) -> None:
        """Read many rows in one command."""
        missing = [job_id for job_id in dict.fromkeys(ids) if job_id not in self._raw]
        for job_id, raw in zip(missing, await self.base.raw(missing), strict=True):
            self._know(job_id, raw)

    async def look(self, changes: Sequence[tuple[str, str | None]], *, parents: bool = True) -> None:
        """Read everything that may be needed to decide on some changes (job, and the status it settles in), in one
        script. What was read before is not read again."""
        wanted = [
            [job_id, status or False, parents]
            for job_id, status in changes
            if job_id not in self._raw or (status and _watch(job_id) not in self._replies)
        ]
        if not wanted:
            return
        found, watch, left, units = await self.base.scripts.run("look", [wanted])
        for job_id, row, fixed, beside in found:
            if (name := job_id.decode()) not in self._raw:
                self._know(name, None if row is None else RawRow(row, fixed, beside))
        for job_id, watchers in watch:
            self._replies.setdefault(_watch(job_id.decode()), watchers)
        for job_id, n in left:
            self._replies.setdefault(("SCARD", f"left:{job_id.decode()}"), n)
        for job_id, n in units:
            self._replies.setdefault(("SCARD", f"open:{job_id.decode()}"), n)

    def _know(self, job_id: str, raw: RawRow | None) -> None:
        self._raw[job_id] = raw
        self._jobs[job_id] = None
        if raw is not None:
            self._jobs[job_id], damaged = readable_job(job_id, raw, self.chain)
            if damaged:
                self._damaged.add(job_id)

    async def job(self, job_id: str) -> Job | None:
        """A row, with harmless values in place of unreadable ones."""
        if job_id not in self._jobs:
            await self.load([job_id])
        return self._jobs[job_id]

    async def stored(self, job_id: str) -> RawRow | None:
        """A row as it is stored."""
        await self.job(job_id)
        return self._raw.get(job_id)

    async def whole(self, job_id: str) -> Job | None:
        """A row if all of it can be read: the options of a damaged row are not known."""
        row = await self.job(job_id)
        return None if job_id in self._damaged else row

    async def ask(self, command: str, name: str, *args: str | int) -> Any:
        """Anything else: a read-only command on one key, whose reply must be the same at the commit. It does not
        include the writes of this transaction."""
        request = (command, name, *args)
        if request not in self._replies:
            self._replies[request] = await self.base.call(command, name, *args)
        return self._replies[request]

    async def watchers(self, on: str) -> list[str]:
        """The jobs that wait for a job, in order."""
        stored = await self.ask(*_watch(on))
        return [waiter for each in stored if ((waiter := each.decode()), on) not in self._closed]

    async def waits_for_more(self, job_id: str) -> bool:
        left: int = await self.ask("SCARD", f"left:{job_id}")
        return left > self._fewer[job_id]

    async def open_units(self, parent: str) -> int:
        stored: int = await self.ask("SCARD", f"open:{parent}")
        return stored + self._units[parent]

    async def holds_unique(self, key: str) -> bool:
        """Whether an unsettled job holds a unique key."""
        holder = await self.ask("HGET", "unique", key)
        return key in self._uniques or (holder is not None and holder.decode() not in self.settling)

    async def events_after(self, job_id: str, seq: int) -> list[Event]:
        """The events of a job that was read, after a sequence number; as many as a decision needs."""
        # the row must be the same at the commit, so they fit together
        stored = await self.base.events(job_id, seq, change_check.SINCE)
        fresh = [event for _, after, events in self.written if after.id == job_id for event in events]
        return [event for event in (*stored, *fresh) if event.seq > seq]

    # -- writing --------------------------------------------------------------------------------

    def put(self, before: Job, after: Job, events: Sequence[Event], *, observed: bool = True) -> None:
        """Replace a row that was read, and append events. The reports of its holder stay as they are."""
        moved = change_check.entered(events)
        claim = claim_bytes(before)
        sealed = [blob(event_bytes(event)) for event in events]
        self._acts.append(
            ["put", after.id, blob(row_bytes(after)), sealed, moved, False if claim is None else blob(claim)]
        )
        was, now = change_check.is_settled(before), change_check.is_settled(after)
        if now and not was:
            self.settling[after.id] = after.status
        if was and not now and after.unique_key is not None:
            self._uniques.add(after.unique_key)
        if after.parent is not None:
            self._units[after.parent] += was - now
        self._jobs[after.id] = after
        if observed:
            self.written.append((before, after, events))

    def insert(self, jobs: Sequence[NewJob]) -> None:
        """Insert these after all other writes; `transact` returns their results."""
        self.new = (*self.new, *jobs)
        for new in jobs:
            if new.job.parent is not None and new.job.id not in self._standing:
                self._units[new.job.parent] += 1

    def drop(self, job_id: str, stone: Event | None = None) -> None:
        """Remove a row with everything that belongs to it, except its units and the jobs that wait for it."""
        self._acts.append(["drop", job_id, blob(event_bytes(stone)) if stone is not None else False])
        row = self._jobs.get(job_id)
        if row is not None and row.parent is not None and not change_check.is_settled(row):
            self._units[row.parent] -= 1
        self._jobs[job_id] = None

    def done(self, on: str, waiters: Sequence[str]) -> None:
        """These jobs no longer wait for `on`."""
        self._acts.append(["done", on, list(waiters)])
        self._closed.update((waiter, on) for waiter in waiters)
        self._fewer.update(waiters)

    def free(self, key: str) -> None:
        """Make blocked rows of a concurrency key ready, one for each of its free slots."""
        self._acts.append(["free", key])

    def call(self, command: str, name: str, *args: str | int | bytes) -> None:
        """Anything else: a command on one key."""
        self._acts.append(["call", command, name, *map(_packable, args)])

    @property
    def writes(self) -> bool:
        return bool(self._acts or self.new)

    def ids(self) -> list[str]:
        """The jobs that anything was read of."""
        return [*self._raw, *(name.partition(":")[2] for _, name, *_ in self._replies)]

    def args(self, lead: Leadership | None, entering: EntryBatch, who: str) -> list[Any]:
        seen = [
            [job_id, False, False]
            if raw is None
            else [job_id, blob(raw.row), False if raw.beside is None else blob(raw.beside)]
            for job_id, raw in self._raw.items()
        ]
        replies = [[list(request), _packable(reply)] for request, reply in self._replies.items()]
        settling = list(self.settling.items())
        return [fence(lead), seen, replies, entering.args, settling, self._acts, list(self._standing), who]


class _Turn:
    """The turn to write some jobs, for a decision that needs it."""

    def __init__(self, base: RedisBase) -> None:
        self._base = base
        self.who = ""

    async def take(self, ids: Sequence[str], took_s: float) -> bool:
        """Make other calls wait for as long as another attempt may take; False if another decision has the turn."""
        self.who = self.who or self._base.rng.randbytes(8).hex()
        ms = int(1000 * min(_LONGEST_TURN_S, max(_SHORTEST_TURN_S, 3 * took_s)))
        [taken] = await self._base.scripts.run("turn", ["take", self.who, ms, list(ids)])
        return bool(taken)

    async def leave(self) -> None:
        if self.who:
            with contextlib.suppress(MainstayError):  # it ends by itself
                await self._base.scripts.run("turn", ["leave", self.who])


async def transact(
    base: RedisBase,
    decide: Callable[[RedisTx], Awaitable[T]],
    *,
    lead: Leadership | None = None,
    refused: Callable[[int], None] | None = None,
) -> tuple[T, list[InsertResult]]:
    """Run a decision until it is committed on the data it was made on. Returns its own result, and the results of the
    jobs it inserts. If one of them is refused, nothing is written, and it raises what `insert` raises. With `refused`,
    that is called with the index of the job instead, and the decision runs again."""
    turn = _Turn(base)
    try:
        return await _transact(base, decide, lead, refused, turn)
    finally:
        await turn.leave()


async def _transact(
    base: RedisBase,
    decide: Callable[[RedisTx], Awaitable[T]],
    lead: Leadership | None,
    refused: Callable[[int], None] | None,
    turn: _Turn,
) -> tuple[T, list[InsertResult]]:
    known = EntryFacts()
    loop = asyncio.get_running_loop()
    spoilt = 0
    while spoilt < _TRIES:
        began = loop.time()
        tx = RedisTx(base, known.standing)
        value = await decide(tx)
        if not tx.writes and lead is None:
            return value, []
        entering = EntryBatch(tx.new, {**known.ended, **tx.settling}, now_ms=tx.now_ms, chain=base.chain)
        outcome, *rest = await base.scripts.run("commit", tx.args(lead, entering, turn.who), forced=base.forced)
        if outcome == b"done":
            reply = _decode(rest[0])
            base.observe([*tx.written, *entering.written(reply)])
            return value, results_of(tx.new, reply)
        if outcome == b"deposed":
            raise deposed(lead, rest)
        if outcome == b"refused":
            why = _decode(rest[0])
            error = refusal_of(tx.new, why, known)
            if error is not None:
                if refused is None:
                    raise error
                refused(why[1])
            continue
        spoilt += 1
        if spoilt >= _PATIENCE and await turn.take(tx.ids(), loop.time() - began):
            continue
        if spoilt > 1:
            await asyncio.sleep(base.rng.uniform(0, min(_LONGEST_PAUSE_S, 0.001 * spoilt)))
    raise StoreLocked(
        f"{base.server.address.shown}: others changed the same jobs during {_TRIES} attempts; nothing was written. "
        "Try again"
    )


def _watch(job_id: str) -> tuple[Any, ...]:
    """The command that reads the jobs that wait for a job."""
    return ("ZRANGE", f"watch:{job_id}", 0, -1)


def fence(lead: Leadership | None) -> Any:
    """A leadership as an argument of the scripts."""
    return False if lead is None else [lead.name, lead.holder, lead.epoch]


def deposed(lead: Leadership | None, current: Sequence[Any]) -> NotLeader:
    """The refusal of a leader; `current` are the holder and the epoch that the script found."""
    assert lead is not None
    holder, epoch = current
    now = Leadership(name=lead.name, holder=holder.decode(), epoch=epoch, until_ms=0) if epoch else None
    return change_check.not_leader(lead, now)


def _packable(value: Any) -> Any:
    if isinstance(value, list):
        return [_packable(each) for each in value]
    if isinstance(value, bytes):
        return blob(value)
    # no reply of the server is a float, so one would never compare equal
    assert not isinstance(value, float)
    return False if value is None else value
