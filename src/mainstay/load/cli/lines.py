"""A load test as lines of a log, for build servers and files: no cursor is moved, nothing is drawn over."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Callable

from rich.console import Console

from ...clock import duration_text
from ..report.words import counted, one_line, rate_text, share_text, time_text
from ..stats.histogram import Histogram
from ..stats.model import WINDOW_MS, Header, Latency, Moment, Sketch, Summary, ThresholdOutcome

#: a line a second at first, for whoever looks whether it works; then seldom
_OFTEN_UNTIL_S = 10.0
_OFTEN_S, _SELDOM_S = 1.0, 10.0


def print_line(process: int, line: str) -> None:
    """What a step printed: on stderr, for stdout has the results."""
    with contextlib.suppress(OSError):  # nobody reads it any more
        sys.stderr.write(f"[{process}] {line}\n")
        sys.stderr.flush()


def terminal_gone(error: OSError) -> bool:
    """Whether this is what a terminal says that was closed."""
    return error.errno == errno.EIO


class Lines:
    """Tells how a run goes on. Each line is about the time since the line before."""

    name = "lines"

    def __init__(self, console: Console, *, gone: Callable[[], None] = lambda: None) -> None:
        self._console = console
        self._gone = gone
        """called when nobody reads the lines any more"""
        self._is_read = True
        self._said_s = 0.0
        self._since = _Since()
        self._distrusted: list[str] = []
        self._broken: set[str] = set()

    async def start(self, header: Header) -> None:
        """Say what begins."""
        models = ", ".join(one_line(f"{each.get('name', '')}: {each.get('model', '')}") for each in header.workflows)
        processes = counted(header.processes, "process", "processes")
        ends = "" if header.duration_s is None else f", {duration_text(header.duration_s)}"
        self._say(f"{one_line(header.name)} begins{ends}, {processes}; {models}".rstrip("; "))

    def add(self, moment: Moment) -> None:
        """Take in what has happened, and say so if it is time."""
        self._since.add(moment)
        self._tell_news(moment)
        every_s = _OFTEN_S if moment.elapsed_s <= _OFTEN_UNTIL_S + 0.05 else _SELDOM_S
        if moment.elapsed_s - self._said_s >= every_s - WINDOW_MS / 2000:
            self._say(self._since.line(moment, moment.elapsed_s - self._said_s))
            self._since = _Since()
            self._said_s = moment.elapsed_s

    async def stop(self, summary: Summary) -> None:
        """Say that it is over; the report is printed by whoever ran it."""
        self._say(f"{one_line(summary.ended)} after {duration_text(round(summary.elapsed_s, 1))}")

    def note(self, text: str) -> None:
        """A sentence of its own."""
        self._say(text)

    def _tell_news(self, moment: Moment) -> None:
        """What was not so before: once, when it happens."""
        for each in moment.thresholds:
            if _is_broken(each) and each.text not in self._broken:
                self._say(f"threshold broken: {one_line(each.text)} (it is {one_line(each.shown)})")
            elif each.passed and each.text in self._broken:
                self._say(f"threshold holds again: {one_line(each.text)} (it is {one_line(each.shown)})")
        self._broken = {each.text for each in moment.thresholds if _is_broken(each)}
        if not moment.trust.ok and not self._distrusted:
            self._distrusted = moment.trust.reasons or ["the generator itself is the bottleneck"]
            for reason in self._distrusted:
                self._say(f"NOT TRUSTWORTHY: {one_line(reason)}")

    def _say(self, line: str) -> None:
        if not self._is_read:
            return
        try:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            self._console.file.flush()  # whoever follows a file sees it at once
        except BrokenPipeError:
            self._is_read = False
            self._gone()
        except OSError as error:
            if not terminal_gone(error):
                raise
            # a signal says that, too, to whoever is to end with the terminal
            self._is_read = False


class _Since:
    """What has ended since the last line."""

    def __init__(self) -> None:
        self._requests = self._failed = self._raised = self._dropped = 0
        self._sketches: list[Sketch] = []
        self._intended = False

    def add(self, moment: Moment) -> None:
        self._dropped += moment.window.dropped
        for stats in moment.window.steps:
            own = [sketch for sketch in (stats.ok, stats.failed) if sketch is not None]
            self._requests += sum(sketch.count for sketch in own)
            failed = 0 if stats.failed is None else stats.failed.count
            self._failed += failed
            self._raised += max(0, sum(stats.errors.values()) - failed)
            self._intended = self._intended or stats.response is not None
            self._sketches += own if stats.response is None else [stats.response]

    def line(self, moment: Moment, for_s: float) -> str:
        parts = [
            f"{duration_text(round(moment.elapsed_s)):>6}",
            moment.phase,
            counted(moment.window.users, "user"),
            rate_text(round(self._requests / for_s, 1)),
            f"failed {self._failed:,}" + (f" ({share_text(self._failed, self._requests)})" if self._failed else ""),
            *self._latency(),
        ]
        if self._raised:
            parts.append(f"raised {self._raised:,}")
        if self._dropped:
            parts.append(f"dropped {self._dropped:,}")
        return "  ".join(parts)

    def _latency(self) -> list[str]:
        latency: Latency | None = Histogram(self._sketches).latency()
        if latency is None:
            return []
        name = "response " if self._intended else ""
        return [f"{name}p50 {time_text(latency.p50)}", f"p99 {time_text(latency.p99)}"]


def _is_broken(each: ThresholdOutcome) -> bool:
    return not each.passed and not each.pending and each.value is not None
