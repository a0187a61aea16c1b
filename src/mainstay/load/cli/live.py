"""The full-screen live view of a load test. It takes the terminal while the run lasts, and always gives it back."""

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
from .live_state import LiveState

#: frames a second: enough to look alive; each costs the process that collects the windows a few milliseconds
FRAMES = 4
END_HINT = "Ctrl-C ends it with a report"
_LOG_LINES = 50
_STEP_LINES = 500
_REST_OF_LINE = Control((ControlType.ERASE_IN_LINE, 0))


class Display(Console):
    """A console that raises when its reader is gone, instead of ending the program in the middle of a run."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - rich calls it while it handles the error


class LiveView:
    """Draws a run on a terminal. Use it in a `with` statement, which restores the terminal whatever happens."""

    name = "live view"

    def __init__(self, console: Console, *, frames: float = FRAMES, hint: str = END_HINT) -> None:
        """`hint`: what Ctrl-C does."""
        self._console = console
        self._hint = hint
        self._every_s = 1 / frames
        self._shown = False
        self._task: asyncio.Task[None] | None = None
        self._state: LiveState | None = None
        self._note = ""
        self._log = _LogKeeper()
        self._lines: deque[tuple[int, str]] = deque(maxlen=_STEP_LINES)
        self._left_out = 0

    @property
    def is_shown(self) -> bool:
        """Whether it has the screen."""
        return self._shown

    def note(self, text: str) -> None:
        """Show a sentence in the last line from now on, such as that the run is about to end."""
        self._note = text

    def said(self, process: int, line: str) -> None:
        """Keep a line that a step printed: the last ones are printed when the screen is given back."""
        if not self._shown:
            print_line(process, line)
            return
        self._left_out += len(self._lines) == _STEP_LINES
        self._lines.append((process, line))

    async def start(self, header: Header) -> None:
        """Take the screen."""
        self._state = LiveState(header)
        self._log.begin()
        self._shown = True
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)
        self._task = asyncio.get_running_loop().create_task(self._draw())

    def add(self, moment: Moment) -> None:
        """Add a window; the next frame shows it."""
        if self._task is not None and self._task.done():
            # drawing failed: give the screen back, and raise the error here
            drawing = self._task
            self.close()
            try:
                drawing.result()
            except OSError as error:
                if not terminal_gone(error):
                    raise
                self._state = None  # the terminal was closed
        if self._state is not None:
            self._state.add(moment)

    async def stop(self, summary: Summary) -> None:  # noqa: ARG002 - the command prints the summary
        """Give the screen back."""
        self.close()

    def close(self) -> None:
        """The same at once. It may be called again."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._shown:
            self._shown = False
            with contextlib.suppress(OSError):  # the terminal itself is gone
                self._console.show_cursor(True)
                # a terminal that has grown may keep lines below the old edge
                self._console.clear()
                self._console.set_alt_screen(False)
            self._log.end()
            self._print_lines()

    def _print_lines(self) -> None:
        if self._left_out:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"... {self._left_out:,} earlier lines of the steps are left out\n")
        self._left_out = 0
        while self._lines:
            print_line(*self._lines.popleft())

    async def _draw(self) -> None:
        while self._state is not None:
            self._console.print(self, end="", crop=False)
            await asyncio.sleep(self._every_s)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The current frame, at the size that the terminal has now."""
        if self._state is None:
            return
        width, height = options.max_width, options.size.height
        room = max(1, height - 1)
        lines = frame(self._state, width, room, plain=options.ascii_only)
        lines += [Text()] * (room - len(lines))
        if room < height:
            foot = self._note or self._hint
            lines.append(Text(foot[:width], style="bold yellow" if self._note else "dim"))
        # drawn over the last frame line by line, without clearing it, so that it does not flicker. Lines are not padded
        # to the edge: a terminal that has just become smaller would fold them
        yield Control.home()
        for number, line in enumerate(lines):
            if number:
                yield Segment.line()
            yield from line.render(console)
            yield _REST_OF_LINE

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _LogKeeper(logging.Handler):
    """Keeps the warnings of the log while the screen is taken, and prints them afterwards."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._replaced: list[logging.Handler] = []

    def begin(self) -> None:
        root = logging.getLogger()
        # handlers that write to a terminal would write over the frame
        self._replaced = [
            each
            for each in root.handlers
            if isinstance(each, logging.StreamHandler) and each.stream in (sys.stdout, sys.stderr)
        ]
        for each in self._replaced:
            root.removeHandler(each)
        root.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))

    def end(self) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        for each in self._replaced:
            root.addHandler(each)
        self._replaced = []
        with contextlib.suppress(OSError):  # the reader is gone
            while self._lines:
                sys.stderr.write(f"{self._lines.popleft()}\n")
