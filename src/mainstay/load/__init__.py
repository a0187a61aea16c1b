"""Load tests: honest load from Python, written as classes.

Layer: a kind of job, beside tasks and batches. Start from `Workflow` and `step`; `mainstay load run FILE` runs what a
file defines. Names are loaded when they are first used: what is needed beside Mainstay itself is the extra
`mainstay[load]`.

>>> from mainstay.load import URL, HTTPResponse, Workflow, step
>>> class Shop(Workflow):
...     vus = 10
...     duration = "5s"
...
...     @step()
...     async def browse(self, url: URL = "http://127.0.0.1:8080/") -> HTTPResponse:
...         return await self.client.http.get(url)
>>> Shop.__graph__.roots
('browse',)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .extra import extra_needed

if TYPE_CHECKING:
    from .app_methods import LoadMethods
    from .clients.http import HTTPResponse
    from .clients.http2 import HTTP2Response
    from .clients.network import Timeouts
    from .clients.tcp import TCPResponse
    from .clients.udp import UDPResponse
    from .clients.websocket import WebsocketResponse
    from .feeders import Feed
    from .hooks import (
        Check,
        Counter,
        Gauge,
        Metric,
        Provide,
        Rate,
        Trend,
        Use,
        depends,
        on_start,
        on_stop,
        setup,
        state,
        step,
        teardown,
    )
    from .outputs import Output
    from .plan import LoadOptions
    from .prepared import URL, Auth, Cookies, Data, File, Headers, Params
    from .results import CustomResult, Result
    from .sources import LoadTest, load_file
    from .stats.model import Summary
    from .stats.thresholds import threshold
    from .workflow import Workflow

__all__ = [
    "URL",
    "Auth",
    "Check",
    "Cookies",
    "Counter",
    "CustomResult",
    "Data",
    "Feed",
    "File",
    "Gauge",
    "HTTP2Response",
    "HTTPResponse",
    "Headers",
    "LoadMethods",
    "LoadOptions",
    "LoadTest",
    "Metric",
    "Output",
    "Params",
    "Provide",
    "Rate",
    "Result",
    "Summary",
    "TCPResponse",
    "Timeouts",
    "Trend",
    "UDPResponse",
    "Use",
    "WebsocketResponse",
    "Workflow",
    "depends",
    "load_file",
    "on_start",
    "on_stop",
    "setup",
    "state",
    "step",
    "teardown",
    "threshold",
]

_HOMES = {
    ".app_methods": ("LoadMethods",),
    ".clients.http": ("HTTPResponse",),
    ".clients.http2": ("HTTP2Response",),
    ".clients.network": ("Timeouts",),
    ".clients.tcp": ("TCPResponse",),
    ".clients.udp": ("UDPResponse",),
    ".clients.websocket": ("WebsocketResponse",),
    ".feeders": ("Feed",),
    ".hooks": (
        "Check", "Counter", "Gauge", "Metric", "Provide", "Rate", "Trend", "Use", "depends", "on_start", "on_stop",
        "setup", "state", "step", "teardown",
    ),
    ".outputs": ("Output",),
    ".plan": ("LoadOptions",),
    ".prepared": ("URL", "Auth", "Cookies", "Data", "File", "Headers", "Params"),
    ".results": ("CustomResult", "Result"),
    ".sources": ("LoadTest", "load_file"),
    ".stats.model": ("Summary",),
    ".stats.thresholds": ("threshold",),
    ".workflow": ("Workflow",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra_needed("a load test"):
        found = getattr(import_module(home, __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
