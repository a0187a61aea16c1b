"""Carries out `mainstay load run`: runs the test in this process or submits it, shows and reports it, and returns the
exit code."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, get_args

import typer
from rich.console import Console

from ...cli import aside, key_value, screen
from ...cli.exits import BROKEN, DONE, INTERRUPTED, NO, UNTRUSTED
from ...errors import InvalidInput
from ...stores import shown_url
from ...task import SubmitOptions
from ..declarations import DEFAULT_QUEUE
from ..local_run import app_of, run_here
from ..outputs import Output
from ..plan import LoadOptions
from ..planned_run import PlannedRun
from ..report.files import OF_STEPS, FileOutput, Kind, report_content
from ..report.text import show_summary
from ..sources import LoadTest, load_file
from ..stats.model import Summary
from ..stream import StreamOutput
from .files import STDOUT, print_content, to_stdout
from .lines import Lines, print_line, terminal_gone
from .live import Display, LiveView
from .options import RunOptions

UIS = ("full", "ci", "none")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: signals within this time count as one: `timeout` sends it to the command, and then to its group, which includes the
#: command
TOGETHER_S = 0.5


class InterruptNotes(NamedTuple):
    """What is shown at the first, second and third signal."""

    ending: str = "ending: waiting for iterations in flight; press Ctrl-C again to abandon them"
    giving_up: str = "giving up: iterations in flight are abandoned; press Ctrl-C again to skip teardowns as well"
    leaving: str = "leaving at once, without teardowns"


class ShowsNotes(Protocol):
    """A display of a run."""

    def note(self, text: str) -> None: ...


class Interrupts:
    """Handles Ctrl-C, SIGTERM and the end of the terminal during a run. The first signal ends the run cleanly, the
    second abandons the iterations in flight, the third the teardowns as well. There is a report in any case."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic, *, notes: InterruptNotes | None = None) -> None:
        self._now_s = now_s
        self._notes = notes or InterruptNotes()
        self._last_s = -math.inf
        self.stop = asyncio.Event()
        self.give_up = asyncio.Event()
        self.pressed = False
        self._run: asyncio.Task[object] | None = None
        self._shown: Sequence[ShowsNotes] = ()

    @contextlib.contextmanager
    def caught(self, shown: Sequence[ShowsNotes]) -> Iterator[None]:
        """Handle signals inside this block. They end the current task."""
        loop = asyncio.get_running_loop()
        self._run, self._shown = asyncio.current_task(), shown
        # a signal that is ignored stays ignored, as under nohup
        numbers = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in numbers:
            loop.add_signal_handler(number, self.press)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def press(self) -> None:
        """Handle one signal."""
        now_s = self._now_s()
        if now_s - self._last_s < TOGETHER_S:
            return
        self._last_s = now_s
        if not self.pressed:
            self._note(self._notes.ending)
            self.pressed = True
            self.stop.set()
        elif not self.give_up.is_set():
            self._note(self._notes.giving_up)
            self.give_up.set()
        elif self._run is not None:
            self._note(self._notes.leaving)
            self._run.cancel()

    def _note(self, text: str) -> None:
        for each in self._shown:
            with contextlib.suppress(OSError):  # the terminal is gone
                each.note(text)


def run_test(file: Path, options: LoadOptions, given: RunOptions, paths: dict[str, str]) -> int:
    """Run the test to its end, write the reports (kind -> path), and return the exit code."""
    if given.queue is not None:
        raise InvalidInput("queue", "is for --detach; without it, this command runs the test itself")
    printed = to_stdout(paths)
    if printed in OF_STEPS:
        raise InvalidInput(printed, "name a file for histograms; `mainstay load report` prints them to stdout")
    quiet_stdout = printed is not None
    console = Display(stderr=quiet_stdout, highlight=False)
    ui = chosen_ui(given.ui, console, quiet=quiet_stdout)
    files = file_outputs(paths, strict=given.strict)
    planned = planned_file(file, options, given.name)
    left: list[Summary] = []
    try:
        summary, pressed = asyncio.run(_run(planned, given.store, ui, files, console, left.append))
    except asyncio.CancelledError:
        if not left:
            return INTERRUPTED
        summary, pressed = left[0], True
    # a display is worth mentioning only if it failed
    summary.outputs = [each for each in summary.outputs if each.error or each.name not in (LiveView.name, Lines.name)]
    show_result(summary, printed, quiet=ui == "none", strict=given.strict)
    return INTERRUPTED if pressed else code_of(summary, strict=given.strict)


def show_result(summary: Summary, printed: str | None, *, quiet: bool, strict: bool) -> None:
    """Print the report that goes to stdout, or the summary for people."""
    with to_open_terminal():
        if printed is not None and printed != "ndjson":
            print_content(report_content(printed, summary, strict=strict))
        elif printed is None and not quiet:
            show_summary(summary, screen())


