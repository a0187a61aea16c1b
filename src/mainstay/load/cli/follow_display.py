"""How a command shows a run that goes on elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console

from ...cli import local_actor, printable
from ..fleet.follower import RunFollower
from ..fleet.run_source import RunSource
from ..generator_process import LineHandler
from .execution import Interrupts
from .lines import Lines, print_line
from .live import END_HINT, LiveView
from .wait_line import WaitLine


class FollowDisplay:
    """The live view or the lines of a run, and the line below for notes and waits."""

    def __init__(self, display: LiveView | Lines | None, waits: WaitLine) -> None:
        self._display = display
        self._waits = waits
        self.note = waits.note

    @classmethod
    @contextlib.contextmanager
    def shown(
        cls, ui: str, console: Console, interrupts: Interrupts, *, hint: str = END_HINT
    ) -> Iterator[FollowDisplay]:
        """On this console, while the block runs; signals end it. `hint`: what Ctrl-C does."""
        with contextlib.ExitStack() as stack:
            display: LiveView | Lines | None = None
            if ui == "full":
                display = stack.enter_context(LiveView(console, hint=hint))
            elif ui == "ci":
                display = Lines(console, gone=interrupts.stop.set)
            waits = stack.enter_context(WaitLine(console, display))
            stack.enter_context(interrupts.caught([waits]))
            yield cls(display, waits)

    def follower(self, source: RunSource) -> RunFollower:
        """Shows this run."""
        display = self._display
        return RunFollower(
            source,
            displays=[] if display is None else [display],
            on_note=self._waits.note,
            on_wait=self._waits.wait,
            on_line=_readable(display.said if isinstance(display, LiveView) else print_line),
            by=local_actor(),
        )


def _readable(show: LineHandler) -> LineHandler:
    """Lines come from other machines: none of them must control the terminal."""

    def shown(process: int, line: str) -> None:
        show(process, "\t".join(printable(part) for part in line.split("\t")))

    return shown


__all__ = ["FollowDisplay"]
