"""The base of every operation of the store: one namespace on one server."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ...clock import Clock
from ...lifecycle import Chain, Event
from ...model import Job
from ..open_claim import claim_event
from ..port import Observer, Written
from ..routes import Offers
from .connection import RedisServer
from .rows import RawRow, is_open, readable_event, readable_job
from .scripts import Scripts


class RedisBase:
    """The server, its scripts, and reading by id. Use it on the home loop only."""

    def __init__(self, server: RedisServer, *, clock: Clock, chain: Chain, rng: random.Random | None = None) -> None:
        self.server = server
        self.clock = clock
        self.chain = chain
        self.rng = rng or random.Random()
        self.scripts = Scripts(server, clock, self.rng)
        self.forced = False
        """submits and ends of jobs are forced to the server's disk before they return"""
        self.offers = Offers()
        self.observer: Observer | None = None

    def key(self, name: str) -> str:
        return self.scripts.key(name)

    async def call(self, command: str, name: str, *args: Any) -> Any:
        """One command on one key of the namespace. Returns the reply as a script would see it."""
        key = self.key(name)
        return await self.server.call(lambda wire: wire.ask(command, key, *args))

    async def raw(self, ids: Sequence[str]) -> list[RawRow | None]:
        """Jobs as they are stored, read in one command."""
        if not ids:
            return []
        keys = [self.key(f"{part}:{job_id}") for job_id in ids for part in "rfx"]
        values = await self.server.call(lambda wire: wire.ask("MGET", *keys))
        triples = zip(values[::3], values[1::3], values[2::3], strict=True)
        return [None if row is None else RawRow(row, fixed, beside) for row, fixed, beside in triples]

    async def jobs(self, ids: Sequence[str]) -> list[Job | None]:
        """Jobs to read or to move on, with harmless values in place of unreadable ones."""
        rows = zip(ids, await self.raw(ids), strict=True)
        return [None if raw is None else readable_job(job_id, raw, self.chain)[0] for job_id, raw in rows]

    async def events(self, job_id: str, after: int, limit: int) -> list[Event]:
        """Events of a job after a sequence number, in order, including that of an open claim."""
        *parts, stored = await self.scripts.run("queries", ["history", job_id, after, limit])
        events = [readable_event(job_id, each) for each in stored]
        if parts[0] is not None and is_open(raw := RawRow(*parts)):
            events.append(claim_event(readable_job(job_id, raw, self.chain)[0]))
        return [event for event in events if event.seq > after][:limit]

    def observe(self, written: Sequence[Written]) -> None:
        """Pass written rows to the observer."""
        if self.observer is not None and written:
            self.observer(written)
