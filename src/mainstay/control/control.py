"""Control: the object through which jobs are submitted, claimed, ended and operated."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ..errors import InvalidInput
from ..model import Leadership, Settings
from ..stores import JobStore, Trimmed, usual_settings
from . import retention
from .attempts import AttemptEnds, Attempts
from .claims import Claims, check_session
from .drivers import Drivers
from .duties import PLACEMENT, PLACEMENT_LEASE_S, Duties, Duty
from .job_factory import JobFactory
from .jobs import JobService
from .operations import Operations
from .rules.guard import SweepGuard
from .sweep import Sweeper
from .writer import Writer

#: how often the leader trims jobs that retention no longer keeps
RETENTION_EVERY_S = 60.0


class Control:
    """The rules, on any store.

    It has one part for each group of callers: `jobs`, `claims`, `attempts`, `drivers`, `operations`, `sweeper`. Writes
    of workers (`attempts.complete`, `fail`, `release` ...) take the row as it was claimed and return an `Outcome` per
    job. Writes of operators (`operations.cancel`, `retry`, `force` ...) name the actor and the reason, and raise if
    refused; the `..._many` forms return an outcome per job instead.

    Without `settings`, the environment (`MAINSTAY_LEASE=20s` ...) and then the defaults apply.

    >>> import asyncio
    >>> from mainstay.control import Completion
    >>> from mainstay.testing import MemoryStore
    >>> async def story():
    ...     control = Control(MemoryStore())
    ...     submitted = await control.jobs.submit("mail.send", {"to": "a@b.c"}, queue="mail", retries=5)
    ...     session = await control.claims.open_session()
    ...     jobs = await control.claims.claim(["mail"], session.id, 10)
    ...     await control.attempts.complete([Completion(job, result="sent") for job in jobs])
    ...     return (await control.jobs.get(submitted.id)).status
    >>> asyncio.run(story())
    'succeeded'
    """

    def __init__(
        self,
        store: JobStore,
        *,
        settings: Settings | None = None,
        rng: random.Random | None = None,
        actor: str = "client",
    ) -> None:
        if not hasattr(store, "insert") or not hasattr(store, "clock"):
            raise InvalidInput(
                "store", f"{store!r} is not an open store; pass what `await open_store('sqlite:///jobs.db')` returns"
            )
        self.store = store
        self.settings = settings = settings or Settings.from_env(os.environ, usual=usual_settings(store.url))
        rng = rng or random.Random()
        writer = Writer(store)
        guard = SweepGuard(lease_ms=round(settings.lease_s * 1000), heartbeat_ms=round(settings.heartbeat_s * 1000))
        self._rng = rng
        self.jobs = JobService(store, settings, JobFactory(settings, rng, actor), actor)
        """submit, read, wait"""
        self.claims = Claims(store, writer, guard, settings, rng)
        """sessions, and their writes between claim and end"""
        self.attempts = Attempts(writer, AttemptEnds(self.jobs, settings, rng))
        """how a worker ends an attempt: complete, fail, release ..."""
        self.drivers = Drivers(store, writer, self.jobs)
        """jobs that their units advance"""
        self.operations = Operations(store, writer, settings, self.drivers, actor)
        """the actions of operators: cancel, retry, force, delete; pause queues, drain workers"""
        self.sweeper = Sweeper(store, writer, guard, rng)
        """reaps dead sessions and ends jobs that overran"""

    async def retain(
        self,
        *,
        keep_count: Mapping[str, int] | None = None,
        lead: Leadership | None = None,
        batch: int = 1000,
    ) -> Trimmed:
        """Trim what retention no longer keeps: by age as the settings say, and by count if given."""
        return await retention.retain(self.store, self.settings, keep_count=keep_count, lead=lead, batch=batch)

    def duties(
        self,
        session: str,
        *,
        check: Callable[[Leadership], Awaitable[object]] | None = None,
        extra: Sequence[Duty] = (),
        retention_every_s: float = RETENTION_EVERY_S,
    ) -> Duties:
        """The leader's service for the session of this id: retention and the invariant check on their timers."""
        check_session(session)

        async def trim(lead: Leadership) -> object:
            return await self.retain(lead=lead)

        duties = [Duty("retention", retention_every_s, trim), *extra]
        if check is not None:
            duties.append(Duty("check", self.settings.check_s, check, first_s=self.settings.check_s / 4))
        return Duties(self.store, session, duties, lease_s=self.settings.lease_s, rng=self._rng)

    def placement_duties(self, session: str, duties: Sequence[Duty]) -> Duties:
        """The service of a node's session that competes for the lead `placement` and runs these duties under it."""
        check_session(session)
        return Duties(self.store, session, duties, name=PLACEMENT, lease_s=PLACEMENT_LEASE_S, rng=self._rng)
