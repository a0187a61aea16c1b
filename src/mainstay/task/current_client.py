"""Whose job runs here, for what behaves otherwise inside one."""

from __future__ import annotations

import contextvars
import logging
from typing import TYPE_CHECKING

from ..control import Control
from ..errors import MainstayError
from ..lifecycle import table_of
from ..worker import context

if TYPE_CHECKING:
    from .client import Client

log = logging.getLogger("mainstay.tasks")

_client: contextvars.ContextVar[Client] = contextvars.ContextVar("mainstay.client")


def begin(client: Client) -> None:
    """A job of this client begins, in this task or thread, which is its own."""
    try:
        context()
    except MainstayError:
        return  # the call is made by hand, without a worker
    _client.set(client)


def running() -> Client | None:
    """The client whose job runs here; None outside of jobs."""
    return _client.get(None)


async def tell_of_wait(control: Control, job_id: str) -> None:
    """Say so when a job waits for another that is not settled, once for each task that does it. With every slot of a
    worker taken by one that waits, none would be left for what they wait for."""
    client = running()
    if client is None or (waiting := context().job).name in client.waits_told:
        return
    awaited = await control.jobs.get(job_id)
    state = table_of(awaited.parent).get(awaited.status)
    if (state is not None and state.settled) or waiting.name in client.waits_told:
        return
    client.waits_told.add(waiting.name)
    log.warning(
        "task=%s waits inside a job for another job: it holds its slot meanwhile, and when all slots are held that way "
        "nothing moves until a timeout; use `after`, a group or context().submit instead job_id=%s awaited=%s",
        waiting.name,
        waiting.id,
        job_id,
    )
