"""Duties: what one session does for all, while it holds the leader lease.

The keeper takes and renews the lease, several times within its length; the worker runs each duty when its time has
come, each in a task of its own, so that a long one holds up no other. When the keeper learns that the lease is lost, or
can no longer tell, the worker is stopped at once; whatever still slips through is refused by the store, because each
write carries the epoch. When the store is away both try again with growing waits, for ever.
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
    """Something the leader does every so often. `run` gets the leadership its writes must carry; when it answers with
    a float, it is run again after so many seconds, if that is sooner than `every_s`."""

    name: str
    every_s: float
    run: Callable[[Leadership], Awaitable[object]]
    first_s: float = 0.0
    """how long after the lead was taken it is run first: what costs much need not come with the rush of a start"""


class Duties:
    """A service: `start`, then `stop`; each is safe to call twice, and in any order.

    Every worker runs one; the store decides which of them leads. `lease_s` is how long the others wait when the
    leader vanishes.
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
        """what fails, and with what; told already"""
        self._asking: asyncio.Future[Leadership] | None = None
        """the latest question for the lease; the store may grant it although nobody waits for the answer any more"""

    @property
    def leading(self) -> bool:
        """Whether this session held the lease when it last looked."""
        return self._lead is not None

    def start(self) -> None:
        """Begin to stand for leadership."""
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep(), name=f"mainstay {self._name} keeper")

    async def stop(self) -> None:
        """Stop what runs and give the lease up, so that the next leader need not wait for its end."""
        keeper, self._keeper = self._keeper, None
        await _ended(keeper)
        # not before: the keeper may have won it, or have had it on its way, just as it was stopped
        lead = await self._answered() or self._lead
        await self._step_down()
        if lead is not None:
            with contextlib.suppress(Exception):
                await self._store.resign(lead)

    async def _answered(self) -> Leadership | None:
        """The lease that a question cut short by `stop` has won after all."""
        asking, self._asking = self._asking, None
        if asking is None:
            return None
        await asyncio.wait([asking], timeout=self._lease_s)
        if not asking.done() or asking.cancelled() or asking.exception() is not None:
            return None
        lead = asking.result()
        return lead if lead.holder == self._session else None

    async def _keep(self) -> None:
        """Take and renew the lease, for ever."""
        failures = 0
        while True:
            try:
                await self._renew()
                self._well_again("leadership")
                failures = 0
                # whoever waits looks more often: a leader whose death is known is replaced at once
                wait_s = self._lease_s / 3 if self.leading else min(self._lease_s / 3, _LOOK_S)
            except Exception as error:  # noqa: BLE001 - it is told, and tried again
                failures += 1
                wait_s = self._away(failures)
                self._tell("leadership", error)
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
        """Without the store nobody can tell us that we lost; our own lease ends all the same."""
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
        """Run one duty whenever its time has come."""
        failures = 0
        wait_s = duty.first_s
        while True:
            await asyncio.sleep(wait_s)
            try:
                answer = await duty.run(lead)
            except NotLeader:
                log.warning("duty refused: not leading any more duty=%s epoch=%d", duty.name, lead.epoch)
                raise
            except Exception as error:  # noqa: BLE001 - it is told, and tried again
                failures += 1
                self._tell(f"duty {duty.name}", error)
                wait_s = min(duty.every_s, self._away(failures))
            else:
                self._well_again(f"duty {duty.name}")
                failures = 0
                wait_s = min(duty.every_s, answer) if isinstance(answer, float) else duty.every_s

    def _tell(self, what: str, error: Exception) -> None:
        """Once per outage: it is the same trouble on every try."""
        if self._troubles.get(what) is type(error):
            return
        self._troubles[what] = type(error)
        if isinstance(error, StoreError):
            log.warning("cannot reach the store for %s session=%s: %s; trying until it can", what, self._session, error)
        else:
            log.error("%s failed session=%s with %s; trying again", what, self._session, _named(error), exc_info=error)

    def _well_again(self, what: str) -> None:
        if self._troubles.pop(what, None) is not None:
            log.info("%s goes on session=%s", what, self._session)

    def _away(self, failures: int) -> float:
        """The wait after so many failures in a row; jittered, so that a fleet does not come back as one."""
        full = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(failures, 20))
        return full * self._rng.uniform(0.5, 1.0)


def _named(error: Exception) -> str:
    """An error that is not the store's, by its name: most often a mistake in a program, and nobody reads tracebacks
    first."""
    return shown(error, 200)


async def _ended(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and see it end."""
    if task is None or task is asyncio.current_task():
        return
    task.cancel()
    # not `await task` with its cancellation suppressed: that would swallow our own as well, and we could not be stopped
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("ended badly task=%s", task.get_name(), exc_info=error)
