"""The operations on batches: status, validate, resume, submit. They need a store, not the program of the study."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from ..control import Control, InsertResult, JobRequest, Plan, driver_id
from ..control.explain import is_alive
from ..errors import InvalidInput, InvalidTransition, MainstayError, StoreError, VersionChanged
from ..lifecycle import Move, table_of
from ..model import IdSource, Job
from ..outputs import Manifest, ManifestGroup, OutputStore, Unit, manifest_path, save_manifest
from ..stores import Query
from ..task import Sealer
from . import validation as validating
from .advice import RESUMABLE
from .locations import OutputStores
from .outside_job import with_outside_job
from .spec import KIND, UNREACHED, OutsideRecord, Spec, UnitCounts, spec_of, state_of, unit_counts_of
from .study import Batch
from .unit_plan import planned_units
from .validation_result import OutputStatus, Validation, output_statuses

#: units of a batch whose reasons are read
_SAMPLE = 20
#: part of the reason of a driver that cannot check the outputs
_CANNOT_CHECK = "cannot be checked"


class BatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a batch."""

    job: Job
    spec: Spec
    group: str = "units"
    """the current group: "units", or the name of an aggregation"""
    planned: bool = False
    """its units were created"""
    units: UnitCounts = UnitCounts()
    """the units of the study"""
    aggregations: dict[str, UnitCounts] = {}
    validation: Validation | None = None
    """the last validation"""
    waits: str = ""
    """what it waits for, in words: the storage of its outputs, or what its driver waits for"""
    trouble: str = ""
    """the same, if an operator should act: a full disk, permissions, storage that does not answer"""
    outside: OutsideRecord | None = None
    """its outside job, as last recorded"""

    @property
    def total(self) -> int:
        """Units of the study."""
        return self.spec.units

    @property
    def outputs_there(self) -> int:
        """Outputs that should exist according to the units; of a settled batch, by the last validation."""
        if self.validation is not None and table_of(None).states[self.job.status].settled:
            return self.validation.present
        aggregated = sum(each.done for each in self.aggregations.values())
        return min(self.spec.expected, self.units.done * len(self.spec.files) + aggregated)


