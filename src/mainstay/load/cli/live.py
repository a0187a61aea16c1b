"""The live view of a load test, as an output: a screen of its own while the run lasts, given back in any case."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.segment import ControlType, Segment
from rich.text import Text

from ..stats.model import Header, Moment, Summary
from .frame import frame
from .lines import print_line, terminal_gone
from .live_state import Picture, Watched

#: frames a second: enough to look alive; each costs a few milliseconds of the process that collects the windows
FRAMES = 4
_KEPT = 50
_KEPT_SAID = 500
_REST_OF_LINE = Control((ControlType.ERASE_IN_LINE, 0))


class Display(Console):
    """A console that says when its reader is gone, instead of leaving the program in the middle of a run."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - rich calls it while it handles the error


class LiveView:
    """Draws a run on a terminal. To be used `with`, so that the terminal is as it was whatever happens."""

    name = "live view"

    def __init__(self, console: Console, *, frames: float = FRAMES) -> None:
        self._console = console
        self._every_s = 1 / frames
        self._shown = False
        self._task: asyncio.Task[None] | None = None
        self._watched: Watched | None = None
        self._note = ""
        self._kept = _Kept()
        self._said: deque[tuple[int, str]] = deque(maxlen=_KEPT_SAID)
        self._unsaid = 0

    def note(self, text: str) -> None:
        """A sentence at the foot from now on: that it is about to end, say."""
        self._note = text

    def said(self, process: int, line: str) -> None:
        """What a step printed: told when the screen is given back, the last lines of it."""
        if not self._shown:
            print_line(process, line)
            return
        self._unsaid += len(self._said) == _KEPT_SAID
        self._said.append((process, line))

    async def start(self, header: Header) -> None:
        """Take the screen."""
        self._watched = Watched(header)
        self._kept.begin()
        self._shown = True
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)
        self._task = asyncio.get_running_loop().create_task(self._draw())

    def add(self, moment: Moment) -> None:
        """Take in what has happened; drawn with the next frame."""
        if self._task is not None and self._task.done():
            # it could not be drawn: the screen is given back, and whoever runs this is told
            drawing = self._task
            self.close()
            try:
                drawing.result()
            except OSError as error:
                if not terminal_gone(error):
                    raise
                self._watched = None  # nobody looks on any more
        if self._watched is not None:
            self._watched.add(moment)

    async def stop(self, summary: Summary) -> None:  # noqa: ARG002 - the summary is printed by whoever ran it
        """Give the screen back."""
        self.close()

    def close(self) -> None:
        """The same at once; safe to be called again."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._shown:
            self._shown = False
            with contextlib.suppress(OSError):  # the terminal itself is gone
                self._console.show_cursor(True)
                # some terminals keep what is below the edge when they have grown meanwhile
                self._console.clear()
                self._console.set_alt_screen(False)
            self._kept.tell()
            self._tell_said()

    def _tell_said(self) -> None:
        if self._unsaid:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"... {self._unsaid:,} earlier lines of the steps are left out\n")
        self._unsaid = 0
        while self._said:
            print_line(*self._said.popleft())

    async def _draw(self) -> None:
        while self._watched is not None:
            self._console.print(_Screenful(self._watched.picture(), self._note), end="", crop=False)
            await asyncio.sleep(self._every_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Screenful:
    """A picture at the size that the terminal has when it is drawn."""

    def __init__(self, picture: Picture, note: str) -> None:
        self._picture = picture
        self._note = note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.size.height
        foot = self._note or "Ctrl-C ends it with a report"
        room = max(1, height - 1)
        lines = frame(self._picture, width, room, plain=options.ascii_only)
        lines += [Text()] * (room - len(lines))
        if room < height:
            lines.append(Text(foot[:width], style="bold yellow" if self._note else "dim"))
        # drawn over the frame before it, line by line, and nothing is cleared first: so it does not flicker. Lines are
        # not filled with blanks up to the edge, for a terminal that has just become smaller would fold those
        yield Control.home()
        for number, line in enumerate(lines):
            if number:
                yield Segment.line()
            yield from line.render(console)
            yield _REST_OF_LINE


class _Kept(logging.Handler):
    """Warnings of the log while the screen is taken: told afterwards, where they can be read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._instead_of: list[logging.Handler] = []

    def begin(self) -> None:
        root = logging.getLogger()
        # those that write to a terminal write over the picture
        self._instead_of = [
            each
            for each in root.handlers
            if isinstance(each, logging.StreamHandler) and each.stream in (sys.stdout, sys.stderr)
        ]
        for each in self._instead_of:
            root.removeHandler(each)
        root.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))

    def tell(self) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        for each in self._instead_of:
            root.addHandler(each)
        self._instead_of = []
        with contextlib.suppress(OSError):  # nobody reads it any more
            while self._lines:
                sys.stderr.write(f"{self._lines.popleft()}\n")
