"""The handle of a submitted node job."""

from __future__ import annotations

from typing import Any

import msgspec

from ..control import InsertResult
from ..errors import InvalidInput
from ..task import AppClient, Handle, Returns, Sealer
from .results import NodeJobResult, NodeResult, StoredResult
from .service import NodeJobService


class NodeReturns(Returns[NodeJobResult]):
    """The result of a node job: its value is in the declared type of `leader`."""

    def __init__(self, name: str, leader: Any, local: Any, sealer: Sealer) -> None:
        super().__init__(name, NodeJobResult, sealer)
        self.value: Returns[Any] = Returns(f"{name}.leader", leader, sealer)
        self.local: Returns[Any] = Returns(f"{name}.local", local, sealer)

    def unpack(self, data: bytes | None, *, job_id: str) -> NodeJobResult:
        if data is None:
            return NodeJobResult()
        try:
            stored = msgspec.msgpack.decode(data, type=StoredResult)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"the result of job {job_id}", f"is not one of a node job: {error}") from None
        return stored.opened(lambda value: self.value.unpack(value, job_id=job_id))


class NodeHandle(Handle[NodeJobResult]):
    """A node job by its id. Each method reads from the store; nothing is cached.

    Each method has a `_sync` form for code without an event loop.
    """

    __slots__ = ("_local",)

    def __init__(
        self, client: AppClient, returns: NodeReturns, job_id: str, *, created: bool = False, durability: str = ""
    ) -> None:
        super().__init__(client, returns, job_id, created=created, durability=durability)
        self._local = returns.local

    @classmethod
    def submitted(cls, client: AppClient, returns: NodeReturns, job: InsertResult) -> NodeHandle:
        """The handle of a job that was just submitted."""
        return cls(client, returns, job.id, created=job.created, durability=job.durability)

    async def nodes(self) -> list[NodeResult]:
        """The state of the job on each node, by name, also while it runs."""
        return await NodeJobService(await self._client.open(), self._client.sealer).nodes(self.id, self._local)

    def nodes_sync(self) -> list[NodeResult]:
        return self._client.run(self.nodes, what="nodes_sync")

    async def retry(self, *nodes: str, reason: str = "retried on request") -> list[str]:
        """Run it again on nodes where it did not succeed: the named ones, or all. The leader phase follows again.
        Returns their names; raises `InvalidInput` for a node that cannot be retried."""
        service = NodeJobService(await self._client.open(), self._client.sealer)
        return await service.retry(self.id, nodes, actor="client", reason=reason)

    def retry_sync(self, *nodes: str, reason: str = "retried on request") -> list[str]:
        return self._client.run(lambda: self.retry(*nodes, reason=reason), what="retry_sync")

    def __repr__(self) -> str:
        return f"NodeHandle({self.id!r}{', created=True' if self.created else ''})"