class UnitToRun(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that a resume would run or leave out, and why."""

    group: int
    index: int
    unit: str
    why: str
    run: bool = True


class ResumeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a resume."""

    id: str
    """the job that continues: the same one, or a new one that is linked to it"""
    how: Literal["resumed", "linked", "nothing"]
    """linked: a new job makes the missing outputs, since this one had succeeded or other code runs it; nothing: all
    outputs are intact"""
    units: int = 0
    """units that a linked job runs"""


class BatchService:
    """The operations on batch jobs of one store."""

    def __init__(
        self,
        control: Control,
        *,
        sealer: Sealer | None = None,
        output_stores: OutputStores | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.control = control
        self._sealer = sealer or Sealer(None)
        self.output_stores = output_stores or OutputStores(control.store.clock)
        self._ids = IdSource(rng or random.Random())

    async def close(self) -> None:
        """Close the output stores."""
        await self.output_stores.close()

    # read -------------------------------------------------------------------------------------------

    async def spec(self, job_id: str) -> Spec:
        """The payload of a batch."""
        return spec_of(await self.control.jobs.get(job_id), self._sealer)

    async def manifest(self, job_id: str) -> Manifest:
        """The expected units and outputs of a batch."""
        return await self.output_stores.manifest((await self.spec(job_id)).outputs, job_id)

    async def store(self, job_id: str) -> OutputStore:
        """The output store of a batch."""
        return await self.output_stores.get((await self.spec(job_id)).outputs)

    async def status(self, job_id: str) -> BatchStatus:
        """The status of a batch, from the job store alone."""
        job = await self.control.jobs.get(job_id)
        spec = spec_of(job, self._sealer)
        validation = validating.validation_of(job, self._sealer)
        driver = await self._driver_row(job)
        counts = {} if driver is None else await self.control.jobs.unit_counts(job.id)
        state = None if driver is None else state_of(driver, self._sealer)
        if driver is None or state is None:
            return BatchStatus(job=job, spec=spec, validation=validation)
        groups = [*state.past, unit_counts_of(state, counts)][: 1 + len(spec.aggregations)]
        names = [one.name for one in spec.aggregations]
        waits = (driver.reason or "") if driver.status == "pending" and driver.token else ""
        trouble = waits if _CANNOT_CHECK in waits else await self._unreached(job)
        return BatchStatus(
            job=job,
            spec=spec,
            group="units" if state.group == 0 else names[min(state.group, len(names)) - 1] if names else "units",
            planned=state.planned or state.group > 0,
            units=groups[0],
            aggregations=dict(zip(names, groups[1:], strict=False)),
            validation=validation,
            waits=trouble or waits,
            trouble=trouble,
            outside=state.outside,
        )

    async def _unreached(self, job: Job) -> str:
        """The reason of a unit that cannot publish its outputs. The oldest units are read: they tried first."""
        state = table_of(None).get(job.status)
        if state is None or not state.holds:
            return ""
        for status in ("running", "pending"):
            query = Query(parent=job.id, status=(status,), oldest_first=True)
            for unit in (await self.control.store.find(query, limit=_SAMPLE)).jobs:
                reason = unit.progress.message if status == "running" and unit.progress else unit.reason
                if reason and reason.startswith(UNREACHED):
                    return f"unit {unit.unit}: {reason}"
        return ""

    async def _driver_row(self, job: Job) -> Job | None:
        return (await self.control.store.get([driver_id(job)]))[0] if job.token else None

    async def outputs(
        self, job_id: str, *, start: int = 0, limit: int = 1000, fresh: bool = False
    ) -> tuple[list[OutputStatus], int | None]:
        """The outputs of some units, in the order of the manifest, and the start of the next page; None at the end."""
        spec = await self.spec(job_id)
        store = await self.output_stores.get(spec.outputs)
        manifest = await self.output_stores.manifest(spec.outputs, job_id)
        outputs: list[OutputStatus] = []
        before = 0
        for number, group in enumerate(manifest.groups):
            pairs = group.pairs[max(0, start - before) : max(0, start + limit - before)]
            index = max(0, start - before)
            units = list(msgspec.structs.replace(group, pairs=pairs).units())
            for unit_index, findings in enumerate(
                await store.look(units, group.outputs, verify=spec.verify, fresh=fresh), index
            ):
                outputs += output_statuses(number, unit_index, findings, group.outputs)
            before += len(group.pairs)
        return outputs, start + limit if start + limit < before else None

    async def lacking(self, job_id: str, *, page: int = 0) -> list[OutputStatus]:
        """A page of the defects that the last validation found; empty after the last."""
        job = await self.control.jobs.get(job_id)
        spec = spec_of(job, self._sealer)
        validation = validating.validation_of(job, self._sealer)
        return (
            []
            if validation is None
            else await validating.listed(await self.output_stores.get(spec.outputs), validation, page=page)
        )

    async def validations(self, job_id: str) -> list[Validation]:
        """The last 100 validations, oldest first; none if the output store does not answer."""
        try:
            return await validating.history(await self.store(job_id), job_id)
        except StoreError:
            return []

    async def has_workers(self) -> bool:
        """Whether a worker is alive that may run the driver of a batch."""
        store = self.control.store
        lease_ms = store.clock.lease_ms()
        return any(is_alive(session, lease_ms) for session in await store.sessions())

    # validate ---------------------------------------------------------------------------------------

    async def validate(
        self, job_id: str, *, force: bool = False, actor: str = "client", version: int | None = None
    ) -> Validation:
        """Check all outputs now. A batch that is validating or partial is moved by the result; others keep their state.
        `force` ignores the results of earlier checks. With a `version`, here and below, `VersionChanged` is raised if
        the job is at another one."""
        job = await self._get(job_id, version)
        spec = spec_of(job, self._sealer)
        state = table_of(None).get(job.status)
        if state is not None and not state.settled and job.status != "validating":
            raise InvalidTransition(
                job.id, job.status, "validating", allowed=state.next, why="it is not done yet; wait for its units"
            )
        last = validating.validation_of(job, self._sealer)
        store = await self.output_stores.get(spec.outputs)
        attempts = [one.attempt for one in await self.validations(job_id)] + [last.attempt if last else 0]
        validation = await validating.validate(
            store,
            await self.output_stores.manifest(spec.outputs, job_id),
            spec,
            at_ms=self.control.store.clock.now_ms(),
            attempt=1 + max(attempts),
            by=actor,
            fresh=force,
        )
        moved = await validating.settle(self.control, job_id, validation, self._sealer, actor=actor, version=version)
        if job.status == "validating" and moved.status != "validating":
            await self.control.drivers.nudge(job)
        return validation

    async def conclude(self, job_id: str, *, actor: str = "client") -> Validation | None:
        """Validate a batch whose units have all ended, if no worker runs its driver. None: units are open, or
        aggregations have to run first. A later driver finds the batch settled."""
        status = await self.status(job_id)
        groups = [status.units, *status.aggregations.values()]
        last_group = len(groups) == 1 + len(status.spec.aggregations)
        if not status.planned or not last_group or any(one.waiting or one.running for one in groups):
            return None
        if status.job.status != "validating":
            steps = ("finalizing", "validating")[status.job.status == "finalizing" :]

            def decide(row: Job, _: int) -> tuple[Move, ...]:
                if row.version != status.job.version:
                    return ()
                reason = with_outside_job(
                    "its units are done; no worker is alive, so a command validates its outputs", row.reason
                )
                fields: dict[str, object] = {"started_ms": None, "expires_ms": None}
                return tuple(Move(to=to, reason=reason, fields=fields if to == "validating" else {}) for to in steps)

            if status.job.status not in ("running", "finalizing"):
                return None
            moved = await self.control.drivers.act(job_id, decide, actor=actor)
            if moved.status != "validating":
                return None
        return await self.validate(job_id, actor=actor)

    # resume -----------------------------------------------------------------------------------------

    async def to_run(self, job_id: str, *, version: int | None = None) -> AsyncIterator[UnitToRun]:
        """The units that a resume would run, and those it would leave out because their inputs are incomplete."""
        spec = spec_of(await self._get(job_id, version), self._sealer)
        store = await self.output_stores.get(spec.outputs)
        manifest = await self.output_stores.manifest(spec.outputs, job_id)
        for group in range(len(manifest.groups)):
            async for planned in planned_units(store, manifest, spec, group, fresh=True):
                if planned.why:
                    unit: Unit = planned.unit
                    yield UnitToRun(group=group, index=planned.index, unit=unit.label, why=planned.why, run=planned.run)

    async def resume(
        self,
        job_id: str,
        *,
        actor: str = "client",
        reason: str = "resumed on request",
        version: int | None = None,
        by: Batch | None = None,
    ) -> ResumeOutcome:
        """Run the units again whose outputs are missing or corrupt: in the same job, or, if it had succeeded, in a new
        job that is linked to it. Of two requests at the same time one is refused, or gets the job of the other.

        `by` is the study as declared now: its code makes the missing outputs, in a linked job, although the batch was
        submitted for other code. Intact outputs stay. Every entry names the source that made it, and validations count
        the units that other code made."""
        job = await self._get(job_id, version)
        spec = spec_of(job, self._sealer)
        if by is not None:
            _check_same_outputs(spec, by)
            state = table_of(None).get(job.status)
            if job.status not in (*RESUMABLE, "succeeded"):
                raise InvalidTransition(
                    job.id, job.status, "pending", allowed=state.next if state else (), why="it cannot be resumed now"
                )
            return await self._repair(job, spec, run_by=by.fingerprint)
        if job.status == "succeeded":  # final: its version never changes
            return await self._repair(job, spec)
        # a store takes two equal requests at once for one that is repeated; this id distinguishes them
        (request,) = self._ids.take(self.control.store.clock.now_ms(), 1)

        def decide(row: Job, now_ms: int) -> tuple[Move, ...]:
            if row.status not in RESUMABLE:
                state = table_of(None).get(row.status)
                why = (
                    "it was cancelled; submit it again to run its missing units"
                    if row.status == "cancelled"
                    else "it is running already"
                )
                raise InvalidTransition(row.id, row.status, "pending", allowed=state.next if state else (), why=why)
            fields = {"due_ms": now_ms, "extra_ms": 0, "error": None}
            return (Move(to="pending", reason=reason, details={"request": request}, fields=fields),)

        moved = await self.control.drivers.act(job_id, decide, actor=actor, version=version)
        since = await self.control.jobs.events(job_id, after=job.version)
        if not any(event.data.get("request") == request for event in since):
            if version is not None:
                raise VersionChanged(job_id, version, now=moved.version)
            raise InvalidTransition(
                job_id, moved.status, "pending", allowed=(), why="another request resumed it at the same time"
            )
        return ResumeOutcome(id=job_id, how="resumed")

    async def _get(self, job_id: str, version: int | None) -> Job:
        job = await self.control.jobs.get(job_id)
        if version is not None and job.version != version:
            raise VersionChanged(job_id, version, now=job.version)
        return job

    async def _repair(self, job: Job, spec: Spec, *, run_by: str = "") -> ResumeOutcome:
        units = 0
        async for one in self.to_run(job.id):
            units += one.run
        if not units:
            return ResumeOutcome(id=job.id, how="nothing")
        manifest = await self.output_stores.manifest(spec.outputs, job.id)
        submitted = await self.submit(
            msgspec.structs.replace(spec, resumed_from=job.id, force=False, run_by=run_by or spec.run_by),
            manifest.groups,
            Plan(
                options=msgspec.structs.replace(
                    job.options, metadata={**job.options.metadata, "resumed_from": job.id}, start_by_ms=None
                ),
                queue=job.queue,
                priority=job.priority,
                unique=f"repair {job.id} {run_by}".strip(),
            ),
        )
        return ResumeOutcome(id=submitted.id, how="linked", units=units)

    # submit -----------------------------------------------------------------------------------------

    async def submit(self, spec: Spec, groups: list[ManifestGroup], plan: Plan) -> InsertResult:
        """Store the manifest beside the outputs, then the job. Without access to the outputs, no job is stored."""
        (job_id,) = self._ids.take(self.control.store.clock.now_ms(), 1)
        store = await self.output_stores.get(spec.outputs, create=True)
        await save_manifest(store, Manifest(job=job_id, groups=groups))
        payload = msgspec.msgpack.encode(spec)
        request = JobRequest(
            spec.study,
            msgspec.Raw(self._sealer.seal(payload)),
            msgspec.structs.replace(plan, kind=KIND),
            content=payload,
            id=job_id,
        )
        try:
            submitted = await self.control.jobs.submit_request(request)
        except StoreError:
            # the job may be stored nevertheless, and its driver needs the manifest
            raise
        except MainstayError:
            await _forget(store, job_id)
            raise
        if not submitted.created:
            await _forget(store, job_id)
        return submitted


def _check_same_outputs(spec: Spec, study: Batch) -> None:
    """Refuse code whose outputs have other paths: that is another batch."""
    now = [one.name for one in study.aggregations]
    if (study.name, study.outputs, now) != (spec.study, spec.files, [one.name for one in spec.aggregations]):
        raise InvalidInput(
            "study",
            f"{study.name} declares other outputs or aggregations now than the batch of {spec.study} was submitted "
            "with; submit it again",
        )


async def _forget(store: OutputStore, job_id: str) -> None:
    """Remove the manifest of a job that was not stored. A leftover does no harm."""
    with contextlib.suppress(StoreError):
        await store.blobs.delete([manifest_path(job_id)])


def count_of(groups: list[ManifestGroup]) -> int:
    """Number of expected outputs."""
    return sum(len(group.pairs) * len(group.outputs) for group in groups)