@contextlib.contextmanager
def to_open_terminal() -> Iterator[None]:
    """Print inside this block; a terminal that was closed during the run is no error."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if not terminal_gone(error):
            raise
        # else Python would try to print the rest once more when the program ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _run(
    planned: PlannedRun,
    store: str | None,
    ui: str,
    files: Sequence[Output],
    console: Console,
    on_left: Callable[[Summary], None],
) -> tuple[Summary, bool]:
    interrupts = Interrupts()
    with contextlib.ExitStack() as stack:
        shown: list[LiveView | Lines] = []
        if ui == "full":
            shown.append(stack.enter_context(LiveView(console)))
        elif ui == "ci":
            # a reader such as `head` has left
            shown.append(Lines(console, gone=interrupts.stop.set))
        view = next((each for each in shown if isinstance(each, LiveView)), None)
        with interrupts.caught(shown):
            done = await run_here(
                planned,
                store=store,
                outputs=[*shown, *files],
                stop=interrupts.stop,
                give_up=interrupts.give_up,
                on_left=on_left,
                on_line=print_line if view is None else view.said,
            )
        return done.summary, interrupts.pressed


def submit_test(file: Path, options: LoadOptions, given: RunOptions, paths: dict[str, str]) -> int:
    """Only submit the test, and return the exit code."""
    if paths or given.ui or given.strict:
        raise InvalidInput("detach", "a detached run has no display; leave out --ui, --strict and the reports")
    store = given.store or os.environ.get("MAINSTAY_STORE") or None
    if store is None:
        raise InvalidInput("store", "is required with --detach; name the store of your workers")
    if store.startswith("memory:"):
        raise InvalidInput("store", "memory: is gone when this command ends, and the job with it; name one that stays")
    planned = planned_file(file, options, given.name)

    async def submit() -> str:
        chosen: SubmitOptions = {} if given.queue is None else {"queue": given.queue}
        async with app_of(planned.test, store) as app:
            return (await app.loads.submit(planned, chosen)).id

    job_id = asyncio.run(submit())
    typer.echo(job_id)
    queue = given.queue or DEFAULT_QUEUE
    where = "" if given.queue is None else f", queue={given.queue!r}"
    aside(
        f"a worker on {shown_url(store)} that listens on the queue {queue} runs it if its app has this load test: "
        f'app.load(load_file("{file}"){where})'
    )
    return DONE


def code_of(summary: Summary, *, strict: bool) -> int:
    """The exit code of a run."""
    if summary.ended.startswith("interrupted"):
        return INTERRUPTED
    if summary.ended.startswith(("failed", "cancelled")):
        return NO
    if summary.verdict == "failed":
        return BROKEN
    return UNTRUSTED if strict and not summary.trust.ok else DONE


def pairs(words: Sequence[str], *, field: str) -> dict[str, str]:
    """Values by name.

    >>> pairs(["user=ann", "url=http://a/?b=c"], field="set")
    {'user': 'ann', 'url': 'http://a/?b=c'}
    """
    form = "name=value; write it like user=ann"
    return dict(key_value(word, field=field, form=form) for word in words)


def planned_file(file: Path, options: LoadOptions, name: str | None) -> PlannedRun:
    """Load and plan the test of a file, and show its warnings."""
    test = load_file(file)
    if name is not None:
        test = LoadTest(name, test.workflows.values(), source=test.source)
    planned = PlannedRun(test, options)
    for note in planned.notes:
        aside(f"warning: {note}")
    return planned


def chosen_ui(wanted: str | None, console: Console, *, quiet: bool) -> str:
    """The display of a run: the wanted one, or the one that the terminal can show."""
    drawable = console.is_terminal and not console.is_dumb_terminal
    if wanted is not None:
        if wanted not in UIS:
            raise InvalidInput("ui", f"unknown display {wanted!r}; use {', '.join(UIS)}")
        if wanted == "full" and not drawable:
            raise InvalidInput("ui", "full needs a terminal; use ci for plain lines")
        return wanted
    return "full" if drawable else "none" if quiet else "ci"


def file_outputs(files: dict[str, str], *, strict: bool) -> list[Output]:
    """The outputs that write these files. A path that cannot be written is refused before anything else."""
    outputs: list[Output] = []
    for kind in get_args(Kind):
        if kind in files and files[kind] != STDOUT:
            output = FileOutput(kind, Path(files[kind]), strict=strict)
            output.check()
            outputs.append(output)
    if "ndjson" in files:
        path = "/dev/stdout" if files["ndjson"] == STDOUT else files["ndjson"]
        outputs.append(StreamOutput(path, name=f"ndjson {path}"))
    return outputs
