"""What all commands share: opening a store, and printing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import IO, Annotated, Any, TypeVar, cast

import msgspec
import typer
from rich.console import Console
from rich.status import Status
from rich.text import Text

from ..control import Control
from ..errors import InvalidInput, StoreDamaged
from ..lifecycle import table_of
from ..stores import JobStore, open_store
from .target import StoreTarget

R = TypeVar("R")
T = TypeVar("T")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

#: the width of a line in a pipe or a file
_UNLIMITED = 100_000
_BLANKS = re.compile(r"[ \t]+$", re.MULTILINE)
#: digests and the random part of session ids; job ids have dashes and are left whole
_HASH = re.compile(r"(?<![0-9A-Za-z-])([0-9a-f]{8})[0-9a-f]{8,}(?![0-9A-Za-z-])")

#: colours of states, outcomes and verdicts; others are shown without a colour
_COLOURS = {
    "scheduled": "blue",
    "pending": "cyan",
    "running": "yellow",
    "finalizing": "yellow",
    "validating": "yellow",
    "cancelling": "magenta",
    "succeeded": "green",
    "partial": "red",
    "failed": "red",
    "timed_out": "red",
    "quarantined": "bright_red",
    "cancelled": "magenta",
    "skipped": "dim",
}


class InvalidUsage(InvalidInput):
    """Wrong usage, with a complete sentence for a message: the name of the field does not precede it."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(field, rule)
        self.args = (rule,)


def using(resource: AbstractAsyncContextManager[R], work: Callable[[R], Awaitable[T]]) -> T:
    """Open something, work with it, and close it."""

    async def run() -> T:
        async with resource as opened_resource:
            return await work(opened_resource)

    return asyncio.run(run())


#: A command uses a store as it is: it does not create a store that does not exist, and a command that reads does not
#: migrate.
_UNCHANGED = {
    "sqlite": {"create": "no", "migrate": "no"},
    "postgresql": {"auto_migrate": "off"},
    "postgres": {"auto_migrate": "off"},
    **{scheme: {"create": "no"} for scheme in ("file", "s3", "gs", "az", "dynamodb")},
}


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[JobStore]:
    """Open a store, neither created nor migrated, and close it in the end."""
    for name, value in _UNCHANGED.get(url.partition(":")[0], {}).items():
        if name == "auto_migrate" or f"{name}=" not in url:  # the last one of a name counts
            url += f"{'&' if '?' in url else '?'}{name}={value}"
    with quietly():
        store = await open_store(url)
        try:
            yield store
        finally:
            with contextlib.suppress(StoreDamaged):  # the operation that met the damage has reported it
                await store.close()


@contextlib.asynccontextmanager
async def open_control(target: StoreTarget) -> AsyncIterator[Control]:
    """The same with the rules around the store, and the settings of the app."""
    async with opened(target.url) as store:
        yield Control(store, settings=target.settings)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Hide the warnings of a store: the command itself prints them, in more detail."""
    log = logging.getLogger("mainstay")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


class _WithoutPadding:
    """A file for tables in a pipe: without the blanks that fill up a line."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        return self._file.write(_BLANKS.sub("", text))


def screen() -> Console:
    """The console of a command. In a pipe or a file, lines have no limit unless COLUMNS is set."""
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    width = None if os.environ.get("COLUMNS", "").isdigit() else _UNLIMITED
    return Console(highlight=False, width=width, file=cast("IO[str]", _WithoutPadding(sys.stdout)))


def stderr_console(*, quiet: bool = False) -> Console:
    """The console for remarks and progress: stdout is for results."""
    return Console(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)


def aside(text: str, *, style: str = "yellow") -> None:
    """Print a remark on stderr, so that stdout stays usable for scripts."""
    stderr_console().print(text, style=style, markup=False)


def busy(text: str, *, quiet: bool) -> Status:
    """A spinner on stderr, if that is a terminal."""
    return stderr_console(quiet=quiet).status(text)


def print_json(data: Any) -> None:
    """Print one JSON value. Stored values that JSON does not know become strings."""
    typer.echo(msgspec.json.format(msgspec.json.encode(data, enc_hook=str), indent=2).decode())


def print_line(data: Any) -> None:
    """Print one JSON value on one line."""
    typer.echo(msgspec.json.encode(data, enc_hook=str).decode())


def print_command(command: str, console: Console, *, indent: int = 2) -> None:
    """Print a command to try, on one line, so that it can be copied."""
    console.print(Text(" " * indent + command, style="cyan"), soft_wrap=True)


def coloured(status: str) -> Text:
    """A status, an outcome or a verdict in its colour."""
    return Text(printable(status), style=_COLOURS.get(status, ""))


def coloured_status(status: str, parent: str | None = None) -> Text:
    """The status of a job, or of a unit of `parent`. An unknown one is marked: a newer version wrote it, or the row is
    damaged; `mainstay check` shows which."""
    if table_of(parent).get(status) is None:
        return Text(f"{printable(status)} (unknown: see mainstay check)", style="bold red")
    return coloured(status)


def printable(text: str) -> str:
    """Stored text with escaped control characters, so that it cannot control the terminal.

    >>> printable("all fine\\x1b[2J")
    'all fine\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def shortened(text: str) -> str:
    """Text with shortened digests and session ids. Job ids stay whole, to be copied.

    >>> shortened("job 01a1e20f-5355-7137-b2a7-4de452e6b59d, session w-1.5f3c2b1a9d8e7f60")
    'job 01a1e20f-5355-7137-b2a7-4de452e6b59d, session w-1.5f3c2b1a…'
    """
    return _HASH.sub(r"\1…", text)
