"""What a worker runs for a batch: its start, its driver, its units (`mainstay.worker.Work`)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from ..control import Decide
from ..errors import SchemaTooNew, StaleClaim, StoreError
from ..task.current_client import begin
from ..worker import Mode, Work, context
from ..worker.context import LetGo
from ..worker.outage import Outage
from .driver import DriverRun, driver_request, plan_at_start
from .locations import OutputStores
from .outside_job import OutsideLauncher
from .spec import DRIVER, UNIT, DriverState, row_name, spec_of, state_of
from .study import Batch
from .unit_handler import UnitWork

T = TypeVar("T")

#: how long a batch is put off that this version does not understand
_UPGRADE = "1m"


def works_of(study: Batch, output_stores: OutputStores, outsides: OutsideLauncher) -> dict[str, Work]:
    """By the names that the rows of a batch have."""
    works: dict[str, Work] = {
        study.name: _StartWork(study, output_stores),
        row_name(study.name, DRIVER): _DriverWork(study, output_stores, outsides),
        row_name(study.name, UNIT): UnitWork(study, output_stores),
    }
    for aggregation in study.aggregations:
        works[row_name(study.name, aggregation.name)] = UnitWork(study, output_stores, aggregation)
    return works


class _LoopWork:
    """Runs on the worker's loop, and reads its job from the context."""

    mode: Mode = "loop"
    is_async = True
    decide: Decide | None = None

    def __init__(self, study: Batch) -> None:
        self._study = study

    def unpack(self, payload: bytes) -> bytes:
        return payload

    def pack(self, result: Any) -> None:
        """It returns nothing."""


class _StartWork(_LoopWork):
    """Starts a batch: plans it, if it is small, and hands it over to its driver."""

    def __init__(self, study: Batch, output_stores: OutputStores) -> None:
        super().__init__(study)
        self._output_stores = output_stores

    async def call(self, _: bytes) -> None:
        client = self._study.client
        begin(client)
        job = context().job
        try:
            spec = spec_of(job, client.sealer)
        except SchemaTooNew as error:
            _wait_for_upgrade(error)
        control = await _answered(client.open)
        state, units = await plan_at_start(job, spec, self._output_stores, client.sealer, control.store.clock.now_ms())
        driver = driver_request(job, spec, state, client.sealer)
        reason = "left to its units" + (f"; {len(units)} of {spec.units} are to run" if state else "")
        await _answered(lambda: control.drivers.hand_over(job, driver, units, reason=reason))
        raise LetGo


class _DriverWork(_LoopWork):
    """See `driver`."""

    def __init__(self, study: Batch, output_stores: OutputStores, outsides: OutsideLauncher) -> None:
        super().__init__(study)
        self._output_stores = output_stores
        self._outsides = outsides

    async def call(self, _: bytes) -> None:
        client, here = self._study.client, context()
        begin(client)
        state = state_of(here.job, client.sealer) or DriverState()
        control = await _answered(client.open)
        await _answered(DriverRun(control, self._output_stores, self._outsides, client.sealer, here, state).run)


async def _answered(step: Callable[[], Awaitable[T]]) -> T:
    """What the store of the jobs says. One that is away is waited for, as a worker does; what was done though its
    answer was lost is not done twice. Who lost the claim meanwhile lets go of it."""
    outage = Outage("batch", random.Random())
    while True:
        try:
            return await step()
        except StaleClaim as error:
            raise LetGo(str(error)) from None
        except SchemaTooNew as error:
            _wait_for_upgrade(error)
        except StoreError as error:
            await asyncio.sleep(outage.failed(error))


def _wait_for_upgrade(error: SchemaTooNew) -> NoReturn:
    """A newer worker may take it; this one must not spoil it."""
    context().snooze(_UPGRADE, str(error))
