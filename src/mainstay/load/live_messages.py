"""The messages of the live stream of a load test: the server sends them, the client reads them."""

from __future__ import annotations

import msgspec

from ..control import JobView
from ..web.live import EndMessage, TroubleMessage
from .stats.model import Header, Moment, Summary, WorkflowResult


class RunBegin(msgspec.Struct, kw_only=True):
    """The client begins to count, from zero: now, after another manager has taken over, or after a long break. The
    windows that follow are all there were."""

    header: Header


class LiveNumbers(msgspec.Struct, kw_only=True):
    """The usual numbers of a window."""

    elapsed_s: float
    """the time of the run at its end"""
    width_s: float
    users: int
    requests: int
    failed: int
    """of these"""
    raised: int
    """how often the code of a step raised"""
    dropped: int
    """open models: iterations that were due, but not started"""
    rate: float
    """requests a second"""
    p50: float | None
    """seconds: of the response time in open models, else of the service time; None: nothing ended"""
    p95: float | None
    p99: float | None


class RunWindow(msgspec.Struct, kw_only=True):
    """What ended in a stretch of the run."""

    windows: int
    """how many windows it has: more than one in the past, and if the client was behind"""
    numbers: LiveNumbers
    moment: Moment | None = None
    """all of it, without the phases of the calls; left out with `detail=false`"""


class RunLines(msgspec.Struct, kw_only=True):
    """What steps have printed."""

    lines: list[tuple[int, str]]
    """with the number of the generator process"""


#: what the stream of a load test carries
RunMessage = JobView | RunBegin | RunWindow | WorkflowResult | RunLines | Summary | EndMessage | TroubleMessage


__all__ = ["LiveNumbers", "RunBegin", "RunLines", "RunMessage", "RunWindow", "WorkflowResult"]
