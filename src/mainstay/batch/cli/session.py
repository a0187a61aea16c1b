"""The batch service of a command, on the store or the app that the command names."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

from rich.console import Console
from rich.status import Status

from ...cli import Connected, Where, connecting, full_id
from ...errors import InvalidInput
from .. import Batch, BatchService

T = TypeVar("T")


@contextlib.asynccontextmanager
async def service_of(to: Connected) -> AsyncIterator[BatchService]:
    """The batch service of an open store. With an app, it reads payloads that the codec of the app has sealed."""
    service = BatchService(to.control, sealer=None if to.app is None else to.app.client.sealer)
    try:
        yield service
    finally:
        await service.close()


def with_service(where: Where, job_id: str, work: Callable[[BatchService, str], Awaitable[T]]) -> T:
    """Open the store, find the job by its full or short id, and work on it."""
    return with_studies(where, job_id, lambda service, full, _: work(service, full))


def with_studies(
    where: Where, job_id: str, work: Callable[[BatchService, str, Mapping[str, Batch] | None], Awaitable[T]]
) -> T:
    """The same, with the studies of the app; None without --app."""

    async def run(to: Connected) -> T:
        async with service_of(to) as service:
            full = await full_id(to.control.store, job_id)
            return await work(service, full, None if to.app is None else to.app.part("batch").studies)

    return connecting(where, run)


async def study_of(service: BatchService, job_id: str, studies: Mapping[str, Batch] | None) -> Batch:
    """The study of a batch, as the app declares it now."""
    name = (await service.spec(job_id)).study
    if studies is None:
        raise InvalidInput("with-this-code", "name the app whose code it is: --app MODULE:APP")
    if name not in studies:
        known = ", ".join(studies) or "none"
        raise InvalidInput("app", f"it declares no batch {name}; it declares {known}")
    return studies[name]


def busy(text: str, *, quiet: bool) -> Status:
    """A spinner on stderr."""
    return Console(stderr=True, highlight=False, quiet=quiet).status(text)
