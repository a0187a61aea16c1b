"""The handlers of a batch: its start, its driver, its units (`mainstay.worker.Work`)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from ..control import Decide
from ..errors import SchemaTooNew, StaleClaim, StoreError
from ..task import enter_job
from ..worker import LetGo, Mode, Outage, Work, context
from .driver import DriverRun, driver_request, plan_at_start
from .locations import OutputStores
from .outside_job import OutsideLauncher
from .spec import DRIVER, UNIT, DriverState, row_name, spec_of, state_of
from .study import Batch
from .unit_handler import UnitWork

T = TypeVar("T")

#: how long this version postpones a batch that a newer one submitted
_UPGRADE = "1m"


def works_of(study: Batch, output_stores: OutputStores, launcher: OutsideLauncher) -> dict[str, Work]:
    """The handlers of a study, by the names of rows."""
    works: dict[str, Work] = {
        study.name: _StartWork(study, output_stores),
        row_name(study.name, DRIVER): _DriverWork(study, output_stores, launcher),
        row_name(study.name, UNIT): UnitWork(study, output_stores),
    }
    for aggregation in study.aggregations:
        works[row_name(study.name, aggregation.name)] = UnitWork(study, output_stores, aggregation)
    return works


class _LoopWork:
    """A handler on the worker's loop that reads its job from the context."""

    mode: Mode = "loop"
    is_async = True
    decide: Decide | None = None

    def __init__(self, study: Batch) -> None:
        self._study = study

    def unpack(self, payload: bytes) -> bytes:
        return payload

    def pack(self, result: Any) -> None:
        """Nothing is returned."""


class _StartWork(_LoopWork):
    """Starts a batch: plans it, if it is small, and hands it over to its driver."""

    def __init__(self, study: Batch, output_stores: OutputStores) -> None:
        super().__init__(study)
        self._output_stores = output_stores

    async def call(self, _: bytes) -> None:
        client = self._study.client
        enter_job(client)
        job = context().job
        try:
            spec = spec_of(job, client.sealer)
        except SchemaTooNew as error:
            _wait_for_upgrade(error)
        control = await _repeated(client.open, client.rng)
        state, units = await plan_at_start(job, spec, self._output_stores, client.sealer, control.store.clock.now_ms())
        driver = driver_request(job, spec, state, client.sealer)
        reason = "left to its units" + (f"; {len(units)} of {spec.units} are to run" if state else "")
        await _repeated(lambda: control.drivers.hand_over(job, driver, units, reason=reason), client.rng)
        raise LetGo


class _DriverWork(_LoopWork):
    """Advances a batch: see `driver`."""

    def __init__(self, study: Batch, output_stores: OutputStores, launcher: OutsideLauncher) -> None:
        super().__init__(study)
        self._output_stores = output_stores
        self._launcher = launcher

    async def call(self, _: bytes) -> None:
        client, attempt = self._study.client, context()
        enter_job(client)
        state = state_of(attempt.job, client.sealer) or DriverState()
        control = await _repeated(client.open, client.rng)
        run = DriverRun(control, self._output_stores, self._launcher, client.sealer, attempt, state)
        await _repeated(run.run, client.rng)


async def _repeated(step: Callable[[], Awaitable[T]], rng: random.Random | None) -> T:
    """Run a step against the job store, and repeat it during an outage: a write that succeeded without an answer is not
    written twice. A lost claim ends the run."""
    outage = Outage("batch", rng or random.Random())
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
    """Leave the batch to a newer worker."""
    context().snooze(_UPGRADE, str(error))
