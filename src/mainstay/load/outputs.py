"""Where the results of a load test go while it runs: the live view, files, metric systems. One small interface."""

from __future__ import annotations

from typing import Protocol

from .stats.model import Header, Moment, Summary


class Output(Protocol):
    """Three calls, in this order. What one raises never fails the run: it is told in the summary, and that output gets
    nothing more."""

    name: str

    async def start(self, header: Header) -> None:
        """Before the first request."""
        ...

    def add(self, moment: Moment) -> None:
        """Ten times a second. Must not wait: buffer, and send elsewhere."""
        ...

    async def stop(self, summary: Summary) -> None:
        """After the last request; write out what is left."""
        ...
