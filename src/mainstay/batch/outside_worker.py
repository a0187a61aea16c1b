"""The worker of an outside job: it runs the units of one batch, and ends when none is left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ..control import Control
from ..errors import InvalidInput, StoreError
from ..lifecycle import UNIT, table_of
from ..model import Job
from ..stores import Query
from ..task import Sealer
from ..worker import STOPPED, UNFIT, Hello, Supervisor, WorkerOptions
from .outside_job import queue_of
from .spec import DRIVER, row_name, spec_of

#: exit code if units are left open
LEFT = 1
_EVERY_S = 0.5
_UNSETTLED = tuple(name for name, state in UNIT.states.items() if not state.settled)
#: states of a batch that needs no more units
_DONE_WITH_UNITS = ("validating", "cancelling")


def queue_to_serve(job: Job, sealer: Sealer) -> str:
    """The queue of the units of a batch; raises `InvalidInput` for a batch that runs on workers."""
    queue = queue_of(job.id, spec_of(job, sealer).runner)
    if queue is None:
        raise InvalidInput(
            "job",
            f"{job.id} runs on ordinary workers: start one with `mainstay worker`; only batches submitted with "
            "runner=... run outside",
        )
    return queue


async def execute(
    control: Control, job: Job, orders: WorkerOptions, *, linger_s: float, ready: Callable[[Hello], None] | None = None
) -> int:
    """Run the units of a batch until none is open; then wait `linger_s` for aggregations that may follow. Returns the
    exit code: 0 if no unit is left open."""
    supervisor = Supervisor(orders, ready=ready)
    watching = asyncio.create_task(_watch(control, job, supervisor, linger_s))
    try:
        code = await supervisor.run()
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    if code == UNFIT:
        return UNFIT
    left = await _is_open(control, job)
    # the driver need not wait for its next look
    await control.drivers.nudge(await control.jobs.get(job.id))
    return LEFT if left else STOPPED


async def _watch(control: Control, job: Job, supervisor: Supervisor, linger_s: float) -> None:
    loop = asyncio.get_running_loop()
    until: float | None = None
    while True:
        # the supervisor reports an outage of the store and waits
        with contextlib.suppress(StoreError):
            if await _is_open(control, job):
                until = None
            elif await _is_done(control, job) or (until is not None and loop.time() >= until):
                supervisor.stop()
                return
            elif until is None:
                until = loop.time() + linger_s
                await control.drivers.nudge(await control.jobs.get(job.id))
        await asyncio.sleep(_EVERY_S)


async def _is_open(control: Control, job: Job) -> bool:
    """Whether a unit other than the driver is not settled."""
    driver = row_name(job.name, DRIVER)
    page = await control.store.find(Query(parent=job.id, status=_UNSETTLED), limit=10)
    return any(row.name != driver for row in page.jobs) or page.cursor is not None


async def _is_done(control: Control, job: Job) -> bool:
    row = await control.jobs.get(job.id)
    state = table_of(None).get(row.status)
    return state is None or state.settled or row.status in _DONE_WITH_UNITS
