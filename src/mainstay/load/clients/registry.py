"""The known protocols: our own, those of installed packages, and those that a load test registers."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points

from ...errors import InvalidInput
from ...storage import find_adapter
from .port import Factory

GROUP = "mainstay.load.clients"
"""the entry points of protocols, by the name that steps use: `self.client.<name>`"""

#: also entry points of this package; listed here so that the installed packages need not be searched
_OURS = {
    "http": "mainstay.load.clients.http:HTTPClient",
    "http2": "mainstay.load.clients.http2:HTTP2Client",
    "websocket": "mainstay.load.clients.websocket:WebsocketClient",
    "tcp": "mainstay.load.clients.tcp:TCPClient",
    "udp": "mainstay.load.clients.udp:UDPClient",
}
_registered: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Register a protocol as `self.client.<name>` in this process. Call it in the file of the load test.

    A package uses an entry point instead:

        [project.entry-points."mainstay.load.clients"]
        carrier_pigeon = "pigeons:PigeonClient"
    """
    if not name.isidentifier() or name.startswith("_") or name == "close":
        raise InvalidInput("client", f"{name!r} cannot be the name of a protocol; steps use self.client.<name>")
    if name in _OURS:
        raise InvalidInput("client", f"the protocol {name!r} exists already; choose another name")
    _registered[name] = factory


def factory(name: str) -> Factory:
    """The factory of a protocol, imported on first use."""
    adapter: Factory | None = _registered.get(name) or find_adapter(name, group=GROUP, ours=_OURS)
    if adapter is None:
        known = protocols()
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known protocols: {', '.join(known)}"
        raise InvalidInput("client", f"unknown protocol {name!r}; {hint}")
    return adapter


def protocols() -> list[str]:
    """The names of all known protocols."""
    return sorted({*_OURS, *_registered, *(entry.name for entry in entry_points(group=GROUP))})
