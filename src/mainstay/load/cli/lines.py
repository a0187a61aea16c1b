"""A load test as lines of a log, for build servers and files: the cursor is not moved, and nothing is overwritten."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Callable

from rich.console import Console

from ...clock import duration_text
from ..report.words import counted, one_line, rate_text, share_text, time_text
from ..stats.model import WINDOW_MS, Header, Moment, Summary
from .live_state import CallCounts, is_broken, reasons_of

#: a line a second at first, to show that the test works; then seldom
_OFTEN_UNTIL_S = 10.0
_OFTEN_S, _SELDOM_S = 1.0, 10.0


def print_line(process: int, line: str) -> None:
    """Print a line that a step printed: to stderr, because stdout is for the results."""
    with contextlib.suppress(OSError):  # the reader is gone
        sys.stderr.write(f"[{process}] {line}\n")
        sys.stderr.flush()


def terminal_gone(error: OSError) -> bool:
    """Whether this is the error of a terminal that was closed."""
    return error.errno == errno.EIO


class Lines:
    """Prints how a run proceeds. Each line covers the time since the line before it."""

    name = "lines"

    def __init__(self, console: Console, *, gone: Callable[[], None] = lambda: None) -> None:
        self._console = console
        self._gone = gone
        """called when the reader of the lines is gone"""
        self._is_read = True
        self._printed_s = 0.0
        self._calls = CallCounts()
        self._dropped = 0
        self._distrusted = False
        self._broken: set[str] = set()

    async def start(self, header: Header) -> None:
        """Print what begins."""
        models = ", ".join(one_line(f"{each.get('name', '')}: {each.get('model', '')}") for each in header.workflows)
        processes = counted(header.processes, "process", "processes")
        ends = "" if header.duration_s is None else f", {duration_text(header.duration_s)}"
        self.note(f"{one_line(header.name)} begins{ends}, {processes}; {models}".rstrip("; "))

    def add(self, moment: Moment) -> None:
        """Add a window, and print a line if it is time."""
        self._print_news(moment)
        if moment.restart and moment.elapsed_s > self._printed_s > 0:
            # the sum of the whole run: what it has since the last line is unknown
            self._calls, self._dropped = CallCounts(), 0
            self._printed_s = moment.elapsed_s
            return
        self._dropped += moment.window.dropped
        for stats in moment.window.steps:
            self._calls.add(stats)
        every_s = _OFTEN_S if moment.elapsed_s <= _OFTEN_UNTIL_S + 0.05 else _SELDOM_S
        if moment.elapsed_s - self._printed_s >= every_s - WINDOW_MS / 2000:
            self.note(self._line(moment))
            self._calls, self._dropped = CallCounts(), 0
            self._printed_s = moment.elapsed_s

    async def stop(self, summary: Summary) -> None:
        """Print that it is over; the command prints the report."""
        self.note(f"{one_line(summary.ended)} after {duration_text(round(summary.elapsed_s, 1))}")

    def note(self, text: str) -> None:
        """Print a line."""
        if not self._is_read:
            return
        try:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
            self._console.file.flush()  # a program that follows a file sees it at once
        except BrokenPipeError:
            self._is_read = False
            self._gone()
        except OSError as error:
            if not terminal_gone(error):
                raise
            # a program that must end with its terminal gets a signal as well
            self._is_read = False

    def _print_news(self, moment: Moment) -> None:
        """Print changes once, when they happen."""
        for each in moment.thresholds:
            if is_broken(each) and each.text not in self._broken:
                self.note(f"threshold broken: {one_line(each.text)} (it is {one_line(each.shown)})")
            elif each.passed and each.text in self._broken:
                self.note(f"threshold holds again: {one_line(each.text)} (it is {one_line(each.shown)})")
        self._broken = {each.text for each in moment.thresholds if is_broken(each)}
        if not moment.trust.ok and not self._distrusted:
            self._distrusted = True
            for reason in reasons_of(moment.trust):
                self.note(f"NOT TRUSTWORTHY: {one_line(reason)}")

    def _line(self, moment: Moment) -> str:
        calls, dropped = self._calls, self._dropped
        failed = f" ({share_text(calls.failed, calls.requests)})" if calls.failed else ""
        parts = [
            f"{duration_text(round(moment.elapsed_s)):>6}",
            moment.phase,
            counted(moment.window.users, "user"),
            rate_text(round(calls.requests / (moment.elapsed_s - self._printed_s), 1)),
            f"failed {calls.failed:,}{failed}",
        ]
        if (latency := calls.values.latency()) is not None:
            name = "response " if calls.intended else ""
            parts += [f"{name}p50 {time_text(latency.p50)}", f"p99 {time_text(latency.p99)}"]
        if calls.raised:
            parts.append(f"raised {calls.raised:,}")
        if dropped:
            parts.append(f"dropped {dropped:,}")
        return "  ".join(parts)
