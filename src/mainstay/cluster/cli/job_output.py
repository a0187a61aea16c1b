"""`mainstay jobs output`: what a job printed on a node."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Annotated, TextIO

import typer

from ...bus import BusMessage, Subscription
from ...cli import IdArgument, command, exits, full_id, printable, stderr_console
from ...stores import open_store
from ..cluster_service import ClusterClient
from ..output_follow import OutputReader
from ..output_messages import JobOutput, JobOutputQuery
from .commands import ClusterOptions

#: how often a follower asks; between that the node publishes
_ASK_S = 1.0


def register(group: typer.Typer) -> None:
    """Add the command to `mainstay jobs`."""
    command(group, "output")(output)


async def output(
    cluster: ClusterOptions,
    job_id: IdArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job settles, or Ctrl-C.")] = False,
    token: Annotated[
        int,
        typer.Option("--token", min=0, help="Token of the attempt, as in `jobs events`.", show_default="the newest"),
    ] = 0,
) -> int:
    """Show what a job printed on a node of a cluster: the last 64 KiB of an attempt.

    The node keeps it on its disk, also after the job has ended, for a week at most. With --follow the node also sends
    what is printed from now on. This is for people: lines may be lost, and it says how much was.

    Exit codes: 0 shown, 1 there is no output, 2 error, 130 Ctrl-C.

    [bold]Examples[/bold]

      mainstay jobs output 4de452e6b59d
      mainstay jobs output 4de452e6b59d --follow
    """
    store = await open_store(cluster.address().store_url("operator"))
    try:
        whole_id = await full_id(store, job_id)
    finally:
        await store.close()
    async with cluster.client() as client:
        return await show_output(client, whole_id, token=token, follow=follow, to=sys.stdout)


async def show_output(client: ClusterClient, job_id: str, *, token: int, follow: bool, to: TextIO) -> int:
    """Print the output of an attempt; the exit code. A follower goes on with the next attempt of the job."""
    reader, shown, found = OutputReader(), 0, None

    def show(text: str) -> None:
        to.write(_readable(text))
        to.flush()

    async with contextlib.AsyncExitStack() as stack:
        chunks = await stack.enter_async_context(await client.output_chunks()) if follow else None
        while True:
            found = await client.output(JobOutputQuery(job=job_id, token=token, after=reader.position, follow=follow))
            if found.token != shown:
                show(reader.end())
                began, shown = reader.position is not None, found.token
                reader = OutputReader()
                if began:  # the answer began where the attempt before it had ended
                    continue
            show(reader.answer(found))
            if chunks is None or found.settled:
                break
            await _read_chunks(chunks, found, reader, show)
    show(reader.end())
    if reader.position is None:
        stderr_console().print(found.missing, markup=False)
        return exits.FAILED
    return exits.DONE


async def _read_chunks(
    chunks: Subscription[BusMessage], found: JobOutput, reader: OutputReader, show: Callable[[str], None]
) -> None:
    """Show what the node publishes until it is time to ask again."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ASK_S):
            async for message in chunks:
                chunk = ClusterClient.read_chunk(message)
                sender = message.subject.rpartition(".")[2]
                if chunk is not None and sender == found.node and (chunk.job, chunk.token) == (found.job, found.token):
                    show(reader.chunk(chunk))


def _readable(text: str) -> str:
    """Text of a job, which may contain any character: none of them must control the terminal."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join("\t".join(printable(part) for part in line.split("\t")) for line in lines)


__all__ = ["output", "register", "show_output"]
