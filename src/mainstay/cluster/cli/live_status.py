"""`mainstay cluster status --watch`: the status again and again, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ...cli import print_line
from ...errors import BusError, MainstayError
from ..cluster_service import ClusterClient
from ..core_view import ClusterCores
from ..status import ClusterStatus
from . import view

#: entries of the journal below the nodes
_ENTRIES = 50
_SHORTEST_S = 0.1


class ShownStatus(NamedTuple):
    """A status with what belongs to it."""

    status: ClusterStatus
    """with the journal of all managers"""
    cores: ClusterCores | None
    """None: the managers are of an earlier version, or cannot read them now"""

    def data(self) -> dict[str, Any]:
        """For programs."""
        data: dict[str, Any] = msgspec.to_builtins(self.status)
        return {**data, "cores": msgspec.to_builtins(self.cores)}


async def whole_status(client: ClusterClient) -> ShownStatus:
    """The status with the journal of all managers, and the cores."""
    status = await client.status()
    journal = await client.journal(most=_ENTRIES)
    cores = None
    with contextlib.suppress(MainstayError):  # an earlier version has no such request; the rest is still shown
        cores = await client.cores()
    return ShownStatus(msgspec.structs.replace(status, journal=journal), cores)


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
                found = await whole_status(client)
                if lines:
                    print_line(found.data())
                else:
                    shown = view.status_parts(found.status, console, found.cores)
            except BusError as failed:
                error = f"no manager answers: {failed}"
                if lines:
                    print_line({"error": error})
            if not lines:
                trouble = [Text(error, style="bold red")] if error else []
                screen.update(Group(*trouble, shown), refresh=True)
            done += 1
            await asyncio.sleep(max(_SHORTEST_S, every_s))


__all__ = ["ShownStatus", "watch_status", "whole_status"]
