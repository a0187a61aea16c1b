"""The driver: a unit that advances its batch.

Each time it is claimed it reads the stored state and does the next steps, until it has to wait; then it postpones
itself. It keeps nothing in memory, so any worker can continue.

    running      create the units whose outputs are missing; wait for them
    finalizing   create the aggregations whose inputs are complete; wait for them
    validating   check all outputs, and settle the batch by the result
    cancelling   end open units, then the batch
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from typing import Any, NoReturn

import msgspec

from ..control import Control, JobRequest, Plan, driver_id
from ..errors import InvalidTransition, OutputCorrupt, OutputMissing, StoreError
from ..lifecycle import Move, table_of
from ..model import ErrorInfo, Job, RetryPolicy
from ..outputs import Manifest, OutputStore
from ..stores import Query, all_rows, is_left_to_its_units
from ..task import Sealer
from ..words import counted
from ..worker import Context, LetGo
from . import validation
from .locations import OutputStores
from .outside_job import OutsideJob, OutsideLauncher, with_outside_job
from .runners import LOCAL
from .spec import DRIVER, KIND, DriverState, Spec, UnitCall, call_of, row_name, spec_of, unit_counts_of
from .unit_plan import PlannedUnit, planned_units, request_of
from .validation_result import Validation

log = logging.getLogger("mainstay.batch")

#: units per write
_CHUNK = 1000
#: the wait between two looks at the units is a tenth of the time they have taken so far, within these limits
_SHORTEST_S, _LONGEST_S = 0.1, 10.0
#: backoff while the output store does not answer
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 10.0, 300.0
#: this many unreadable units are an outage of the output store; with fewer, the other units run
_AWAY = 1000
#: storage may show the outputs of units that did not fail a little later
_RECHECKS, _RECHECK_S = 2, 2.0
_OPEN = ("pending", "dispatched", "running")
_FAILED = ("failed", "timed_out")
#: a driver waits for outages by itself; these retries are for unforeseen errors
_RETRIES = RetryPolicy(retries=8, base_s=1.0, cap_s=60.0, crash_budget=10)


async def plan_at_start(
    job: Job, spec: Spec, output_stores: OutputStores, sealer: Sealer, now_ms: int
) -> tuple[DriverState | None, list[JobRequest]]:
    """Plan a small batch in the run that starts it. Its units are created by the write that hands the batch over, which
    saves a run of the driver. None: the driver has to plan. It can wait for storage, it withdraws the units of earlier
    rounds, and it starts outside jobs."""
    # A driver of the release before does not know this plan. It takes the units for those of an earlier round, and
    # withdraws them and plans again; but it would no longer force them.
    if job.token > 1 or spec.units > _CHUNK or spec.runner != LOCAL or spec.force:
        return None, []
    units = []
    try:
        store = await output_stores.get(spec.outputs)
        manifest = await output_stores.manifest(spec.outputs, job.id)
        fresh = spec.resumed_from is not None
        async for unit in planned_units(store, manifest, spec, 0, fresh=fresh):
            if unit.unreadable is not None:
                return None, []
            if unit.run:
                units.append(request_of(spec, job.id, 0, unit, sealer))
    except Exception as error:  # noqa: BLE001 - the driver has retries and reports it; a failure here would end the batch
        log.info("not planned at start job_id=%s: %s", job.id, error)
        return None, []
    state = DriverState(began_ms=now_ms, planned=True, made=len(units), there=spec.units - len(units))
    return state, units


def driver_request(job: Job, spec: Spec, state: DriverState | None, sealer: Sealer) -> JobRequest:
    """The driver of a claimed batch, before all units in its queue (see `Drivers.put_off`). `state` is a plan made at
    the start: if it has units, the driver waits for them first."""
    options = msgspec.structs.replace(
        spec.plan.options, retry=_RETRIES, run_timeout_s=None, stall_timeout_s=None, tags=(), metadata={}
    )
    plan = Plan(
        options=options,
        kind=KIND,
        queue=job.queue,
        priority=min(100, max(0, job.priority, spec.plan.priority) + 1),
        parent=job.id,
        unit=f"{DRIVER} {job.token}",
        delay_ms=round(_SHORTEST_S * 1000) if state is not None and state.made else 0,
        ranked_at_submit=True,
    )
    payload = None if state is None else msgspec.Raw(sealer.seal(msgspec.msgpack.encode(state)))
    return JobRequest(row_name(spec.study, DRIVER), payload, plan, id=driver_id(job))


def _n_open(counts: Mapping[str, int]) -> int:
    return sum(counts.get(status, 0) for status in _OPEN)


class OutputsAway(Exception):
    """The output store does not answer. An outage of the job store is handled by the worker."""

    def __init__(self, error: StoreError) -> None:
        self.error = error
        super().__init__(str(error))


@contextlib.contextmanager
def _reaching_outputs() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise OutputsAway(error) from error


class DriverRun:
    """One run of a driver."""

    def __init__(
        self,
        control: Control,
        output_stores: OutputStores,
        launcher: OutsideLauncher,
        sealer: Sealer,
        context: Context,
        state: DriverState,
    ) -> None:
        self._control = control
        self._output_stores = output_stores
        self._launcher = launcher
        self._sealer = sealer
        self._context = context
        self._job = context.job
        self._actor = context.job.session or DRIVER
        self._clock = control.store.clock
        self._state = state
        self._saved = context.job.checkpoint is not None
        self._parent: Job
        self._spec: Spec
        self._outside: OutsideJob
        self._store: OutputStore
        self._manifest: Manifest

    async def run(self) -> None:
        """Advance the batch as far as possible. Returns when it is settled."""
        self._parent = await self._control.jobs.get(self._job.parent or "")
        if driver_id(self._parent) != self._job.id:
            self._context.skip("another driver advances the batch")
        self._spec = spec_of(self._parent, self._sealer)
        self._outside = OutsideJob(self._launcher, self._control, self._spec, self._parent, actor=self._actor)
        status = table_of(None).get(self._parent.status)
        if status is not None and status.settled:
            await self._stop_outside()
            await self._withdraw(f"the batch is {self._parent.status}", everything=True)
            return
        if not is_left_to_its_units(self._parent):
            self._context.skip(f"the batch is {self._parent.status}, and another driver will advance it")
        try:
            if self._parent.status == "cancelling":
                await self._cancel()
                return
            with _reaching_outputs():
                self._store = await self._output_stores.get(self._spec.outputs)
                self._manifest = await self._output_stores.manifest(self._spec.outputs, self._parent.id)
            await self._advance()
        except (OutputMissing, OutputCorrupt) as error:
            await self._fail(f"the manifest cannot be read: {error}", code=error.code)
        except OutputsAway as away:
            await self._wait_for_storage(away.error)
        except InvalidTransition as error:
            # the batch was moved in between: read it again
            await self._put_off(_SHORTEST_S, str(error))

    async def _advance(self) -> None:
        while self._parent.status != "validating":
            await self._work_on_group()
            if self._state.stopped:
                await self._wind_up_outside()
                await self._fail(self._state.stopped, code="failure_budget")
                return
            following = await self._next_state()
            if following.group < len(self._manifest.groups):
                what = self._spec.aggregations[following.group - 1].name
                await self._move("finalizing", f"its units are done; {what} follows")
                self._state = following
                await self._save()
            else:
                await self._move("finalizing", "its units are done")
                await self._move("validating", "its outputs are validated", started_ms=None, expires_ms=None)
                self._state = following
        await self._wind_up_outside()
        await self._validate()

    async def _next_state(self) -> DriverState:
        """The state for the next group, with the counts of the finished one."""
        state, counts = self._state, await self._counts()
        past = [*state.past, unit_counts_of(state, counts)]
        return DriverState(group=state.group + 1, force=state.force, before=counts, past=past, outside=state.outside)

    # units ------------------------------------------------------------------------------------------

    async def _work_on_group(self) -> None:
        """Plan the group once, and wait until no unit of it is open or unknown."""
        if not self._state.planned:
            await self._plan()
        counts = await self._counts()
        if self._state.unknown and not self._state.stopped and not _n_open(counts):
            # the readable units are done: the others may be readable by now
            await self._plan()
            counts = await self._counts()
            if self._state.unknown and not _n_open(counts):
                await self._back_off(self._unknown_text())
        if not self._state.stopped and (why := self._over_budget(counts)):
            self._state.stopped = why
            await self._save()
        if self._state.stopped and counts.get("pending"):
            # at each look: an earlier run may have died before it was done, and a failed unit may be retried
            await self._withdraw(self._state.stopped)
            counts = await self._counts()
        if n_open := _n_open(counts):
            decision = await self._outside.check(self._state, self._save)
            if decision.over:
                await self._withdraw(decision.over, everything=True)
                return
            took_s = (self._clock.now_ms() - self._state.began_ms) / 1000
            usual_s = min(_LONGEST_S, max(_SHORTEST_S, took_s / 10))
            why = f"{counted(n_open, 'unit is', 'units are')} not done" + (f"; {decision.why}" if decision.why else "")
            why += f"; {self._unknown_text()}" if self._state.unknown else ""
            await self._put_off(usual_s if decision.wait_s is None else decision.wait_s, why)

    def _unknown_text(self) -> str:
        n = self._state.unknown
        return f"the outputs of {counted(n, 'unit')} cannot be checked: {self._state.unknown_why}"

    async def _counts(self) -> dict[str, int]:
        """Units of the batch by status."""
        return await self._control.jobs.unit_counts(self._parent.id)

    async def _plan(self) -> None:
        state = self._state
        known = await self._planned_before()
        state.there = state.made = state.idle = state.unknown = 0
        batch: list[JobRequest] = []
        async for unit in self._planned_units():
            if (state.group, unit.index) in known:
                state.made += 1
            elif unit.unreadable is not None:
                state.unknown += 1
                state.unknown_why = str(unit.unreadable)[:300]
                if state.unknown == min(_AWAY, len(self._manifest.groups[state.group].pairs)):
                    raise OutputsAway(unit.unreadable)
            elif unit.run:
                state.made += 1
                batch.append(
                    request_of(
                        self._spec,
                        self._parent.id,
                        state.group,
                        unit,
                        self._sealer,
                        queue=self._outside.queue,
                    )
                )
            elif unit.why:
                state.idle += 1
            else:
                state.there += 1
            if len(batch) == _CHUNK:
                await self._insert(batch)
                batch = []
        if batch:
            await self._insert(batch)
        state.planned = True
        await self._save()
        log.info(
            "planned job_id=%s group=%d made=%d there=%d idle=%d unknown=%d",
            self._parent.id, state.group, state.made, state.there, state.idle, state.unknown,
        )  # fmt: skip

    async def _planned_before(self) -> set[tuple[int, int]]:
        """The units created since the planning of this group began. Begins it if needed."""
        state = self._state
        if state.began_ms:
            # an earlier run was interrupted: its units are not created again
            return await self._made_since(state.began_ms)
        before = await self._counts()
        if state.group == 0:
            state.force = self._spec.force and not any(before.values())
            if any(before.get(status) for status in _OPEN):
                await self._withdraw("the batch is resumed", everything=True)
                before = await self._counts()
        state.before = before
        state.began_ms = self._clock.now_ms()
        await self._save()
        return set()

    async def _planned_units(self) -> AsyncIterator[PlannedUnit]:
        state = self._state
        resumed = self._parent.token > 1 or self._spec.resumed_from is not None
        with _reaching_outputs():
            async for unit in planned_units(
                self._store, self._manifest, self._spec, state.group, force=state.force, fresh=resumed
            ):
                yield unit

    async def _insert(self, batch: list[JobRequest]) -> None:
        await self._still_ours()
        total = len(self._manifest.groups[self._state.group].pairs)
        self._context.progress(self._state.there, total, f"{self._state.made} units to run")
        reason = f"{self._state.made} units of {total} to run so far"
        self._job = await self._control.drivers.spawn(self._job, batch, reason=reason)

    async def _made_since(self, began_ms: int) -> set[tuple[int, int]]:
        calls: list[UnitCall] = [
            call_of(row.payload, self._sealer)
            async for row in all_rows(self._control.store, Query(parent=self._parent.id, created_from_ms=began_ms))
            if row.name != self._job.name
        ]
        return {(call.group, call.index) for call in calls}

    def _over_budget(self, counts: Mapping[str, int]) -> str:
        budget = self._spec.failure_budget
        if budget is None or self._state.group > 0:
            return ""
        failed = sum(counts.get(status, 0) - self._state.before.get(status, 0) for status in _FAILED)
        if failed <= budget * self._spec.units:
            return ""
        return f"{failed} of {self._spec.units} units failed, and its failure budget is {budget:.0%}; stopped early"

    async def _withdraw(self, reason: str, *, everything: bool = False) -> None:
        """End pending units; with `everything`, running ones too, whose workers notice the loss. A later driver is left
        alone."""
        status = _OPEN if everything else ("pending",)
        while True:
            rows = (await self._control.store.find(Query(parent=self._parent.id, status=status), limit=_CHUNK)).jobs
            ids = [row.id for row in rows if row.name != self._job.name or row.created_ms < self._job.created_ms]
            if not ids:
                return
            # refused if the claim was lost: the units may belong to the next driver
            await self._save()
            await self._still_ours()
            end = self._control.operations.cancel_many if everything else self._control.operations.withdraw_many
            outcomes = await end(ids, actor=self._actor, reason=reason)
            if not any(outcome.ok for outcome in outcomes):
                return

    async def _still_ours(self) -> None:
        """Stop if the batch was moved in between: a cancelled batch needs no more units, and the units of a resumed one
        belong to the next driver."""
        batch = await self._control.jobs.get(self._parent.id)
        if (batch.token, batch.status) != (self._parent.token, self._parent.status):
            await self._put_off(_SHORTEST_S, f"the batch is {batch.status}")

    # ends -------------------------------------------------------------------------------------------

    async def _validate(self) -> None:
        state, spec = self._state, self._spec
        result = await validation.validate(
            self._store,
            self._manifest,
            spec,
            at_ms=self._clock.now_ms(),
            attempt=self._validation_attempt(),
            by=self._actor,
            fresh=state.outages + state.rechecks > 0,
        )
        if result.verdict == "unknown":
            await self._settle(result)
            await self._back_off(result.summary)
        if result.verdict != "succeeded" and state.rechecks < _RECHECKS and not await self._has_failures():
            state.rechecks += 1
            await self._save()
            await self._put_off(_RECHECK_S, f"{result.summary}, and no unit failed: outputs may be late")
        await self._settle(result)

    def _validation_attempt(self) -> int:
        last = validation.validation_of(self._parent, self._sealer)
        return (last.attempt if last else 0) + 1 + self._state.outages

    async def _has_failures(self) -> bool:
        """Whether a unit failed or was cancelled since the batch was started or resumed."""
        groups = [*self._state.past, unit_counts_of(self._state, await self._counts())]
        return any(group.failed or group.cancelled for group in groups)

    async def _settle(self, result: Validation) -> None:
        await validation.settle(self._control, self._parent.id, result, self._sealer, actor=self._actor)

    async def _wait_for_storage(self, error: StoreError) -> None:
        if self._parent.status == "validating":
            at_ms, attempt = self._clock.now_ms(), self._validation_attempt()
            await self._settle(validation.storage_away(self._spec, error, at_ms=at_ms, attempt=attempt, by=self._actor))
        await self._back_off(f"the outputs cannot be checked: {error}"[:500])

    async def _back_off(self, why: str) -> None:
        wait_s = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** min(self._state.outages, 10))
        self._state.outages += 1
        await self._save()
        await self._put_off(wait_s, why)

    async def _fail(self, why: str, *, code: str) -> None:
        error = ErrorInfo(type="BatchFailed", code=code, message=why, retryable=False)
        await self._move("failed", why, error=error)

    async def _cancel(self) -> None:
        await self._withdraw("the batch is cancelled")
        await self._stop_outside()
        await self._withdraw("the batch is cancelled", everything=True)
        await self._move("cancelled", self._parent.reason or "cancelled on request")

    async def _move(self, to: str, reason: str, **fields: Any) -> None:
        def decide(row: Job, _: int) -> tuple[Move, ...]:
            if row.token != self._parent.token or not is_left_to_its_units(row):
                raise InvalidTransition(row.id, row.status, to, allowed=(), why="its driver has lost it")
            return (Move(to=to, reason=with_outside_job(reason, row.reason), fields=fields),)

        self._parent = await self._control.drivers.act(self._parent.id, decide, actor=self._actor)

    async def _stop_outside(self) -> None:
        if (wait_s := await self._outside.stop(self._state, self._save)) is not None:
            await self._put_off(wait_s, "its outside job was asked to stop")

    async def _wind_up_outside(self) -> None:
        if (wait_s := await self._outside.wind_up(self._state, self._save)) is not None:
            await self._put_off(wait_s, "its outside job has not ended yet")

    async def _save(self) -> None:
        await self._context.save(msgspec.to_builtins(self._state))
        self._saved = True

    async def _put_off(self, wait_s: float, reason: str) -> NoReturn:
        if (ends_ms := self._parent.expires_ms) is not None:
            # the sweep ends the batch at its deadline; its pending units are withdrawn right after it
            left_s = (ends_ms - self._clock.now_ms()) / 1000
            wait_s = min(wait_s, max(_SHORTEST_S, left_s))
        if not self._saved:
            # a driver of the release before may run next, and does not read the plan that was made at the start
            await self._save()
        await self._control.drivers.put_off(self._job, timedelta(seconds=wait_s), reason=reason[:500])
        raise LetGo(reason)
