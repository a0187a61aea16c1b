"""The handlers of the units of a node job (`mainstay.worker.Work`): one for `local`, one for `leader`.

Each run makes a new object of the class. A plain method runs in a thread, an `async def` on the loop of the worker, and
either in a child process with `process=True`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from ..control import Control, Decide
from ..errors import BadArguments, InvalidInput, StoreError
from ..task import Arguments, Returns, enter_job
from ..worker import Mode, context
from .methods import NodeMethod
from .results import LeaderRun, Node, NodeResult
from .service import node_result
from .spec import NodeUnitCall, call_of, fencing_token, opened_arguments, unit_id, unit_of

if TYPE_CHECKING:
    from .node_job import NodeJob

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0


class _Call(msgspec.Struct, frozen=True):
    """A unit, unpacked."""

    call: NodeUnitCall
    arguments: Arguments


class _MethodWork:
    """What both handlers share: the arguments, and where the method runs."""

    def __init__(self, job: NodeJob, method: NodeMethod, returns: Returns[Any]) -> None:
        self._job = job
        self._method = method
        self._returns = returns
        self.is_async = method.is_async
        self.mode: Mode = "process" if job.process else "loop" if method.is_async else "thread"
        self.decide: Decide | None = job.decide

    def unpack(self, payload: bytes) -> _Call:
        call = call_of(payload)
        try:
            opened = opened_arguments(call.arguments, self._job.client.sealer)
        except InvalidInput as error:
            raise BadArguments(error.field, error.rule) from error.__cause__
        return _Call(call, self._job.signature.unpack(opened))

    def pack(self, result: Any) -> msgspec.Raw | None:
        return self._returns.pack(result)

    def _given(self, unpacked: _Call) -> dict[str, Any]:
        given: dict[str, Any] = self._job.signature.call(unpacked.arguments)
        return given


class LocalWork(_MethodWork):
    """Runs `local` on a node."""

    def call(self, unpacked: _Call) -> Any:
        enter_job(self._job.client)
        unit, call = context().job, unpacked.call
        node = Node(
            name=call.node,
            labels=dict(call.labels),
            job_id=unit.parent or "",
            token=fencing_token(call, unit),
            members=call.members,
        )
        return self._method.function(self._job.owner(), node, **self._given(unpacked))


class LeaderWork(_MethodWork):
    """Runs `leader`, with the results of the nodes that had ended when its phase began."""

    def call(self, unpacked: _Call) -> Any:
        enter_job(self._job.client)
        given = self._given(unpacked)
        if self._method.run_parameter:
            unit = context().job
            run = LeaderRun(job_id=unit.parent or "", token=fencing_token(unpacked.call, unit))
            given[self._method.run_parameter] = run
        if self.is_async:
            return self._run_async(unpacked.call, given)
        results = asyncio.run_coroutine_threadsafe(self._results(unpacked.call), context().link.loop).result()
        return self._method.function(self._job.owner(), results, **given)

    async def _run_async(self, call: NodeUnitCall, given: dict[str, Any]) -> Any:
        return await self._method.function(self._job.owner(), await self._results(call), **given)

    async def _results(self, call: NodeUnitCall) -> list[NodeResult]:
        """The results, in the order of the nodes. While the store is away, it tries again until the run timeout. It
        keeps what it has read: a store may lose every other answer."""
        job_id = context().job.parent or ""
        ids = [unit_id(job_id, call.claim, unit_of(node)) for node in call.ended]
        found: dict[str, NodeResult] = {}
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                control: Control = await self._job.client.open()
                rows = await control.store.get(ids)
                for node, row in zip(call.ended, rows, strict=True):
                    if row is not None and node not in found:
                        found[node] = await node_result(control, node, row, self._job.local_returns)
                return [found[node] for node in call.ended if node in found]
            except StoreError:
                await asyncio.sleep(wait_s)
                wait_s = min(_LONGEST_WAIT_S, 2 * wait_s)
