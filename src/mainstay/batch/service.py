"""What people do to batches: look, validate, resume. Needs a store, and nothing of the program that made the batch."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from ..control import Control, InsertResult, JobRequest, Plan
from ..control.drivers import driver_id
from ..control.explain import is_alive
from ..errors import InvalidInput, InvalidTransition, MainstayError, StoreError, VersionChanged
from ..lifecycle import Move, table_of
from ..model import IdSource, Job
from ..outputs import Manifest, ManifestGroup, OutputStore, Unit, output_path, save_manifest
from ..outputs.layout import manifest_path
from ..outputs.lookup import State as OutputState
from ..stores import Query
from ..task.codec import Sealer
from . import validation as validating
from .locations import OutputStores
from .outside_job import kept
from .spec import KIND, UNREACHED, OutsideRecord, Spec, UnitCounts, spec_of, state_of, unit_counts_of
from .study import Batch
from .unit_plan import planned_units
from .validation_result import OutputDefect, Validation

#: units of a batch that are asked what they wait for
_ASKED = 20
#: part of what a driver says that cannot see which outputs are there
_CANNOT_LOOK = "cannot be looked at"
#: what a batch may be resumed from, in place
RESUMABLE = ("partial", "failed", "timed_out", "quarantined")


class BatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a batch stands."""

    job: Job
    spec: Spec
    group: str = "units"
    """what is at work: the units, or an aggregation by its name"""
    planned: bool = False
    """it is known which units are to run"""
    units: UnitCounts = UnitCounts()
    """the units of the study"""
    aggregations: dict[str, UnitCounts] = {}
    validation: Validation | None = None
    """the last one"""
    waits: str = ""
    """what holds it up, in words: the storage of its outputs, or what its driver waits for"""
    trouble: str = ""
    """the part of that which does not pass by itself: a full disk, permissions, a storage that is away"""
    outside: OutsideRecord | None = None
    """the job that a runner outside was given, as it was last seen"""

    @property
    def total(self) -> int:
        """Units of the study."""
        return self.spec.units

    @property
    def outputs_there(self) -> int:
        """Expected outputs that should be there, by what its units say; by the last validation once there is one."""
        if self.validation is not None and table_of(None).states[self.job.status].settled:
            return self.validation.present
        made = sum(each.done for each in self.aggregations.values())
        return min(self.spec.expected, self.units.done * len(self.spec.files) + made)


class UnitToRun(msgspec.Struct, frozen=True, kw_only=True):
    """One unit that a resume would run, or would leave alone, and why."""

    group: int
    index: int
    unit: str
    why: str
    run: bool = True


class ResumeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a wish to resume."""

    id: str
    """the job that goes on: the same one, or the one that was made for it"""
    how: Literal["resumed", "linked", "nothing"]
    """linked: a job of its own makes what is missing, for this one had succeeded or other code is to run it than it was
    submitted for; nothing: there is no damage"""
    units: int = 0
    """of a linked job: units that lack something"""


class OutputStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One expected output, and what is there of it."""

    group: int
    index: int
    unit: str
    output: str
    path: str
    state: OutputState
    detail: str = ""


