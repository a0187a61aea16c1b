"""The stored data of a node job: its payload, the payloads of its units, and their names and ids."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from ..control import Plan
from ..errors import BadArguments, InvalidInput, SchemaTooNew
from ..model import Job, Options
from ..task import Sealer

SCHEMA = 1
KIND = "node"
#: the phases of a job; the name of a unit's row is the name of the job and its phase
LOCAL, LEADER = "local", "leader"
_NODE = "node/"
#: a unit is claimed less often, and a start has fewer leader phases
_CLAIMS, _ROUNDS = 10_000, 100
#: the first byte of bytes in msgpack
_BYTES = (b"\xc4", b"\xc5", b"\xc6")

Quorum = Literal["majority", "all"] | int
OnNoQuorum = Literal["proceed", "wait", "fail"]
Require = Literal["quorum", "all"]


class NodePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a node job runs. It is stored in clear text: a leader of another program, without the codec, can place it."""

    has_local: bool = True
    has_leader: bool = True
    quorum: Quorum = "majority"
    """how many of the members must succeed before the leader phase"""
    quorum_wait_s: float = 10.0
    """how long the quorum may take after the leader's own part"""
    on_no_quorum: OnNoQuorum = "proceed"
    """what happens after that time"""
    require: Require = "quorum"
    """which members must succeed for the job to succeed"""
    stragglers_s: float = 60.0
    """how long the other members may take after the quorum, before they are cancelled"""
    late_nodes: bool = False
    """nodes that join later run it, too"""
    labels: Mapping[str, str] = {}
    """only nodes with these labels run it"""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a node job."""

    policy: NodePolicy
    plan: Plan
    """the options of each unit"""
    arguments: msgspec.Raw
    """of both methods: a mapping, or bytes that the codec of the app has sealed (`stored_arguments`)"""
    schema: int = SCHEMA


class NodeUnitCall(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a unit: all that its handler needs."""

    phase: Literal["local", "leader"]
    claim: int
    """the token of the job when the unit was created"""
    members: tuple[str, ...] = ()
    arguments: msgspec.Raw
    node: str = ""
    """the only node that may run it; empty: any"""
    labels: Mapping[str, str] = {}
    ended: tuple[str, ...] = ()
    """for the leader phase: the nodes whose results it gets, in order"""
    round: int = 1
    """for the leader phase: which one it is, since nodes of the job may be retried"""


class _Head(msgspec.Struct):
    schema: int = SCHEMA


class _Place(msgspec.Struct):
    """The part of a unit's payload that its placement needs."""

    members: tuple[str, ...] = ()


def spec_of(job: Job, sealer: Sealer) -> NodeSpec:
    """The payload of a node job. Raises `InvalidInput` for another job or an unreadable payload, and `SchemaTooNew`."""
    if job.kind != KIND or job.parent is not None:
        raise InvalidInput("job", f"{job.id} ({job.name}) is not a node job; this works for node jobs only")
    payload = sealer.open(job.payload, field="payload")
    try:
        schema = msgspec.msgpack.decode(payload, type=_Head).schema
        if schema <= SCHEMA:
            return msgspec.msgpack.decode(payload, type=NodeSpec)
    except msgspec.DecodeError as error:
        raise InvalidInput("payload", f"the payload of job {job.id} is not one of a node job: {error}") from None
    raise SchemaTooNew(
        f"job {job.id} was submitted by a newer Mainstay (schema {schema} of node jobs); upgrade this one"
    )


def unreadable_spec() -> NodeSpec:
    """The payload of a job whose own is not needed, or cannot be read: its units are only cancelled."""
    return NodeSpec(policy=NodePolicy(), plan=Plan(options=Options()), arguments=msgspec.Raw(b"\x80"))


def stored_arguments(packed: bytes, sealer: Sealer) -> msgspec.Raw:
    """Packed arguments as they are stored within a payload. Sealed ones are bytes: a store takes sealed data only as a
    whole payload."""
    return msgspec.Raw(msgspec.msgpack.encode(sealer.seal(packed)) if sealer.seals else packed)


def opened_arguments(stored: msgspec.Raw, sealer: Sealer) -> bytes:
    """The packed arguments; raises `InvalidInput`."""
    data = bytes(stored)
    if data[:1] not in _BYTES:
        return data
    return sealer.open(msgspec.msgpack.decode(data, type=bytes), field="arguments")


def call_of(payload: bytes) -> NodeUnitCall:
    """The payload of a unit; raises `BadArguments`."""
    try:
        return msgspec.msgpack.decode(payload, type=NodeUnitCall)
    except msgspec.DecodeError as error:
        raise BadArguments("payload", f"the payload of the unit cannot be read: {error}") from None


def members_of(unit: Job) -> tuple[str, ...]:
    """The members of the job of a unit, as they were frozen."""
    return msgspec.msgpack.decode(unit.payload, type=_Place).members


def row_name(name: str, phase: str) -> str:
    """The name of a unit's row, by which a worker finds its handler."""
    return f"{name}:{phase}"


def unit_of(node: str) -> str:
    """The name of the unit of a node within its job.

    >>> unit_of("n1"), node_of("node/n1"), node_of("leader")
    ('node/n1', 'n1', '')
    """
    return f"{_NODE}{node}"


def node_of(unit: str) -> str:
    """The node of a unit by its name; empty for the leader phase."""
    return unit.removeprefix(_NODE) if unit.startswith(_NODE) else ""


def is_leader_unit(unit: str | None) -> bool:
    """Whether a unit is a leader phase, by its name.

    >>> is_leader_unit("leader"), is_leader_unit("leader/2"), is_leader_unit("node/leader")
    (True, True, False)
    """
    return (unit or "").partition("/")[0] == LEADER


def leader_unit(round_: int) -> str:
    """The name of the unit of a leader phase within its job; nodes that are retried are followed by another one.

    >>> leader_unit(1), leader_unit(2), round_of("leader/2")
    ('leader', 'leader/2', 2)
    """
    return LEADER if round_ == 1 else f"{LEADER}/{round_}"


def round_of(unit: str) -> int:
    """Which leader phase a unit is."""
    return int(unit.partition("/")[2] or 1)


def unit_id(job_id: str, token: int, unit: str) -> str:
    """The id of a unit since the start of the job with this token. It follows from these alone, so a second leader that
    starts the same phase creates no second unit.

    >>> unit_id("018bcfe5-6800-7000-8000-000000000001", 1, "leader")
    '018bcfe5-6800-7ec4-a38d-ae615692ba2e'
    """
    drawn = hashlib.sha256(f"unit {unit} of {job_id}, {token}".encode()).hexdigest()
    # of the same millisecond as the job, so that it sorts with it
    return f"{job_id[:15]}{drawn[:3]}-a{drawn[3:6]}-{drawn[6:18]}"


def fencing_token(call: NodeUnitCall, unit: Job) -> int:
    """A number that grows with every claim of a unit, and also when the whole job is retried with new units."""
    return (call.claim * _ROUNDS + call.round - 1) * _CLAIMS + unit.token
