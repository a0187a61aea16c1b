"""The batch service of a command, on the store or the app that the command names."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from ...cli import OPENERS, Connected, connected, full_id
from ...errors import InvalidInput
from ...worker import AppBase
from .. import Batch, BatchService


class BatchSession(msgspec.Struct, frozen=True):
    """The batch service of an open store. A command with a parameter of this type gets it opened."""

    service: BatchService
    app: AppBase | None
    """None: only a store was given"""

    async def full_id(self, given: str) -> str:
        """The id of the job with this full or short id."""
        return await full_id(self.service.control.store, given)

    async def study_of(self, job_id: str) -> Batch:
        """The study of a batch, as the app declares it now."""
        name = (await self.service.spec(job_id)).study
        if self.app is None:
            raise InvalidInput("with-this-code", "name the app whose code it is: --app MODULE:APP")
        studies: dict[str, Batch] = self.app.part("batch").studies
        if name not in studies:
            known = ", ".join(studies) or "none"
            raise InvalidInput("app", f"it declares no batch {name}; it declares {known}")
        return studies[name]


@contextlib.asynccontextmanager
async def batch_session(connection: contextlib.AbstractAsyncContextManager[Connected]) -> AsyncIterator[BatchSession]:
    """Open a session. With an app, its service reads payloads that the codec of the app has sealed."""
    async with connection as to:
        service = BatchService(to.control, sealer=None if to.app is None else to.app.client.sealer)
        try:
            yield BatchSession(service, to.app)
        finally:
            await service.close()


OPENERS[BatchSession] = lambda where: batch_session(connected(where))
