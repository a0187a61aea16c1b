"""What the commands that look into a store share: which store, how to open it, how to print what is stored."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ..clock import duration_text
from ..errors import InvalidInput, MainstayError, StoreDamaged
from ..stores import JobStore, open_store

FAILED = 2

StoreOption = Annotated[
    str, typer.Option("--store", "-s", envvar="MAINSTAY_STORE", help="Which store, as a URL.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

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


def looking(url: str, look: Callable[[JobStore], Awaitable[Any]], *, as_json: bool) -> Any:
    """Open the store, look, close it. With --json, an error is JSON too."""
    try:
        return asyncio.run(_looked(url, look))
    except MainstayError as error:
        if not as_json:
            raise
        print_json({"error": {"code": error.code, "message": str(error)}})
        raise typer.Exit(FAILED) from None


async def _looked(url: str, look: Callable[[JobStore], Awaitable[Any]]) -> Any:
    async with opened(url) as store:
        return await look(store)


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[JobStore]:
    """A store to look into, closed afterwards."""
    if not url:
        raise InvalidInput("store", "which store? pass --store sqlite:///jobs.db, or set MAINSTAY_STORE")
    if url.startswith("sqlite:") and "create=" not in url:
        # to look at a database that is not there is a mistake, not a wish for a new one
        url += ("&" if "?" in url else "?") + "create=no"
    log = logging.getLogger("mainstay")
    level = log.level
    # what the store warns of when it opens is told by the command itself, with more about it
    log.setLevel(logging.ERROR)
    try:
        store = await open_store(url)
        try:
            yield store
        finally:
            with contextlib.suppress(StoreDamaged):  # told already, by whatever met the damage first
                await store.close()
    finally:
        log.setLevel(level)


def print_json(data: Any) -> None:
    """For programs: one JSON value, whatever was stored in it."""
    typer.echo(msgspec.json.format(msgspec.json.encode(data, enc_hook=str), indent=2).decode())


def coloured(status: str) -> Text:
    """A status as people see it; one that only a newer version knows, too."""
    return Text(printable(status), style=_COLOURS.get(status, "bold"))


def printable(text: str) -> str:
    """Stored text without what would move the cursor or change the terminal.

    >>> printable("all fine\\x1b[2J")
    'all fine\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def age(ms: int) -> str:
    """How long ago, shortly.

    >>> age(90_061_000), age(5_400), age(70), age(-5)
    ('1d1h', '5s', '0s', '0s')
    """
    return duration_text(max(0, ms) // 1000)
