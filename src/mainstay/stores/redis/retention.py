"""Trimming by policy, in short steps of the script `retention`; and deleting by an operator."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...lifecycle import tombstone
from ...model import Leadership, first_id_at
from .. import change_check
from ..bounds import LONG, TICKS_KEPT_MS
from ..port import Deletion, Trimmed, TrimPolicy
from . import waits
from .base import RedisBase
from .rows import event_bytes
from .transaction import RedisTx, deposed, fence, transact

#: rows that one step reads: the server is blocked for as long
_LOOK = 2000
#: rows that one step removes, including units
_STEP = 250
#: for this time a walk begins where an earlier one has seen that all jobs before are kept by their own retention; a job
#: that was run again may be before it
_TRUSTED_MS = 3_600_000


class _Kept(msgspec.Struct):
    """The jobs of a status up to an id are kept by their own retention, as seen at a time."""

    up_to: str
    at_ms: int


_kept: weakref.WeakKeyDictionary[RedisBase, dict[str, _Kept]] = weakref.WeakKeyDictionary()


async def trim(base: RedisBase, policy: TrimPolicy, lead: Leadership | None) -> Trimmed:
    """Remove one batch."""
    steps = _Steps(base, lead)
    jobs = 0
    for status, before_ms in policy.settled_before_ms.items():
        jobs += await steps.walk("settled", policy.batch - jobs, status, first_id_at(before_ms), before_ms)
    jobs += await steps.past_their_own(policy.batch - jobs)
    for status, most in policy.keep_count.items():
        jobs += await steps.walk("excess", policy.batch - jobs, status, most)
    events, trimmed = await steps.trim_events(policy)
    [keys] = await steps.do("keys", policy.batch, TICKS_KEPT_MS)
    return Trimmed(jobs, events, keys, policy.batch in (jobs, trimmed, keys))


class _Steps:
    """The steps of one trim; each checks the leadership."""

    def __init__(self, base: RedisBase, lead: Leadership | None) -> None:
        self._base = base
        self._lead = lead

    async def do(self, what: str, *args: Any) -> list[Any]:
        outcome, *rest = await self._base.scripts.run("retention", [fence(self._lead), what, *args])
        if outcome != b"done":
            raise deposed(self._lead, rest)
        return rest

    async def walk(self, what: str, most: int, status: str, *args: Any) -> int:
        """Remove up to `most` jobs of a status, oldest first. Returns their number."""
        jobs, after = 0, self._start(status)
        first = after
        while jobs < most:
            removed, last, more, kept = await self.do(what, status, after, most - jobs, _STEP, _LOOK, *args)
            if after == first and kept:
                first = kept.decode()
            jobs, after = jobs + removed, last.decode()
            if not after and not more:
                break
        self._remember(status, first)
        return jobs

    def _start(self, status: str) -> str:
        known = _kept.get(self._base, {}).get(status)
        if known is None or self._base.clock.lease_ms() - known.at_ms >= _TRUSTED_MS:
            return ""
        return known.up_to

    def _remember(self, status: str, up_to: str) -> None:
        known = _kept.setdefault(self._base, {})
        since_ms = known[status].at_ms if self._start(status) else self._base.clock.lease_ms()
        known[status] = _Kept(up_to, since_ms)

    async def past_their_own(self, most: int) -> int:
        """Remove up to `most` jobs whose own retention is over. Returns their number."""
        jobs = passed = 0
        more = 1
        while more and jobs < most:
            removed, kept, more = await self.do("kept", most - jobs, _STEP, _LOOK, passed)
            jobs, passed = jobs + removed, passed + kept
        return jobs

    async def trim_events(self, policy: TrimPolicy) -> tuple[int, int]:
        """Trim long histories. Returns the number of events, and of jobs."""
        if policy.keep_events is None:
            return 0, 0
        events = jobs = 0
        after = "-"
        while jobs < policy.batch:
            room = min(_STEP, policy.batch - jobs)
            ids: Any = False
            if policy.keep_events < LONG:
                page = await self._base.call("ZRANGE", "all", after, "+", "BYLEX", "LIMIT", 0, _LOOK)
                ids, room = [each.decode() for each in page], policy.batch - jobs
            removed, done = await self.do("events", policy.keep_events, room, ids)
            events, jobs = events + removed, jobs + done
            if ids is False:
                if done < room:
                    break
            elif len(ids) < _LOOK:
                break
            else:
                after = f"({ids[-1]}"
        return events, jobs


async def delete(
    base: RedisBase, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None
) -> list[Deletion]:
    """Delete unclaimed jobs with their units; a tombstone stays. Jobs that wait for them move on in the same step."""
    return [await _delete(base, job_id, actor, reason, versions) for job_id in ids]


async def _delete(
    base: RedisBase, job_id: str, actor: str, reason: str, versions: Mapping[str, int] | None
) -> Deletion:
    stones: list[bytes] = []
    steps = _Steps(base, None)
    wanted = versions.get(job_id, False) if versions else False
    # the units of a settled job are removed first and in steps: there may be very many
    while (await steps.do("units", job_id, _STEP, wanted))[0] == _STEP:
        pass

    async def decide(tx: RedisTx) -> Deletion:
        job = await tx.job(job_id)
        if job is None:
            # an earlier attempt may have deleted it, and its reply was lost
            left = await base.call("LINDEX", f"e:{job_id}", 0) if stones else None
            return "deleted" if left in stones else "missing"
        units = [each.decode() for each in await tx.ask("ZRANGE", f"units:{job_id}", 0, -1)]
        await tx.load(units)
        family = [job, *[row for unit in units if (row := await tx.job(unit)) is not None]]
        result = change_check.deletion(job, any(row.session is not None for row in family), versions)
        if result != "deleted":
            return result
        for unit in units:
            tx.drop(unit)
        stone = tombstone(job, now_ms=tx.now_ms, actor=actor, reason=reason, chain=tx.chain)
        stones.append(event_bytes(stone))
        tx.drop(job_id, stone)
        await waits.follow(tx, [(each, change_check.GONE) for each in (*units, job_id)])
        return result

    deletion, _ = await transact(base, decide)
    return deletion
