"""Whose job runs here, for what behaves otherwise inside one."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client

_client: contextvars.ContextVar[Client] = contextvars.ContextVar("mainstay.client")


def begin(client: Client) -> None:
    """A job of this client begins, in this task or thread, which is its own."""
    _client.set(client)


def running() -> Client | None:
    """The client whose job runs here; None outside of jobs."""
    return _client.get(None)
