"""What the commands that work on a store share: how to open it, how to print what is stored."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import IO, Annotated, Any, TypeVar, cast

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from ..control import Control
from ..errors import InvalidInput, StoreDamaged
from ..lifecycle import table_of
from ..stores import JobStore, open_store
from .target import Target, Where

T = TypeVar("T")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

#: where nobody looks, lines are as long as what is in them
_UNLIMITED = 100_000
_BLANKS = re.compile(r"[ \t]+$", re.MULTILINE)
#: digests and the random part of session ids; job ids have dashes and are left whole
_HASH = re.compile(r"(?<![0-9A-Za-z-])([0-9a-f]{8})[0-9a-f]{8,}(?![0-9A-Za-z-])")

#: colours by what a state means to a person; a state that is not here is shown all the same
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


class Refused(InvalidInput):
    """Refused with a sentence that names by itself what is wrong: no field goes before it."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(field, rule)
        self.args = (rule,)


def looking(where: Where, look: Callable[[JobStore], Awaitable[T]]) -> T:
    """Open the store, look, close it."""

    async def run(target: Target) -> T:
        async with opened(target.url) as store:
            return await look(store)

    return asyncio.run(run(where.target()))


def working(where: Where, work: Callable[[Control], Awaitable[T]]) -> T:
    """The same for what changes something: with the rules around the store, and the settings of the app."""

    async def run(target: Target) -> T:
        async with opened(target.url) as store:
            return await work(Control(store, settings=target.settings))

    return asyncio.run(run(where.target()))


#: What a command asks of a store that it opens: a store that does not exist is a mistake, not a wish for a new one, and
#: a command that looks does not migrate.
_AS_IT_IS = {
    "sqlite": {"create": "no", "migrate": "no"},
    "postgresql": {"auto_migrate": "off"},
    "postgres": {"auto_migrate": "off"},
    **{scheme: {"create": "no"} for scheme in ("file", "s3", "gs", "az", "dynamodb")},
}


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[JobStore]:
    """A store to look into, closed afterwards. It is neither made nor migrated."""
    for name, value in _AS_IT_IS.get(url.partition(":")[0], {}).items():
        if name == "auto_migrate" or f"{name}=" not in url:  # the last one of a name counts
            url += f"{'&' if '?' in url else '?'}{name}={value}"
    with quietly():
        store = await open_store(url)
        try:
            yield store
        finally:
            with contextlib.suppress(StoreDamaged):  # told already, by whatever met the damage first
                await store.close()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings of a store that opens: the command itself prints them, with more about them."""
    log = logging.getLogger("mainstay")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


class _NoBlanks:
    """Where tables go when they are piped or kept: the padding that fills a screen is left out."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        return self._file.write(_BLANKS.sub("", text))


def screen() -> Console:
    """Where a command prints. In a pipe or a file lines are as long as they need to be, unless COLUMNS is set."""
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    width = None if os.environ.get("COLUMNS", "").isdigit() else _UNLIMITED
    return Console(highlight=False, width=width, file=cast("IO[str]", _NoBlanks(sys.stdout)))


def aside(text: str, *, style: str = "yellow") -> None:
    """A remark on stderr: the output is for scripts."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, style=style, markup=False)


def print_json(data: Any) -> None:
    """For programs: one JSON value, whatever was stored in it."""
    typer.echo(msgspec.json.format(msgspec.json.encode(data, enc_hook=str), indent=2).decode())


def print_line(data: Any) -> None:
    """For programs: one JSON value on one line, at once."""
    typer.echo(msgspec.json.encode(data, enc_hook=str).decode())


def print_command(command: str, console: Console, *, indent: int = 2) -> None:
    """A command to try. Never folded by us: it is there to be copied."""
    console.print(Text(" " * indent + command, style="cyan"), soft_wrap=True)


def coloured(status: str) -> Text:
    """A status, an outcome or a verdict as people see it."""
    return Text(printable(status), style=_COLOURS.get(status, ""))


def coloured_status(status: str, parent: str | None = None) -> Text:
    """The stored status of a job, or of a unit of `parent`. One that this version does not know is marked: a newer
    version wrote it, or the row is damaged; `mainstay check` tells which."""
    if table_of(parent).get(status) is None:
        return Text(f"{printable(status)} (unknown: see mainstay check)", style="bold red")
    return coloured(status)


def printable(text: str) -> str:
    """Stored text without what would move the cursor or change the terminal.

    >>> printable("all fine\\x1b[2J")
    'all fine\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def shortened(text: str) -> str:
    """Digests and session ids by their beginning: enough to tell them apart. Job ids stay whole, to be copied.

    >>> shortened("job 01a1e20f-5355-7137-b2a7-4de452e6b59d, session w-1.5f3c2b1a9d8e7f60")
    'job 01a1e20f-5355-7137-b2a7-4de452e6b59d, session w-1.5f3c2b1a…'
    """
    return _HASH.sub(r"\1…", text)
