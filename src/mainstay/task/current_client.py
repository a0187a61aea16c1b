"""The client whose job runs here, for code that behaves differently inside a job."""

from __future__ import annotations

import contextvars
import logging
from typing import TYPE_CHECKING

from ..control import Control
from ..errors import MainstayError
from ..lifecycle import table_of
from ..worker import context

if TYPE_CHECKING:
    from .client import AppClient

log = logging.getLogger("mainstay.tasks")

_client: contextvars.ContextVar[AppClient] = contextvars.ContextVar("mainstay.client")


def enter_job(client: AppClient) -> None:
    """A job of this client begins in this task or thread."""
    try:
        context()
    except MainstayError:
        return  # a direct call, without a worker
    _client.set(client)


def running() -> AppClient | None:
    """The client whose job runs here; None outside of jobs."""
    return _client.get(None)


async def warn_of_wait(control: Control, job_id: str) -> None:
    """Warn once per task if its job waits for another job that is not settled: when all slots of a worker are held by
    waiting jobs, none is left for the awaited ones."""
    client = running()
    if client is None or (waiting := context().job).name in client.warned_waits:
        return
    awaited = await control.jobs.get(job_id)
    state = table_of(awaited.parent).get(awaited.status)
    if (state is not None and state.settled) or waiting.name in client.warned_waits:
        return
    client.warned_waits.add(waiting.name)
    log.warning(
        "task=%s waits inside a job for another job: it holds its slot while it waits, and when all slots are held "
        "that way nothing moves until a timeout; use `after`, a group or context().submit instead job_id=%s awaited=%s",
        waiting.name,
        waiting.id,
        job_id,
    )
