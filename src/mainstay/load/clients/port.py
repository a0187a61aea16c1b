"""What a protocol has to bring so that virtual users can speak it.

A *factory* is called once per virtual user, the first time a step says `self.client.<name>`, and makes that user's
*session*: its own connections, its own cookies. Factories are found by entry point (group `mainstay.load.clients`, the
name is what steps write), so another protocol needs no change here.

What a session's calls return is a `Result`; what goes wrong is raised as `CallFailed`, whose `kind` is counted.
A session tells the `Network` of its calls: `network.sent += 1` when the first byte of one is about to be written,
`network.answered += 1` when the answer is complete, `network.aborted += 1` for one that was given up while it was under
way (closed, cancelled), or `network.abort(sent, received)` with its bytes; a call that failed otherwise is neither of
the last two, and its error has its bytes (`CallFailed.of_call`). `network.resent += 1` for each time a call is sent
once more, and `network.unexpected += 1` for each message that the session discards because it came when no
call waited for one: reports show both, so that the calls of a target and of a report can be compared.
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
"""makes a `ClientSession`; it also has the calls of its protocol, which is why the type says no more"""
