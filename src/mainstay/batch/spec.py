"""What is stored of a batch: with the job, with each of its units, and with its driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ..control import Plan
from ..errors import BadArguments, InvalidInput, SchemaTooNew
from ..model import Job
from ..outputs.lookup import Verify
from ..task.codec import Sealer

SCHEMA = 1
KIND = "batch"
#: the units of a batch that are no simulations; the name of a unit's row is that of the study and one of these
DRIVER, UNIT = "driver", "unit"
#: how a unit says that it has to wait for the storage of its outputs
UNREACHED = "the outputs cannot be reached"
_NO_PAYLOAD = msgspec.msgpack.encode(None)


class AggregationSpec(msgspec.Struct, frozen=True):
    """An aggregation, by name, over the units of each set or over all there is."""

    name: str
    over: Literal["set", "all"]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a batch job. Everything about each of its units is in the manifest."""

    study: str
    code: str
    outputs: str
    """URL of the store that the outputs are in"""
    files: dict[str, str]
    """output -> its file, of each unit"""
    sets: int
    """sets of parameters"""
    units: int
    expected: int
    """outputs, those of the aggregations included"""
    manifest: str
    """the digest of its groups: what is to be made, whoever makes it"""
    aggregations: tuple[AggregationSpec, ...] = ()
    """in the order of the manifest's groups after the first"""
    plan: Plan
    """the options of each unit"""
    failure_budget: float | None = None
    """stop early when more than this part of the units has failed"""
    verify: Verify = "content"
    force: bool = False
    runner: str = "local"
    resumed_from: str | None = None
    sources: tuple[str, ...] = ()
    """a digest of the source it was submitted with: of the unit's function and of each aggregation"""
    run_by: str = ""
    """the code that runs it (`Batch.fingerprint`) in place of the code it was submitted for; empty: that one"""
    schema: int = SCHEMA


class UnitCall(msgspec.Struct, frozen=True, array_like=True):
    """The payload of a unit: enough to run it without asking the store."""

    group: int
    """0: a simulation; the others are aggregations, in the order of the manifest"""
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
    """How the units of one group stand, since the batch was last started or resumed."""

    there: int = 0
    """their outputs were there already: no unit was made for them"""
    made: int = 0
    """units to run"""
    idle: int = 0
    """aggregations that are not run, for their inputs are incomplete"""
    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    skipped: int = 0
    """their outputs had come by another job's hand when their turn came"""
    failed: int = 0
    cancelled: int = 0

    @property
    def done(self) -> int:
        """Units whose outputs should be there."""
        return self.there + self.succeeded + self.skipped


class OutsideRecord(msgspec.Struct, kw_only=True):
    """What a driver remembers of the job that it started outside."""

    name: str
    group: int = 0
    """of the manifest: what was at work when it was started"""
    handle: str = ""
    """what its runner calls it; empty: it was about to be started"""
    state: str = ""
    """as it was last seen (`Outside.state`); or "refused": it could not be started, or "stopped": it was not needed"""
    exit_code: int | None = None
    looked_ms: int = 0
    """when its runner was last asked, or was about to be"""
    away_ms: int = 0
    """since when its runner fails to answer; 0: it does not"""
    tries: int = 0
    """how often it was tried to start, to stop, or to see it end"""
    unseen: int = 0
    """looks in a row that did not find it"""
    trouble: str = ""
    """what its runner fails with, and was told of"""

    @property
    def over(self) -> bool:
        """It will not do any more, by what is known."""
        return self.state in ("exited", "gone", "refused", "stopped")

    def __str__(self) -> str:
        return f"outside job {self.name}" + (f" ({self.handle})" if self.handle else "")


class DriverState(msgspec.Struct, kw_only=True):
    """What a driver remembers: its checkpoint."""

    group: int = 0
    """of the manifest, at work"""
    began_ms: int = 0
    """when the planning of this group began"""
    planned: bool = False
    """all its units are there"""
    there: int = 0
    """units of this group whose outputs were there already"""
    made: int = 0
    """units that were made for it"""
    idle: int = 0
    """aggregations that are not run, for their inputs are incomplete"""
    unknown: int = 0
    """units whose outputs could not be looked at: looked at again when the others are done"""
    unknown_why: str = ""
    before: dict[str, int] = {}
    """units of the job by status, when the planning of this group began"""
    force: bool = False
    """make everything anew"""
    past: list[UnitCounts] = []
    """what the groups before this one came to"""
    outages: int = 0
    """how often in a row the outputs could not be looked at"""
    rechecks: int = 0
    stopped: str = ""
    """why it was stopped early"""
    outside: OutsideRecord | None = None
    """the job that a runner outside was given"""


def state_of(driver: Job, sealer: Sealer) -> DriverState | None:
    """The state of a driver: its checkpoint, or before the first one the state it was created with. None: neither."""
    if driver.checkpoint is not None:
        return msgspec.msgpack.decode(sealer.open(driver.checkpoint, field="checkpoint"), type=DriverState)
    if driver.payload != _NO_PAYLOAD:
        return msgspec.msgpack.decode(sealer.open(driver.payload, field="payload"), type=DriverState)
    return None


def unit_counts_of(state: DriverState, counts: Mapping[str, int]) -> UnitCounts:
    """How the group at work stands, from the units of the job by status (without its driver)."""

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
    """What a batch job is to do. Raises `InvalidInput` for a job of another kind, and `SchemaTooNew`."""
    if job.kind != KIND or job.parent is not None:
        raise InvalidInput("job", f"{job.id} ({job.name}) is not a batch; this works for batch jobs only")
    payload = sealer.open(job.payload, field="payload")
    try:
        schema = msgspec.msgpack.decode(payload, type=_Head).schema
        if schema <= SCHEMA:
            return msgspec.msgpack.decode(payload, type=Spec)
    except msgspec.DecodeError as error:
        raise InvalidInput("job", f"{job.id}: what it is to do cannot be read: {error}") from None
    raise SchemaTooNew(f"job {job.id} was submitted by a newer Mainstay (schema {schema} of batches); upgrade this one")


class _Head(msgspec.Struct):
    schema: int = SCHEMA


def call_of(payload: bytes, sealer: Sealer) -> UnitCall:
    """What a unit is to do; raises `BadArguments`."""
    try:
        return msgspec.msgpack.decode(sealer.open(payload, field="payload"), type=UnitCall)
    except msgspec.DecodeError as error:
        raise BadArguments("payload", f"what the unit is to do cannot be read: {error}") from None


def row_name(study: str, role: str) -> str:
    """What a unit's row is called: a worker finds what runs it by this."""
    return f"{study}:{role}"
