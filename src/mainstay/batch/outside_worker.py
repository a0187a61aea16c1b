"""What an outside job runs: a worker for the units of one batch, which ends when there is nothing left for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ..control import Control
from ..errors import InvalidInput, StoreError
from ..lifecycle import UNIT, table_of
from ..model import Job
from ..stores import Query
from ..task.codec import Sealer
from ..worker.messages import Hello
from ..worker.supervisor import STOPPED, UNFIT, Supervisor
from ..worker.worker_options import WorkerOptions
from .outside_job import queue_of
from .spec import DRIVER, row_name, spec_of

#: units are left open: it was told to stop, or had to
LEFT = 1
_EVERY_S = 0.5
_UNSETTLED = tuple(name for name, state in UNIT.states.items() if not state.settled)
#: its units are over, or are about to be ended
_DONE_WITH_UNITS = ("validating", "cancelling")


def queue_to_serve(job: Job, sealer: Sealer) -> str:
    """Where the units of a batch wait; raises `InvalidInput` for one that runs on workers."""
    queue = queue_of(job.id, spec_of(job, sealer).runner)
    if queue is None:
        raise InvalidInput(
            "job", f"{job.id} runs on ordinary workers: start one with `mainstay worker`; what is executed outside is "
            "submitted with runner=..."
        )  # fmt: skip
    return queue


async def execute(
    control: Control, job: Job, orders: WorkerOptions, *, linger_s: float, ready: Callable[[Hello], None] | None = None
) -> int:
    """Work on the units of a batch until none is open; then wait for what may follow, aggregations, for so long. The
    exit code: 0 if nothing is left open, and else another."""
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
    # so that its driver does not have to wait for its own time
    await control.drivers.nudge(await control.jobs.get(job.id))
    return LEFT if left else STOPPED


async def _watch(control: Control, job: Job, supervisor: Supervisor, linger_s: float) -> None:
    loop = asyncio.get_running_loop()
    until: float | None = None
    while True:
        # a store that is away is told by the supervisor, and waited for
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
    """Whether there is a unit, besides its driver, that is not settled."""
    driver = row_name(job.name, DRIVER)
    page = await control.store.find(Query(parent=job.id, status=_UNSETTLED), limit=10)
    return any(row.name != driver for row in page.jobs) or page.cursor is not None


async def _is_done(control: Control, job: Job) -> bool:
    row = await control.jobs.get(job.id)
    state = table_of(None).get(row.status)
    return state is None or state.settled or row.status in _DONE_WITH_UNITS
