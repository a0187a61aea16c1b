"""The values of node jobs that users see: what `local` and `leader` get, and the result of the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..control import is_sealed
from ..model import ErrorInfo


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """The node that runs a `local`.

    >>> Node(name="n1", job_id="018bcfe5-6800-7000-8000-000000000001", token=1_000_001, members=("n1", "n2")).name
    'n1'
    """

    name: str
    labels: Mapping[str, str] = {}
    job_id: str
    token: int
    """the fencing token of this run: larger for every later run of the job on this node. A system that remembers the
    largest one can refuse a run that was taken away from a node that does not know it yet"""
    members: tuple[str, ...]
    """the nodes that the job runs on, frozen when it began"""


class LeaderRun(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of one run of a `leader`, which may take it as a parameter. The phase counts once, but may run twice
    if the leader dies within it: pass `job_id` to what must happen once, and `token` to what must refuse the earlier
    run."""

    job_id: str
    token: int
    """larger for every later run of this leader phase"""


class NodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job on one node."""

    node: str
    state: str
    """succeeded, failed, timed_out, cancelled or skipped; in a view of a running job also pending, dispatched or
    running"""
    result: Any = None
    """what `local` returned, in its declared type"""
    error: ErrorInfo | None = None
    started_ms: int | None = None
    """when its last run began, if that is known"""
    ended_ms: int | None = None


class NodeJobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a node job. A job that failed has one, too, without a value."""

    value: Any = None
    """what `leader` returned, in its declared type"""
    members: tuple[str, ...] = ()
    """the nodes that were active when the job began"""
    late: tuple[str, ...] = ()
    """nodes that joined later and ran it (`late_nodes=True`); they do not count for the quorum"""
    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    """nodes that had not ended in time"""
    quorum_needed: int = 0
    quorum_reached: bool = True
    warnings: tuple[str, ...] = ()


class StoredResult(NodeJobResult, frozen=True, kw_only=True):
    """The result of a node job as it is stored. The leader that writes it need not have the codec that sealed the
    value."""

    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    sealed: bool = False
    """the value is the bytes of a sealed one"""

    @classmethod
    def of(cls, result: NodeJobResult) -> StoredResult:
        """From a result whose value is the stored result of the leader phase; None: it has none."""
        fields = {name: getattr(result, name) for name in NodeJobResult.__struct_fields__ if name != "value"}
        if result.value is None:
            return cls(**fields)
        sealed = is_sealed(msgspec.msgpack.decode(result.value))
        value = msgspec.msgpack.encode(result.value) if sealed else result.value
        return cls(value=msgspec.Raw(value), sealed=sealed, **fields)

    def opened(self, read: Callable[[bytes | None], Any]) -> NodeJobResult:
        """The result, with the value that `read` makes of the stored one."""
        data: bytes | None = msgspec.msgpack.decode(self.value, type=bytes) if self.sealed else bytes(self.value)
        fields = {name: getattr(self, name) for name in NodeJobResult.__struct_fields__ if name != "value"}
        return NodeJobResult(value=read(None if data == b"\xc0" else data), **fields)


__all__ = ["LeaderRun", "Node", "NodeJobResult", "NodeResult", "StoredResult"]
