"""Duties: what one session does for all sessions while it holds a lead.

There are two leads: `leader` (schedules, retention, checks) and `placement` (which node runs what). Each is a lease in
the store with an epoch. A service is in one of two states:

- *following*: it asks for the lease every `look_s`. A leader whose death is proven, or that resigned, is replaced with
  the next look; one that only disappeared, when its lease is over.
- *leading*: it renews the lease every `renew_s` and runs each duty on its timer, each in its own task, so that a long
  one does not delay the others.

The leader stops by its own clock: `margin_s` before its lease ends, counted from *sending* the last renewal that was
granted. So it needs no answer to know that its time is over, also when a renewal hangs, and its duties have stopped
before another session can lead. A process that was suspended stops late; then the store refuses its writes, because
each write carries the epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from ..errors import InvalidInput, NotLeader, StoreError, StoreUnavailable
from ..model import Leadership
from ..stores import JobStore
from .failure import shown

log = logging.getLogger("mainstay.control")

#: the lead of the session that runs schedules, retention and checks
LEADER = "leader"
#: the lead of the session that assigns work to nodes
PLACEMENT = "placement"
#: the lease on `PLACEMENT`
PLACEMENT_LEASE_S = 10.0

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
_LONGEST_LOOK_S = 1.0
#: how much of a lease lies between two renewals, and between the last moment of a leader and the end of its lease
_RENEW = 0.3
_MARGIN = 0.3


class Duty(msgspec.Struct, frozen=True):
    """Something the leader does on a timer. `run` gets the leadership that its writes must carry. If it returns a
    float, it runs again after that many seconds, if that is sooner than `every_s`."""

    name: str
    every_s: float
    run: Callable[[Leadership], Awaitable[object]]
    first_s: float = 0.0
    """seconds from taking the lead to the first run: an expensive duty should not add to the load of a start"""
    counts: Mapping[str, int] = {}
    """what it has done, for metrics; it grows as the duty runs"""


class Duties:
    """A service: `start`, then `stop`; each is safe to call twice, and in any order.

    Every worker runs one; the store decides which of them leads.
    """

    def __init__(
        self,
        store: JobStore,
        session: str,
        duties: Sequence[Duty],
        *,
        name: str = LEADER,
        lease_s: float = 8.0,
        renew_s: float | None = None,
        margin_s: float | None = None,
        look_s: float | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`lease_s` is how long the others wait after the leader disappears. `renew_s` and `margin_s` are 0.3 of it by
        default; `look_s` is a second, or less if the lease is short."""
        self._store = store
        self._session = session
        self._duties = tuple(duties)
        self._name = name
        self._lease_s = lease_s
        self._renew_s = lease_s * _RENEW if renew_s is None else renew_s
        self._margin_s = lease_s * _MARGIN if margin_s is None else margin_s
        self._look_s = min(lease_s * _RENEW, _LONGEST_LOOK_S) if look_s is None else look_s
        if not 0 < self._renew_s < lease_s - self._margin_s:
            raise InvalidInput(
                "renew_s", f"{self._renew_s:g} does not renew a lease of {lease_s:g} s before its margin begins"
            )
        self._rng = rng or random.Random()
        self._keeper: asyncio.Task[None] | None = None
        self._worker: asyncio.Task[None] | None = None
        self._lead: Leadership | None = None
        self._granted: Leadership | None = None
        """the last lease that the store granted: it may go on there when the duties have stopped"""
        self._seen: Leadership | None = None
        """the last answer of the store, also if another session holds the lease"""
        self._sent_s = 0.0
        """when the latest request was sent, by the loop's clock"""
        self._until_ms = 0
        """when leading ends, by the store's clock as it was read when the last granted request was sent"""
        self._ending: asyncio.TimerHandle | None = None
        """ends leading by the loop's clock, if no renewal puts it off"""
        self._dropped = asyncio.Event()
        """set when leading ended and the keeper does not know it yet"""
        self._troubles: dict[str, type[Exception]] = {}
        """what fails, and the type of its error; logged already"""
        self._asking: asyncio.Future[Leadership] | None = None
        """the latest request for the lease; the store may grant it after its waiter is gone"""

    @property
    def leading(self) -> bool:
        """Whether this session leads, as far as it knows and by its own clock."""
        return self._lead is not None

    @property
    def may_be_led_elsewhere(self) -> bool:
        """Whether another session holds the lease, as far as the store has said. Its answer counts until the lease that
        it named is over; before the first answer nothing is known."""
        seen = self._seen
        return seen is None or (seen.holder != self._session and seen.until_ms > self._store.clock.lease_ms())

    @property
    def lead(self) -> Leadership | None:
        """The leadership that this session holds, as far as it knows; None: another session leads."""
        return self._lead

    def counts(self) -> Counter[str]:
        """What the duties have done in this process, for metrics."""
        total: Counter[str] = Counter()
        for duty in self._duties:
            total.update(duty.counts)
        return total

    def start(self) -> None:
        """Begin to compete for leadership."""
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep(), name=f"mainstay {self._name} keeper")

    async def stop(self) -> None:
        """Stop the duties and give the lease up, so that the next leader does not wait for its end."""
        keeper, self._keeper = self._keeper, None
        await _ended(keeper)
        # only now: the keeper may have won the lease just as it was stopped
        lead = await self._answered() or self._granted
        await self._step_down()
        self._granted = None
        if lead is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(self._lease_s):  # then it is over anyway
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

    # the keeper ---------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Take and renew the lease until cancelled."""
        failures = 0
        while True:
            try:
                await self._renew()
                self._well_again("leadership")
                failures = 0
                wait_s = self._sent_s + self._pace_s - asyncio.get_running_loop().time()
            except Exception as error:  # noqa: BLE001 - logged, and tried again
                failures += 1
                # no longer than a look: the store counts the lease from the last renewal, also during its outage
                wait_s = min(self._look_s, self._away(failures))
                self._log_trouble("leadership", error)
            await self._pause(wait_s)

    @property
    def _pace_s(self) -> float:
        return self._renew_s if self.leading else self._look_s

    async def _pause(self, wait_s: float) -> None:
        """Wait; no longer than a look if leading ends meanwhile."""
        self._dropped.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wait_s)):
                await self._dropped.wait()
                await asyncio.sleep(self._look_s)

    async def _renew(self) -> None:
        """Ask for the lease, and lead or follow as the store says."""
        loop = asyncio.get_running_loop()
        self._sent_s, sent_ms = loop.time(), self._store.clock.lease_ms()
        lead = self._seen = await self._ask()
        if lead.holder != self._session:
            if self._lead is not None:
                log.warning(
                    "leadership lost lead=%s session=%s to=%s epoch=%d",
                    self._name,
                    self._session,
                    lead.holder,
                    lead.epoch,
                )
            self._granted = None
            await self._step_down()
            return
        self._granted = lead
        if self._lead is None or self._lead.epoch != lead.epoch:
            await self._step_down()  # also waits for duties that were stopped and have not ended yet
        own_s = self._lease_s - self._margin_s
        if loop.time() >= self._sent_s + own_s:
            return  # the answer came too late
        self._lead = lead
        self._until_ms = sent_ms + round(own_s * 1000)
        self._set_end(self._sent_s + own_s)
        if self._worker is None or self._worker.done():
            log.info("leading lead=%s session=%s epoch=%d", self._name, self._session, lead.epoch)
            self._worker = asyncio.create_task(self._work(lead), name=f"mainstay {self._name} duties")

    async def _ask(self) -> Leadership:
        """The answer of the store. A request that takes as long as a lease is given up: its connection may be dead."""
        self._asking = asking = asyncio.ensure_future(self._store.lead(self._name, self._session, self._lease_s))
        asking.add_done_callback(_mark_as_seen)
        await asyncio.wait([asking], timeout=self._lease_s)  # does not cancel it, if it is cancelled itself
        if not asking.done():
            asking.cancel()
            raise StoreUnavailable(f"the store has not answered for {self._lease_s:g} s")
        return asking.result()

    def _set_end(self, at_s: float | None) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._ending = None if at_s is None else asyncio.get_running_loop().call_at(at_s, self._drop)

    def _drop(self) -> None:
        """The lease was not renewed and ends soon: stop the duties, whatever the keeper waits for."""
        if self._lead is None:
            return
        log.warning(
            "leadership given up lead=%s session=%s epoch=%d: its lease could not be renewed in time",
            self._name,
            self._session,
            self._lead.epoch,
        )
        self._lead = None
        self._dropped.set()
        if self._worker is not None:
            self._worker.cancel()

    async def _step_down(self) -> None:
        """Stop the duties, and wait for their end."""
        worker, self._lead = self._worker, None
        self._set_end(None)
        await _ended(worker)
        if self._worker is worker:
            self._worker = None

    # the worker ---------------------------------------------------------------------------------

    async def _work(self, lead: Leadership) -> None:
        """Run the duties until leadership is lost."""
        try:
            async with asyncio.TaskGroup() as duties:
                for duty in self._duties:
                    duties.create_task(self._repeat(duty, lead), name=f"mainstay {self._name} duty {duty.name}")
        except* NotLeader:
            self._lead = None
            self._dropped.set()

    async def _repeat(self, duty: Duty, lead: Leadership) -> None:
        """Run one duty on its timer."""
        failures = 0
        wait_s = duty.first_s
        while True:
            await asyncio.sleep(wait_s)
            if self._store.clock.lease_ms() >= self._until_ms:
                # the loop's clock stands still while the machine sleeps, the store's does not
                self._drop()
            if self._lead is None:
                return
            try:
                answer = await duty.run(lead)
            except NotLeader as refusal:
                log.warning("duty refused: no longer leading duty=%s epoch=%d: %s", duty.name, lead.epoch, refusal)
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


def _mark_as_seen(asking: asyncio.Future[Leadership]) -> None:
    """A keeper that was stopped no longer waits for the answer; its error must not be reported as lost."""
    if not asking.cancelled():
        asking.exception()


async def _ended(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for its end."""
    if task is None or task is asyncio.current_task():
        return
    task.cancel()
    # not `await task` with its cancellation suppressed: that would also swallow a cancellation of this task
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("ended badly task=%s", task.get_name(), exc_info=error)