class BatchService:
    """The operator's side of batch jobs."""

    def __init__(
        self, control: Control, *, sealer: Sealer | None = None, output_stores: OutputStores | None = None
    ) -> None:
        self.control = control
        self._sealer = sealer or Sealer(None)
        self.output_stores = output_stores or OutputStores(control.store.clock)
        self._ids = IdSource(random.Random())

    async def close(self) -> None:
        """Let go of the stores of outputs."""
        await self.output_stores.close()

    # look -------------------------------------------------------------------------------------------

    async def spec(self, job_id: str) -> Spec:
        """What a batch is to do."""
        return spec_of(await self.control.jobs.get(job_id), self._sealer)

    async def manifest(self, job_id: str) -> Manifest:
        """Every unit and every output that a batch is to make."""
        return await self.output_stores.manifest((await self.spec(job_id)).outputs, job_id)

    async def store(self, job_id: str) -> OutputStore:
        """Where its outputs are."""
        return await self.output_stores.get((await self.spec(job_id)).outputs)

    async def status(self, job_id: str) -> BatchStatus:
        """How a batch stands, from the store of jobs alone."""
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
        trouble = waits if _CANNOT_LOOK in waits else await self._unreached(job)
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
        """What a unit says that cannot publish its outputs. The oldest are asked: they were the first to try."""
        state = table_of(None).get(job.status)
        if state is None or not state.holds:
            return ""
        for status in ("running", "pending"):
            query = Query(parent=job.id, status=(status,), oldest_first=True)
            for unit in (await self.control.store.find(query, limit=_ASKED)).jobs:
                told = unit.progress.message if status == "running" and unit.progress else unit.reason
                if told and told.startswith(UNREACHED):
                    return f"unit {unit.unit}: {told}"
        return ""

    async def _driver_row(self, job: Job) -> Job | None:
        return (await self.control.store.get([driver_id(job)]))[0] if job.token else None

    async def outputs(
        self, job_id: str, *, start: int = 0, limit: int = 1000, fresh: bool = False
    ) -> tuple[list[OutputStatus], int | None]:
        """What is there of some units' outputs, in the order of the manifest; and where to go on, None at the end."""
        spec = await self.spec(job_id)
        store = await self.output_stores.get(spec.outputs)
        manifest = await self.output_stores.manifest(spec.outputs, job_id)
        found: list[OutputStatus] = []
        first = 0
        for number, group in enumerate(manifest.groups):
            here = group.pairs[max(0, start - first) : max(0, start + limit - first)]
            index = max(0, start - first)
            units = list(msgspec.structs.replace(group, pairs=here).units())
            for place, seen in enumerate(
                await store.look(units, group.outputs, verify=spec.verify, fresh=fresh), index
            ):
                found += (
                    OutputStatus(
                        group=number,
                        index=place,
                        unit=seen.unit.label,
                        output=name,
                        path=output_path(seen.unit, group.outputs[name]),
                        state=finding.state,
                        detail=finding.detail,
                    )
                    for name, finding in seen.outputs.items()
                )
            first += len(group.pairs)
        return found, start + limit if start + limit < first else None

    async def lacking(self, job_id: str, *, page: int = 0) -> list[OutputDefect]:
        """What the last validation found lacking, a page of it; empty after the last."""
        job = await self.control.jobs.get(job_id)
        spec = spec_of(job, self._sealer)
        validation = validating.validation_of(job, self._sealer)
        return (
            []
            if validation is None
            else await validating.listed(await self.output_stores.get(spec.outputs), validation, page=page)
        )

    async def validations(self, job_id: str) -> list[Validation]:
        """The last 100 validations, oldest first; none if the outputs cannot be reached."""
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
        """Look at all outputs now. A batch that waits for it, or is partial, is moved on; another keeps its state, and
        what was found is told. `force` looks at everything anew, whatever was seen before. With a `version`, here and
        below, only as long as the job is at that one; else `VersionChanged` is raised."""
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
        found = await validating.look(
            store,
            await self.output_stores.manifest(spec.outputs, job_id),
            spec,
            at_ms=self.control.store.clock.now_ms(),
            attempt=1 + max(attempts),
            by=actor,
            fresh=force,
        )
        moved = await validating.settle(self.control, job_id, found, self._sealer, actor=actor, version=version)
        if job.status == "validating" and moved.status != "validating":
            await self.control.drivers.nudge(job)
        return found

    async def conclude(self, job_id: str, *, actor: str = "client") -> Validation | None:
        """Validate a batch whose units are all over, in place of its driver, for which no worker is there. None: it is
        not that far, or aggregations have to run first. A driver that comes later finds the batch settled."""
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
                reason = kept(
                    "its units are done; no worker is there, so its outputs are looked at from outside", row.reason
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
        """What a resume would run, and why; and what it would not, for its inputs are incomplete."""
        spec = spec_of(await self._get(job_id, version), self._sealer)
        store = await self.output_stores.get(spec.outputs)
        manifest = await self.output_stores.manifest(spec.outputs, job_id)
        for group in range(len(manifest.groups)):
            async for wanted in planned_units(store, manifest, spec, group, fresh=True):
                if wanted.why:
                    unit: Unit = wanted.unit
                    yield UnitToRun(group=group, index=wanted.index, unit=unit.label, why=wanted.why, run=wanted.run)

    async def resume(
        self,
        job_id: str,
        *,
        actor: str = "client",
        reason: str = "resumed on request",
        version: int | None = None,
        by: Batch | None = None,
    ) -> ResumeOutcome:
        """Run the units again whose outputs are missing or corrupt: in the same job, or, if that had succeeded, in a
        new one that is linked to it. Of two who ask at the same time one is refused, or gets the other's job.

        `by` is the study as it is declared now: its code makes what is missing, in a linked job, though the batch was
        submitted for other code. What is intact stays. Every entry names the source that made it, and validations count
        the units that were made by other code."""
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
        if job.status == "succeeded":  # which is final: its version is the same for ever
            return await self._repair(job, spec)
        # a store takes two who wish the same at once for one that is repeated: this tells them apart
        (request,) = self._ids.take(self.control.store.clock.now_ms(), 1)

        def decide(row: Job, now_ms: int) -> tuple[Move, ...]:
            if row.status not in RESUMABLE:
                state = table_of(None).get(row.status)
                why = (
                    "it was cancelled; submit it again, which runs what is missing"
                    if row.status == "cancelled"
                    else "it is at work already"
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
                job_id, moved.status, "pending", allowed=(), why="another resumed it in the same moment"
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
        made = await self.submit(
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
        return ResumeOutcome(id=made.id, how="linked", units=units)

    # submit -----------------------------------------------------------------------------------------

    async def submit(self, spec: Spec, groups: list[ManifestGroup], plan: Plan) -> InsertResult:
        """Keep what is to be made with the outputs, then the job. If the outputs cannot be reached, there is no job."""
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
            made = await self.control.jobs.submit_request(request)
        except StoreError:
            # it may have been stored nevertheless: then its driver needs the manifest
            raise
        except MainstayError:
            await _forget(store, job_id)
            raise
        if not made.created:
            await _forget(store, job_id)
        return made


def _check_same_outputs(spec: Spec, study: Batch) -> None:
    """What other code makes must have the same places: else it is another batch."""
    now = [one.name for one in study.aggregations]
    if (study.name, study.outputs, now) != (spec.study, spec.files, [one.name for one in spec.aggregations]):
        raise InvalidInput(
            "study",
            f"{study.name} declares other outputs or aggregations now than the batch of {spec.study} was submitted "
            "with; submit it again",
        )


async def _forget(store: OutputStore, job_id: str) -> None:
    """Remove the manifest of a job that there is not. One that stays does no harm."""
    with contextlib.suppress(StoreError):
        await store.blobs.delete([manifest_path(job_id)])


def count_of(groups: list[ManifestGroup]) -> int:
    """Expected outputs."""
    return sum(len(group.pairs) * len(group.outputs) for group in groups)
