"""Submit: from requests to stored jobs. Everything is checked before anything is written."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..errors import Conflict, InvalidInput, UniqueClash
from ..lifecycle import Move, apply, table_of
from ..model import Job, Settings
from ..stores import Change, Durability, JobStore, NewJob
from ..stores.durability import strongest
from .making import JobMaker, Request
from .options import Plan

log = logging.getLogger("mainstay.control")

_INDEXED = re.compile(r"jobs\[(\d+)\](: |\.)")
_REPLACE_ROUNDS = 8

#: raises if this job may not be cancelled for another one
MayReplace = Callable[[Job], Awaitable[None]]


class Submitted(msgspec.Struct, frozen=True):
    """The job that stands for a request; `created` is False when it was there before."""

    id: str
    created: bool
    durability: str = ""
    """what the answer survives, in words: the level asked for, and what the store is configured to give"""
    by: Literal["", "key", "unique"] = ""
    """what gave the other job back: the idempotency key (that job may be gone since), or the unique key"""


class Submitter:
    """Makes and inserts jobs."""

    def __init__(self, store: JobStore, settings: Settings, rng: random.Random, actor: str) -> None:
        self._store = store
        self._maker = JobMaker(settings, rng, actor)
        self._actor = actor

    def plan(self, options: Mapping[str, Any]) -> Plan:
        """Read options once, to submit many jobs with them."""
        return self._maker.plan(options)

    async def submit(self, request: Request, *, may_replace: MayReplace | None = None) -> Submitted:
        """Submit one job. `may_replace` is asked before a job is cancelled for it."""
        store = self._store
        [(new, plan)] = self._maker.make([request], now_ms=store.clock.now_ms(), chain=store.chain)
        if plan.on_clash == "replace" and new.job.unique_key is not None:
            if plan.durability is not None:
                raise InvalidInput(
                    "durability",
                    "a submit with on_clash='replace' may have to cancel a job, and that is stored as the store's URL "
                    "says; leave it out, or put durability into the URL",
                )
            return await self._replace(new, may_replace)
        return (await self.insert([new], plan.durability))[0]

    async def submit_many(self, requests: Iterable[Request]) -> list[Submitted]:
        """Submit all or none."""
        store = self._store
        prepared = self._maker.make(requests, now_ms=store.clock.now_ms(), chain=store.chain)
        for index, (new, plan) in enumerate(prepared):
            if plan.on_clash == "replace" and new.job.unique_key is not None:
                raise InvalidInput(f"requests[{index}].on_clash", "'replace' works for one job at a time; use submit")
        if not prepared:
            return []
        return await self.insert([new for new, _ in prepared], strongest(plan.durability for _, plan in prepared))

    def new_jobs(self, requests: Iterable[Request], *, actor: str | None = None) -> tuple[NewJob, ...]:
        """Jobs to be inserted by somebody else's write: a completion, a schedule's tick."""
        now_ms, chain = self._store.clock.now_ms(), self._store.chain
        return self._maker.together(requests, now_ms=now_ms, chain=chain, actor=actor)

    async def insert(self, jobs: Sequence[NewJob], durability: Durability | None) -> list[Submitted]:
        """Insert all or none. A refusal names a job by its place among the requests."""
        store = self._store
        try:
            if durability is None:
                text, made = store.durability, await store.insert(jobs)
            else:
                text = store.durability_of(durability)
                made = await store.insert(jobs, durability=durability)
        except (Conflict, InvalidInput) as error:
            raise in_requests(error, len(jobs)) from error.__cause__
        return [Submitted(each.id, each.created, text, each.by) for each in made]

    async def _replace(self, new: NewJob, may_replace: MayReplace | None) -> Submitted:
        """Insert, or cancel the waiting holder of the unique key and insert in the same transaction."""
        for _ in range(_REPLACE_ROUNDS):
            [made] = await self.insert([new], None)
            # by its key, it was sent before: that job stands for it, even if it is deleted by now
            if made.created or made.by == "key":
                return made
            holder = (await self._store.get([made.id]))[0]
            if holder is None:
                continue
            change = self._replacement(holder, new)
            if change is None:
                continue
            if may_replace is not None:
                await may_replace(holder)
            if (await self._store.apply([change]))[0].outcome != "applied":
                continue
            # a spawned job may have met another with its key; the answer does not say, so look before promising it
            if (await self._store.get([new.job.id]))[0] is not None:
                log.info("replaced job_id=%s by=%s", holder.id, new.job.id)
                return Submitted(new.job.id, True, self._store.durability)
        raise Conflict(f"unique key {new.job.unique_key!r}: others kept taking it; nothing was submitted, try again")

    def _replacement(self, holder: Job, new: NewJob) -> Change | None:
        """The change that puts `new` in the place of the holder; None when the holder has just settled."""
        state = table_of(holder.parent).get(holder.status)
        if state is not None and state.settled:
            return None
        if state is None or state.holds:
            raise UniqueClash(
                f"job {holder.id} holds the unique key {new.job.unique_key!r} and is {holder.status}; only a waiting "
                "job can be replaced: wait for it, or cancel it first"
            )
        move = Move(to="cancelled", reason=f"replaced by {new.job.id}", details={"replaced_by": new.job.id})
        now_ms = self._store.clock.now_ms()
        moved = apply(holder, move, now_ms=now_ms, actor=self._actor, chain=self._store.chain)
        return Change.of(holder, moved, spawn=(new,))


def in_requests(error: Conflict | InvalidInput, many: int) -> Conflict | InvalidInput:
    """A store's refusal, which calls its jobs by their index, in the words of whoever submitted them."""
    first = error.field if isinstance(error, InvalidInput) else str(error)
    found = _INDEXED.match(first)
    if found is None:
        return error
    rest = first[found.end() :]
    said = rest if many == 1 else f"requests[{found[1]}]{found[2]}{rest}"
    if isinstance(error, InvalidInput):
        error.field, said = said, f"{said}: {error.rule}"
    error.args = (said,)
    return error


__all__ = ["MayReplace", "Request", "Submitted", "Submitter", "in_requests"]
