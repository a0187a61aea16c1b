"""Which protocols there are: ours, those of installed packages, and those that a load test brings itself."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points

from ...errors import InvalidInput
from ...storage.urls import find_adapter
from .port import Factory

GROUP = "mainstay.load.clients"
"""the entry points of protocols; the name is what steps write: `self.client.<name>`"""

#: also entry points of this package; here, so that nobody has to search the installed packages for them
_OURS = {
    "http": "mainstay.load.clients.http:HTTPClient",
    "http2": "mainstay.load.clients.http2:HTTP2Client",
    "websocket": "mainstay.load.clients.websocket:WebsocketClient",
    "tcp": "mainstay.load.clients.tcp:TCPClient",
    "udp": "mainstay.load.clients.udp:UDPClient",
}
_registered: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Have steps find a protocol as `self.client.<name>`, in this process. Call it in the file of the load test.

    A package brings its protocol by entry point instead:

        [project.entry-points."mainstay.load.clients"]
        carrier_pigeon = "pigeons:PigeonClient"
    """
    if not name.isidentifier() or name.startswith("_") or name == "close":
        raise InvalidInput("client", f"{name!r} cannot be the name of a protocol; steps write self.client.<name>")
    if name in _OURS:
        raise InvalidInput("client", f"there is a protocol {name!r} already; choose another name")
    _registered[name] = factory


def factory(name: str) -> Factory:
    """What makes the sessions of a protocol; imported only now."""
    found: Factory | None = _registered.get(name) or find_adapter(name, group=GROUP, ours=_OURS)
    if found is None:
        known = protocols()
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
        raise InvalidInput("client", f"there is no protocol {name!r}; {hint}")
    return found


def protocols() -> list[str]:
    """The names of all that there are."""
    return sorted({*_OURS, *_registered, *(entry.name for entry in entry_points(group=GROUP))})
