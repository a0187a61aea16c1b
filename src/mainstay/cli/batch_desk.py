"""The desk of a command: what it does to a batch, on the store or the app that was named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..batch import Desk
from .ids import full_id
from .programs import Connected, connecting
from .target import Where

T = TypeVar("T")


def at_desk(where: Where, job_id: str, work: Callable[[Desk, str], Awaitable[T]]) -> T:
    """Open everything, find the job, work on it. With an app, what is sealed by its codec can be read."""

    async def run(to: Connected) -> T:
        desk = Desk(to.control, sealer=None if to.app is None else to.app.client.sealer)
        try:
            return await work(desk, await full_id(to.control.store, job_id))
        finally:
            await desk.close()

    return connecting(where, run)
