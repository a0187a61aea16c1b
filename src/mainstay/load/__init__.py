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

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports
from .extra import extra_needed

if TYPE_CHECKING:
    from .app_methods import LoadMethods as LoadMethods
    from .clients.http import HTTPResponse as HTTPResponse
    from .clients.http2 import HTTP2Response as HTTP2Response
    from .clients.network import Timeouts as Timeouts
    from .clients.tcp import TCPResponse as TCPResponse
    from .clients.udp import UDPResponse as UDPResponse
    from .clients.websocket import WebsocketResponse as WebsocketResponse
    from .cluster_run import run_on_cluster as run_on_cluster
    from .feeders import Feed as Feed
    from .fleet import FleetDemand as FleetDemand
    from .hooks import (
        Check as Check,
        Counter as Counter,
        Gauge as Gauge,
        Metric as Metric,
        Provide as Provide,
        Rate as Rate,
        Trend as Trend,
        Use as Use,
        depends as depends,
        on_start as on_start,
        on_stop as on_stop,
        setup as setup,
        state as state,
        step as step,
        teardown as teardown,
    )
    from .outputs import Output as Output
    from .plan import LoadOptions as LoadOptions
    from .prepared import (
        URL as URL,
        Auth as Auth,
        Cookies as Cookies,
        Data as Data,
        File as File,
        Headers as Headers,
        Params as Params,
    )
    from .results import CustomResult as CustomResult, Result as Result
    from .runner import LoadRunner as LoadRunner, MakeRunner as MakeRunner
    from .sources import LoadJob as LoadJob, LoadTest as LoadTest, load_file as load_file
    from .stats.model import Summary as Summary
    from .stats.thresholds import threshold as threshold
    from .workflow import Workflow as Workflow


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
    "FleetDemand",
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
    "run_on_cluster",
    "setup",
    "state",
    "step",
    "teardown",
    "threshold",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".app_methods": "LoadMethods",
        ".clients.http": "HTTPResponse",
        ".clients.http2": "HTTP2Response",
        ".clients.network": "Timeouts",
        ".clients.tcp": "TCPResponse",
        ".clients.udp": "UDPResponse",
        ".clients.websocket": "WebsocketResponse",
        ".cluster_run": "run_on_cluster",
        ".feeders": "Feed",
        ".fleet": "FleetDemand",
        ".hooks": "Check Counter Gauge Metric Provide Rate Trend Use depends on_start on_stop setup state step "
        "teardown",
        ".outputs": "Output",
        ".plan": "LoadOptions",
        ".prepared": "Auth Cookies Data File Headers Params URL",
        ".results": "CustomResult Result",
        ".runner": "LoadRunner MakeRunner",
        ".sources": "LoadJob LoadTest load_file",
        ".stats.model": "Summary",
        ".stats.thresholds": "threshold",
        ".workflow": "Workflow",
    },
    importing=lambda: extra_needed("a load test"),
)
