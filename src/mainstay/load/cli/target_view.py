"""Shows a target on a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Any

from rich.console import Console

from ..report.words import counted, size_text
from ..target import Counts, Target


def place(served: Target) -> dict[str, Any]:
    """Where it is, for programs."""
    return {
        "url": served.url,
        "port": served.port,
        "websocket": served.websocket_url,
        "tcp": served.tcp_url if served.tcp_port else None,
        "udp": served.udp_url if served.udp_port else None,
        "certificate": served.certificate or None,
    }


def show_place(served: Target, console: Console) -> None:
    """Where it is, and how it ends."""
    at = place(served)
    lines = [f"the target is at {at['url']}"]
    lines += [f"  {name:<12}{at[name]}" for name in ("tcp", "udp", "certificate") if at[name]]
    if served.options.latency != "none" or served.options.errors not in ("0", "0%"):
        lines.append(f"  {'responses':<12}latency {served.options.latency}, errors {served.options.errors}")
    lines.append(f"  {'Ctrl-C':<12}ends it, and shows its counts (also at {at['url']}/stats)")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    console.file.flush()


class CountsLine:
    """One line that is overwritten each second while this process is in the foreground: a target started with `&` would
    write over the prompt."""

    def __init__(self, console: Console, *, ours: Callable[[], bool] | None = None) -> None:
        self._console = console
        self._ours = ours or (lambda: in_foreground(console.file))
        self._before = 0
        self._drawn = False

    def show(self, counts: Counts) -> None:
        """Overwrite the line."""
        rate = max(0, counts.completed - self._before)
        self._before = counts.completed
        line = (
            f"{counted(counts.completed, 'response')}, {rate:,}/s, {counts.open:,} open, {counts.under_way:,} under way"
        )
        if self._ours():
            self._write(line[: max(0, self._console.width - 1)])
            self._drawn = True

    def clear(self) -> None:
        """Erase the line."""
        if self._drawn:
            self._write("")

    def _write(self, text: str) -> None:
        self._console.file.write(f"\r{text}\x1b[K")
        self._console.file.flush()


def in_foreground(file: IO[str]) -> bool:
    """Whether this process is in the foreground of its terminal; True without job control."""
    if not hasattr(os, "tcgetpgrp"):
        return True
    try:
        return os.tcgetpgrp(file.fileno()) == os.getpgrp()
    except OSError:  # not a controlling terminal
        return True


def show_counts(counts: Counts, console: Console) -> None:
    """Print the final counts."""
    console.print(
        f"{counted(counts.begun, 'request')} over {counted(counts.connections, 'connection')}: "
        f"{counts.completed:,} answered, {counts.abandoned:,} abandoned; "
        f"{size_text(counts.received)} received, {size_text(counts.sent)} sent",
        soft_wrap=True,
        markup=False,
    )
    for status, n in sorted(counts.statuses.items()):
        console.print(f"  {status:<8}{n:>12,}", markup=False, soft_wrap=True)
