"""Duties: what one session does for all sessions while it holds the leader lease.

The keeper takes the lease and renews it several times within its length. The worker runs each duty on its timer, each
in its own task, so that a long one does not delay the others. When the keeper learns that the lease is lost, or cannot
tell any more, it stops the worker at once; the store refuses a late write, because each write carries the epoch. While
the store is unreachable, both try again with growing waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ..errors import NotLeader, StoreError
from ..model import Leadership
from ..stores import JobStore
from .failure import shown

log = logging.getLogger("mainstay.control")

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
_LOOK_S = 1.0


class Duty(msgspec.Struct, frozen=True):
    """Something the leader does on a timer. `run` gets the leadership that its writes must carry. If it returns a
    float, it runs again after that many seconds, if that is sooner than `every_s`."""

    name: str
    every_s: float
    run: Callable[[Leadership], Awaitable[object]]
    first_s: float = 0.0
    """seconds from taking the lead to the first run: an expensive duty should not add to the load of a start"""


class Duties:
    """A service: `start`, then `stop`; each is safe to call twice, and in any order.

    Every worker runs one; the store decides which of them leads. `lease_s` is how long the others wait after the
    leader disappears.
    """

    def __init__(
        self,
        store: JobStore,
        session: str,
        duties: Sequence[Duty],
        *,
        lease_s: float = 8.0,
        name: str = "leader",
        rng: random.Random | None = None,
    ) -> None:
        self._store = store
        self._session = session
        self._duties = tuple(duties)
        self._lease_s = lease_s
        self._name = name
        self._rng = rng or random.Random()
        self._keeper: asyncio.Task[None] | None = None
        self._worker: asyncio.Task[None] | None = None
        self._lead: Leadership | None = None
        self._troubles: dict[str, type[Exception]] = {}
        """what fails, and the type of its error; logged already"""
        self._asking: asyncio.Future[Leadership] | None = None
        """the latest request for the lease; the store may grant it after its waiter is gone"""

    @property
    def leading(self) -> bool:
        """Whether this session held the lease when it last looked."""
        return self._lead is not None

    def start(self) -> None:
        """Begin to compete for leadership."""
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep(), name=f"mainstay {self._name} keeper")

    async def stop(self) -> None:
        """Stop the duties and give the lease up, so that the next leader does not wait for its end."""
        keeper, self._keeper = self._keeper, None
        await _ended(keeper)
        # only now: the keeper may have won the lease just as it was stopped
        lead = await self._answered() or self._lead
        await self._step_down()
        if lead is not None:
            with contextlib.suppress(Exception):
                await self._store.resign(lead)

    async def _answered(self) -> Leadership | None:
        """The lease of a request that `stop` interrupted, if the store granted it."""
        asking, self._asking = self._asking, None
        if asking is None:
            return None
        await asyncio.wait([asking], timeout=self._lease_s)
        if not asking.done() or asking.cancelled() or asking.exception() is not None:
            return None
        lead = asking.result()
        return lead if lead.holder == self._session else None

    async def _keep(self) -> None:
        """Take and renew the lease until cancelled."""
        failures = 0
        while True:
            try:
                await self._renew()
                self._well_again("leadership")
                failures = 0
                # followers look more often: a leader that is known to be dead is replaced at once
                wait_s = self._lease_s / 3 if self.leading else min(self._lease_s / 3, _LOOK_S)
            except Exception as error:  # noqa: BLE001 - logged, and tried again
                failures += 1
                wait_s = self._away(failures)
                self._log_trouble("leadership", error)
                await self._step_down_if_over()
            await asyncio.sleep(wait_s)

    async def _renew(self) -> None:
        self._asking = asyncio.ensure_future(self._store.lead(self._name, self._session, self._lease_s))
        lead = await asyncio.shield(self._asking)
        if lead.holder != self._session:
            if self._lead is not None:
                log.warning("leadership lost session=%s to=%s epoch=%d", self._session, lead.holder, lead.epoch)
            await self._step_down()
            return
        if self._lead is not None and self._lead.epoch != lead.epoch:
            await self._step_down()
        self._lead = lead
        if self._worker is None or self._worker.done():
            log.info("leading session=%s epoch=%d", self._session, lead.epoch)
            self._worker = asyncio.create_task(self._work(lead), name=f"mainstay {self._name} duties")

    async def _step_down_if_over(self) -> None:
        """Without the store we cannot learn that we lost the lead, but our lease still ends."""
        if self._lead is not None and self._store.clock.lease_ms() >= self._lead.until_ms:
            await self._step_down()

    async def _step_down(self) -> None:
        worker, self._lead = self._worker, None
        await _ended(worker)
        if self._worker is worker:
            self._worker = None

    async def _work(self, lead: Leadership) -> None:
        """Run the duties until leadership is lost."""
        try:
            async with asyncio.TaskGroup() as duties:
                for duty in self._duties:
                    duties.create_task(self._repeat(duty, lead), name=f"mainstay {self._name} duty {duty.name}")
        except* NotLeader:
            self._lead = None

    async def _repeat(self, duty: Duty, lead: Leadership) -> None:
        """Run one duty on its timer."""
        failures = 0
        wait_s = duty.first_s
        while True:
            await asyncio.sleep(wait_s)
            try:
                answer = await duty.run(lead)
            except NotLeader:
                log.warning("duty refused: no longer leading duty=%s epoch=%d", duty.name, lead.epoch)
                raise
            except Exception as error:  # noqa: BLE001 - logged, and tried again
                failures += 1
                self._log_trouble(f"duty {duty.name}", error)
                wait_s = min(duty.every_s, self._away(failures))
            else:
                self._well_again(f"duty {duty.name}")
                failures = 0
                wait_s = min(duty.every_s, answer) if isinstance(answer, float) else duty.every_s

    def _log_trouble(self, what: str, error: Exception) -> None:
        """Once per outage: every try fails with the same error."""
        if self._troubles.get(what) is type(error):
            return
        self._troubles[what] = type(error)
        if isinstance(error, StoreError):
            log.warning("cannot reach the store for %s session=%s: %s; retrying", what, self._session, error)
        else:
            log.error("%s failed session=%s with %s; retrying", what, self._session, shown(error, 200), exc_info=error)

    def _well_again(self, what: str) -> None:
        if self._troubles.pop(what, None) is not None:
            log.info("%s works again session=%s", what, self._session)

    def _away(self, failures: int) -> float:
        """The wait after consecutive failures; jittered, so that many workers do not come back at the same moment."""
        full = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(failures, 20))
        return full * self._rng.uniform(0.5, 1.0)


async def _ended(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for its end."""
    if task is None or task is asyncio.current_task():
        return
    task.cancel()
    # not `await task` with its cancellation suppressed: that would also swallow a cancellation of this task
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("ended badly task=%s", task.get_name(), exc_info=error)
