"""The desk of a command: what it does to a batch, on the store or the app that was named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from ...cli.ids import full_id
from ...cli.programs import Connected, connecting
from ...cli.target import Where
from ...errors import InvalidInput
from .. import Batch, Desk

T = TypeVar("T")


def at_desk(where: Where, job_id: str, work: Callable[[Desk, str], Awaitable[T]]) -> T:
    """Open everything, find the job, work on it. With an app, what is sealed by its codec can be read."""
    return with_studies(where, job_id, lambda desk, whole, _: work(desk, whole))


def with_studies(where: Where, job_id: str, work: Callable[[Desk, str, Mapping[str, Batch] | None], Awaitable[T]]) -> T:
    """The same, with the batches of the app; None: no app was named."""

    async def run(to: Connected) -> T:
        desk = Desk(to.control, sealer=None if to.app is None else to.app.client.sealer)
        try:
            whole = await full_id(to.control.store, job_id)
            return await work(desk, whole, None if to.app is None else to.app.part("batch").studies)
        finally:
            await desk.close()

    return connecting(where, run)


async def study_of(desk: Desk, job_id: str, studies: Mapping[str, Batch] | None) -> Batch:
    """The study of a batch, as the app that was named declares it now."""
    name = (await desk.spec(job_id)).study
    if studies is None:
        raise InvalidInput("with-this-code", "name the app whose code it is: --app MODULE:APP")
    if name not in studies:
        known = ", ".join(studies) or "none"
        raise InvalidInput("app", f"it declares no batch {name}; it declares {known}")
    return studies[name]
