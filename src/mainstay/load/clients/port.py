"""The interface of a protocol for virtual users.

A *factory* is called once per virtual user, when a step first uses `self.client.<name>`, and creates the *session* of
that user, with its own connections and cookies. Factories are found by entry point (group `mainstay.load.clients`, by
the name that steps use), so a new protocol needs no change here.

The calls of a session return a `Result`, or raise `CallFailed`, whose `kind` is counted. Before the first byte of a
call is written, a session waits for `network.lease.wait()` if `network.lease.is_over()`, so that a process that was
suspended sends nothing when it continues.

A session counts its calls in the `Network`: `network.sent += 1` before the first byte of a call is written,
`network.answered += 1` when the response is complete, `network.aborted += 1` if a call is closed or cancelled while
under way, or `network.abort(sent, received)` with its bytes. A call that fails otherwise counts as neither of the last
two, and its error has the bytes (`CallFailed.of_call`). `network.resent += 1` for each time a call is sent again, and
`network.unexpected += 1` for each message that is discarded because no call waited for one: reports show both, so that
they can be compared with the counts of the target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .network import Network


class ClientSession(Protocol):
    """The client of one virtual user for one protocol."""

    async def close(self) -> None:
        """Close its connections. Called once, after the user's last call."""
        ...


Factory = Callable[[Network], Any]
"""creates a `ClientSession`, with the calls of its protocol, which no type can name here"""
