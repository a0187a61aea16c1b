"""A submitted batch, in the hand of whoever submitted it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from ..errors import InvalidInput
from ..model import Job
from ..outputs import Unit
from ..task.client import AppClient
from .service import Desk, Output, Resumed, Status, ToRun
from .study import Batch
from .validation_result import Validation


class BatchRun:
    """A batch by its id. Everything is read from the stores when it is asked for.

    Each method has a `_sync` form for code without an event loop.
    """

    __slots__ = ("_client", "_desk", "created", "id")

    def __init__(self, client: AppClient, job_id: str, *, desk: Callable[[], Desk], created: bool = False) -> None:
        self.id = job_id
        self.created = created
        """whether this submit made it; False when the same work was submitted before and is not settled yet"""
        self._client = client
        self._desk = desk

    async def wait(self, timeout: str | timedelta | None = None) -> Job:  # noqa: ASYNC109 - how users say it
        """The row once it is settled, however it settled; raises `WaitTimeout`."""
        return await (await self._client.open()).jobs.wait(self.id, timeout)

    def wait_sync(self, timeout: str | timedelta | None = None) -> Job:
        return self._client.run(lambda: self.wait(timeout), what="wait_sync")

    async def status(self) -> Status:
        """How it stands: the row, how many of its units are done, and what the last validation found."""
        await self._client.open()
        return await self._desk().status(self.id)

    def status_sync(self) -> Status:
        return self._client.run(self.status, what="status_sync")

    async def validate(self, *, force: bool = False) -> Validation:
        """Look at all its outputs now."""
        await self._client.open()
        return await self._desk().validate(self.id, force=force)

    def validate_sync(self, *, force: bool = False) -> Validation:
        return self._client.run(lambda: self.validate(force=force), what="validate_sync")

    async def to_run(self) -> list[ToRun]:
        """What a resume would run, and why."""
        await self._client.open()
        return [one async for one in self._desk().to_run(self.id)]

    def to_run_sync(self) -> list[ToRun]:
        return self._client.run(self.to_run, what="to_run_sync")

    async def resume(self, *, reason: str = "resumed on request", by: Batch | None = None) -> Resumed:
        """Run the units again whose outputs are missing or corrupt. `by` is the study whose code, as it is now, makes
        them, though the batch was submitted for other code: in a job of its own, which is linked to this one."""
        await self._client.open()
        return await self._desk().resume(self.id, reason=reason, by=by)

    def resume_sync(self, *, reason: str = "resumed on request", by: Batch | None = None) -> Resumed:
        return self._client.run(lambda: self.resume(reason=reason, by=by), what="resume_sync")

    async def outputs(self) -> list[Output]:
        """Every expected output, and what is there of it."""
        await self._client.open()
        found: list[Output] = []
        start: int | None = 0
        while start is not None:
            some, start = await self._desk().outputs(self.id, start=start)
            found += some
        return found

    def outputs_sync(self) -> list[Output]:
        return self._client.run(self.outputs, what="outputs_sync")

    async def read(self, output: str, params: Any = None, seed: int | None = None) -> bytes:
        """An output, verified: of a unit, or of an aggregation, by the output's name."""
        await self._client.open()
        desk = self._desk()
        store, manifest = await desk.store(self.id), await desk.manifest(self.id)
        groups = [group for group in manifest.groups if output in group.outputs]
        if not groups:
            known = ", ".join(name for group in manifest.groups for name in group.outputs)
            raise InvalidInput("output", f"the batch makes no output {output!r}; it makes {known}")
        group = groups[0]
        given = msgspec.to_builtins(params or {}, str_keys=True, order="deterministic")
        # as they are stored: to Python 1 and 1.0 are equal, and an address tells them apart
        stored = next((one for one in group.params if one == given), given)
        return await store.read(Unit(group.study, group.code, stored, seed), group.outputs[output])

    def read_sync(self, output: str, params: Any = None, seed: int | None = None) -> bytes:
        return self._client.run(lambda: self.read(output, params, seed), what="read_sync")

    async def cancel(self, reason: str = "cancelled on request") -> Job:
        """Cancel it: its units that wait are ended, those at work are told to stop."""
        return await (await self._client.open()).operations.cancel(self.id, actor="client", reason=reason)

    def cancel_sync(self, reason: str = "cancelled on request") -> Job:
        return self._client.run(lambda: self.cancel(reason), what="cancel_sync")

    async def story(self) -> list[str]:
        """What happened to it, a line each."""
        return await (await self._client.open()).jobs.story(self.id)

    def story_sync(self) -> list[str]:
        return self._client.run(self.story, what="story_sync")

    def __repr__(self) -> str:
        return f"BatchRun({self.id!r}{', created=True' if self.created else ''})"
