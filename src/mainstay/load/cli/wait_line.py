"""What a run on nodes waits for, before its display begins and beside it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status

from ...cli import aside, printable
from .lines import Lines
from .live import LiveView


class WaitLine:
    """Shows notes and waits where the display of the run leaves room: on a terminal one line that changes, then the
    last line of the live view; in a log a line for each."""

    def __init__(self, console: Console, display: LiveView | Lines | None) -> None:
        self._display = display
        self._status = Status("", console=console) if isinstance(display, LiveView) else None
        self._waits = False

    def note(self, text: str) -> None:
        """Show a sentence."""
        if isinstance(self._display, Lines) or (isinstance(self._display, LiveView) and self._display.is_shown):
            self._display.note(text)
        else:
            aside(text)

    def wait(self, text: str) -> None:
        """Show what the run does before it begins, such as "waits for 8 cores"; empty: it has begun."""
        if isinstance(self._display, Lines) and text:
            self._display.note(f"the run {printable(text)}")
        if self._status is None:
            return
        if text:
            self._status.update(f"the run {printable(text)}")
        if bool(text) != self._waits:
            self._waits = bool(text)
            (self._status.start if text else self._status.stop)()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait("")


__all__ = ["WaitLine"]
