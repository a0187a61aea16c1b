"""The stored data of a batch: the payloads of the job and its units, and the state of its driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ..control import Plan
from ..errors import BadArguments, InvalidInput, SchemaTooNew
from ..model import Job
from ..outputs import Verify
from ..task import Sealer

SCHEMA = 1
KIND = "batch"
#: roles of units; the name of a row is the study and its role, or the study and an aggregation
DRIVER, UNIT = "driver", "unit"
#: how the reason of a unit begins that waits for the storage of its outputs
UNREACHED = "the outputs cannot be reached"
_NO_PAYLOAD = msgspec.msgpack.encode(None)


class AggregationSpec(msgspec.Struct, frozen=True):
    """An aggregation by name: over the units of each set, or over everything."""

    name: str
    over: Literal["set", "all"]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a batch job. Everything about each of its units is in the manifest."""

    study: str
    code: str
    outputs: str
    """URL of the output store"""
    files: dict[str, str]
    """file of each output of a unit"""
    sets: int
    """parameter sets"""
    units: int
    expected: int
    """outputs, with those of the aggregations"""
    manifest: str
    """digest of the groups: the same for the same work"""
    aggregations: tuple[AggregationSpec, ...] = ()
    """in the order of the manifest's groups after the first"""
    plan: Plan
    """the options of each unit"""
    failure_budget: float | None = None
    """stop early when a larger share of the units has failed"""
    verify: Verify = "content"
    force: bool = False
    runner: str = "local"
    resumed_from: str | None = None
    sources: tuple[str, ...] = ()
    """digests of the source at submit: of the unit's function and of each aggregation"""
    run_by: str = ""
    """the code that runs it (`Batch.fingerprint`); empty: the code it was submitted for"""
    schema: int = SCHEMA


class UnitCall(msgspec.Struct, frozen=True, array_like=True):
    """The payload of a unit: everything needed to run it."""

    group: int
    """its group in the manifest; 0: a simulation, others: aggregations"""
    index: int
    """its place in the group"""
    study: str
    code: str
    params: dict[str, Any]
    seed: int | None
    outputs: str
    verify: Verify
    force: bool = False
    run_by: str = ""
    """as in `Spec`"""


class UnitCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The units of one group by state, since the batch was last started or resumed."""

    there: int = 0
    """their outputs existed, so they were not created"""
    made: int = 0
    """created to run"""
    idle: int = 0
    """aggregations that are not run: their inputs are incomplete"""
    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    skipped: int = 0
    """another job had made their outputs when they were claimed"""
    failed: int = 0
    cancelled: int = 0

    @property
    def done(self) -> int:
        """Units whose outputs should exist."""
        return self.there + self.succeeded + self.skipped


class OutsideRecord(msgspec.Struct, kw_only=True):
    """The outside job of a batch, as its driver has recorded it."""

    name: str
    group: int = 0
    """the group of the manifest that it was started for"""
    handle: str = ""
    """its id at the runner; empty: it was about to be started"""
    state: str = ""
    """its last known state (`OutsideStatus.state`); "refused": it could not be started; "stopped": it was not needed"""
    exit_code: int | None = None
    looked_ms: int = 0
    """time of the last request to its runner"""
    away_ms: int = 0
    """since when requests to its runner fail; 0: they do not"""
    tries: int = 0
    """attempts to start it, to stop it, or to see it end"""
    unseen: int = 0
    """consecutive requests that did not find it"""
    trouble: str = ""
    """the reported error of its runner"""

    @property
    def over(self) -> bool:
        """Whether it has ended, as far as is known."""
        return self.state in ("exited", "gone", "refused", "stopped")

    def __str__(self) -> str:
        return f"outside job {self.name}" + (f" ({self.handle})" if self.handle else "")


class DriverState(msgspec.Struct, kw_only=True):
    """The state of a driver: its checkpoint."""

    group: int = 0
    """the current group of the manifest"""
    began_ms: int = 0
    """when the planning of the current group began"""
    planned: bool = False
    """all units of the group were created"""
    there: int = 0
    """units of the group whose outputs existed"""
    made: int = 0
    """units created for the group"""
    idle: int = 0
    """aggregations that are not run: their inputs are incomplete"""
    unknown: int = 0
    """units whose outputs could not be checked; they are checked again when the others are done"""
    unknown_why: str = ""
    before: dict[str, int] = {}
    """units of the job by status, before the planning of the group"""
    force: bool = False
    """run every unit, also those whose outputs exist"""
    past: list[UnitCounts] = []
    """the counts of earlier groups"""
    outages: int = 0
    """consecutive failed checks of the outputs"""
    rechecks: int = 0
    stopped: str = ""
    """why the batch was stopped early"""
    outside: OutsideRecord | None = None
    """its outside job"""


def state_of(driver: Job, sealer: Sealer) -> DriverState | None:
    """The state of a driver: its checkpoint, or before the first one the state it was created with. None: neither."""
    if driver.checkpoint is not None:
        return msgspec.msgpack.decode(sealer.open(driver.checkpoint, field="checkpoint"), type=DriverState)
    if driver.payload != _NO_PAYLOAD:
        return msgspec.msgpack.decode(sealer.open(driver.payload, field="payload"), type=DriverState)
    return None


def unit_counts_of(state: DriverState, counts: Mapping[str, int]) -> UnitCounts:
    """The counts of the current group, from the units of the job by status."""

    def now(*names: str) -> int:
        return max(0, sum(counts.get(name, 0) - state.before.get(name, 0) for name in names))

    return UnitCounts(
        there=state.there,
        made=state.made,
        idle=state.idle,
        waiting=now("pending"),
        running=now("running", "dispatched"),
        succeeded=now("succeeded"),
        skipped=now("skipped"),
        failed=now("failed", "timed_out"),
        cancelled=now("cancelled"),
    )


def spec_of(job: Job, sealer: Sealer) -> Spec:
    """The payload of a batch job. Raises `InvalidInput` for a job of another kind, and `SchemaTooNew`."""
    if job.kind != KIND or job.parent is not None:
        raise InvalidInput("job", f"{job.id} ({job.name}) is not a batch; this works for batch jobs only")
    payload = sealer.open(job.payload, field="payload")
    try:
        schema = msgspec.msgpack.decode(payload, type=_Head).schema
        if schema <= SCHEMA:
            return msgspec.msgpack.decode(payload, type=Spec)
    except msgspec.DecodeError as error:
        raise InvalidInput("job", f"{job.id}: its payload cannot be read: {error}") from None
    raise SchemaTooNew(f"job {job.id} was submitted by a newer Mainstay (schema {schema} of batches); upgrade this one")


class _Head(msgspec.Struct):
    schema: int = SCHEMA


def call_of(payload: bytes, sealer: Sealer) -> UnitCall:
    """The payload of a unit; raises `BadArguments`."""
    try:
        return msgspec.msgpack.decode(sealer.open(payload, field="payload"), type=UnitCall)
    except msgspec.DecodeError as error:
        raise BadArguments("payload", f"the payload of the unit cannot be read: {error}") from None


def row_name(study: str, role: str) -> str:
    """The name of a unit's row, by which a worker finds its handler."""
    return f"{study}:{role}"
