"""The handle of a submitted batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from ..errors import InvalidInput
from ..model import Job
from ..outputs import Unit
from ..task import AppClient
from .service import BatchService, BatchStatus, ResumeOutcome, UnitToRun
from .study import Batch
from .validation_result import OutputStatus, Validation


class BatchRun:
    """A batch by its id. Every method reads the stores.

    Each method has a `_sync` form for code without an event loop.
    """

    __slots__ = ("_client", "_service", "created", "id")

    def __init__(
        self, client: AppClient, job_id: str, *, service: Callable[[], BatchService], created: bool = False
    ) -> None:
        self.id = job_id
        self.created = created
        """whether this submit created it; False: the same work was submitted before and is not settled yet"""
        self._client = client
        self._service = service

    async def wait(self, timeout: str | timedelta | None = None) -> Job:  # noqa: ASYNC109 - how users say it
        """Wait until it is settled, in any state; raises `WaitTimeout`."""
        return await (await self._client.open()).jobs.wait(self.id, timeout)

    def wait_sync(self, timeout: str | timedelta | None = None) -> Job:
        return self._client.run(lambda: self.wait(timeout), what="wait_sync")

    async def status(self) -> BatchStatus:
        """Its status: the row, the counts of its units, and the last validation."""
        await self._client.open()
        return await self._service().status(self.id)

    def status_sync(self) -> BatchStatus:
        return self._client.run(self.status, what="status_sync")

    async def validate(self, *, force: bool = False) -> Validation:
        """Validate all its outputs now."""
        await self._client.open()
        return await self._service().validate(self.id, force=force)

    def validate_sync(self, *, force: bool = False) -> Validation:
        return self._client.run(lambda: self.validate(force=force), what="validate_sync")

    async def to_run(self) -> list[UnitToRun]:
        """The units that a resume would run, and why."""
        await self._client.open()
        return [one async for one in self._service().to_run(self.id)]

    def to_run_sync(self) -> list[UnitToRun]:
        return self._client.run(self.to_run, what="to_run_sync")

    async def resume(self, *, reason: str = "resumed on request", by: Batch | None = None) -> ResumeOutcome:
        """Run the units again whose outputs are missing or corrupt. With `by`, the current code of a study runs them in
        a new job that is linked to this one, although the batch was submitted for other code."""
        await self._client.open()
        return await self._service().resume(self.id, reason=reason, by=by)

    def resume_sync(self, *, reason: str = "resumed on request", by: Batch | None = None) -> ResumeOutcome:
        return self._client.run(lambda: self.resume(reason=reason, by=by), what="resume_sync")

    async def outputs(self) -> list[OutputStatus]:
        """Every expected output with its state."""
        await self._client.open()
        outputs: list[OutputStatus] = []
        start: int | None = 0
        while start is not None:
            some, start = await self._service().outputs(self.id, start=start)
            outputs += some
        return outputs

    def outputs_sync(self) -> list[OutputStatus]:
        return self._client.run(self.outputs, what="outputs_sync")

    async def read(self, output: str, params: Any = None, seed: int | None = None) -> bytes:
        """The verified content of an output of a unit, or of an aggregation."""
        await self._client.open()
        service = self._service()
        store, manifest = await service.store(self.id), await service.manifest(self.id)
        groups = [group for group in manifest.groups if output in group.outputs]
        if not groups:
            known = ", ".join(name for group in manifest.groups for name in group.outputs)
            raise InvalidInput("output", f"the batch makes no output {output!r}; it makes {known}")
        group = groups[0]
        wanted_params = msgspec.to_builtins(params or {}, str_keys=True, order="deterministic")
        # as they are stored: to Python 1 and 1.0 are equal, and an address tells them apart
        stored = next((one for one in group.params if one == wanted_params), wanted_params)
        return await store.read(Unit(group.study, group.code, stored, seed), group.outputs[output])

    def read_sync(self, output: str, params: Any = None, seed: int | None = None) -> bytes:
        return self._client.run(lambda: self.read(output, params, seed), what="read_sync")

    async def cancel(self, reason: str = "cancelled on request") -> Job:
        """Cancel it: pending units end, running units are asked to stop."""
        return await (await self._client.open()).operations.cancel(self.id, actor="client", reason=reason)

    def cancel_sync(self, reason: str = "cancelled on request") -> Job:
        return self._client.run(lambda: self.cancel(reason), what="cancel_sync")

    async def story(self) -> list[str]:
        """Its history, a line for each event."""
        return await (await self._client.open()).jobs.story(self.id)

    def story_sync(self) -> list[str]:
        return self._client.run(self.story, what="story_sync")

    def __repr__(self) -> str:
        return f"BatchRun({self.id!r}{', created=True' if self.created else ''})"
