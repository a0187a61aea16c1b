"""`mainstay cluster status --watch`: the status again and again, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ...cli import print_line
from ...errors import BusError
from ..cluster_service import ClusterClient
from ..status import ClusterStatus
from . import view

#: entries of the journal below the nodes
_ENTRIES = 50
_SHORTEST_S = 0.1


async def whole_status(client: ClusterClient) -> ClusterStatus:
    """The status with the journal of all managers."""
    status = await client.status()
    return msgspec.structs.replace(status, journal=await client.journal(most=_ENTRIES))


async def watch_status(client: ClusterClient, *, every_s: float, as_json: bool, rounds: int | None = None) -> None:
    """Show the status each time; `rounds` times, or until the command is interrupted."""
    console = Console(highlight=False)
    shown: RenderableType = Text("")
    done = 0
    lines = as_json or not console.is_terminal
    screen = Live(console=console, auto_refresh=False)
    with contextlib.nullcontext() if lines else screen:
        while rounds is None or done < rounds:
            error = ""
            try:
                status = await whole_status(client)
                if lines:
                    print_line(msgspec.to_builtins(status))
                else:
                    shown = view.status_parts(status, console)
            except BusError as failed:
                error = f"no manager answers: {failed}"
                if lines:
                    print_line({"error": error})
            if not lines:
                trouble = [Text(error, style="bold red")] if error else []
                screen.update(Group(*trouble, shown), refresh=True)
            done += 1
            await asyncio.sleep(max(_SHORTEST_S, every_s))


__all__ = ["watch_status", "whole_status"]
