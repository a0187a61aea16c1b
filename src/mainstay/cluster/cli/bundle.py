"""`mainstay cluster bundle`: publish the code of a program for the nodes of a cluster, see it and remove it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ...bundles import (
    BundleClient,
    BundleListing,
    BundleManifest,
    BundleRemoval,
    NameMove,
    PublishedBundle,
    PublishProgress,
    PublishResult,
    check_bundle_name,
    collect_bundle,
    is_digest_start,
    publish_bundle,
)
from ...cli import Column, CommandOutput, JsonOption, command, command_group, facts, local_actor, stderr_console, table
from ...clock import seconds
from ...errors import InvalidInput, NoResponders
from ...lifecycle import time_text
from ...words import counted
from ..operator import SHORT_CONNECT_S, operator_bus
from .commands import ClusterOptions

group = command_group("Publish the code of a program for the nodes of a cluster, see it and remove it.")

_WIDE = 100
#: of a digest
_DIGITS = 12
#: a smaller bundle is published before a bar could be read
_BAR_BYTES = 5_000_000
_Reference = Annotated[
    str, typer.Argument(metavar="NAME|DIGEST", help="A name, a digest, or the first 8 or more digits of one.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(group, "push")(push)
    command(group, "list")(list_bundles)
    command(group, "show")(show)
    command(group, "remove")(remove)
    command(group, "prune")(prune)
    app.add_typer(group, name="bundle")


@contextlib.asynccontextmanager
async def _client(cluster: ClusterOptions) -> AsyncIterator[BundleClient]:
    address = cluster.address()
    async with operator_bus(address, timeout_s=None if cluster.url else SHORT_CONNECT_S) as (bus, name):
        try:
            yield BundleClient(
                bus, role="operator", name=name, cluster=address.cluster, environment=address.environment
            )
        except NoResponders:
            rule = f"no manager answers on {address.shown}; start one: mainstay manager"
            raise InvalidInput("url", rule) from None


async def push(
    cluster: ClusterOptions,
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app, as module:variable.")],
    root: Annotated[
        Path, typer.Option("--root", metavar="DIR", help="Folder that the program is imported from.")
    ] = Path(),
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include",
            metavar="GLOB",
            help="More files below the root, such as 'plugins/**'; modules bring their imports. Repeatable.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="FILE_OR_DIR", help="Data below the root, 4 GB by default. Repeatable."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name that points to it from now on.")] = "",
    as_json: JsonOption = False,
) -> CommandOutput:
    """Publish a program: its module and everything it imports from its own folder, as files with digests.

    Installed packages are not part of it: install them on the nodes. Nothing is imported or run. Only what the cluster
    does not have is sent. The digest names exactly this code; the same files have the same digest everywhere.

    Exit codes: 0 published, 2 error (too large, a file that cannot be part of it).

    [bold]Examples[/bold]

      mainstay cluster bundle push shop:app --name shop
      mainstay cluster bundle push shop.main:app --root src --include 'shop/templates/**' --data src/model.bin
    """
    if name:
        check_bundle_name(name)
    async with _client(cluster) as client:
        limits = await client.limits()
        bundle = await asyncio.to_thread(
            collect_bundle,
            target,
            root,
            include or [],
            data=[_below(root, place) for place in data or []],
            limits=limits,
        )
        with _PushBar(quiet=as_json) as bar:
            done = await publish_bundle(client, bundle, name=name, by=local_actor(), limits=limits, progress=bar)
    return CommandOutput(done, lambda console: _show_push(done, console))


def _below(root: Path, place: str) -> str:
    """A data file as people name it: from the current folder, or from the root."""
    return str(Path(place).absolute()) if Path(place).exists() else str(root.absolute() / place)


class _PushBar:
    """The progress on stderr, if that is a terminal and the bundle is large."""

    def __init__(self, *, quiet: bool) -> None:
        console = stderr_console()
        columns = (TextColumn("sending"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task("sending", total=None, visible=False)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, progress: PublishProgress) -> None:
        large = progress.total_bytes > _BAR_BYTES
        self._bar.update(self._task, completed=progress.done_bytes, total=progress.total_bytes, visible=large)


async def list_bundles(cluster: ClusterOptions) -> CommandOutput:
    """List the bundles of a cluster with their names, the newest first.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay cluster bundle list
    """
    async with _client(cluster) as client:
        found = await client.listing()
    return CommandOutput(found, lambda console: _show_list(found, console))


async def show(cluster: ClusterOptions, bundle: _Reference) -> CommandOutput:
    """Show the files of a bundle; for a name also which bundles it pointed to.

    Exit codes: 0 fine, 2 error (no such bundle).

    [bold]Examples[/bold]

      mainstay cluster bundle show shop
      mainstay cluster bundle show 4f1c09ae --json | jq '.files[].path'
    """
    async with _client(cluster) as client:
        found = await client.find(bundle)
        manifest = await client.manifest(found.digest, await client.limits())
        history = [] if is_digest_start(bundle) else await client.history(bundle)
    files = [
        {"path": file.path, "size": file.size, "sha256": file.sha256, "data": file.data} for file in manifest.files
    ]
    data = {"bundle": found, "history": history, "files": files}
    return CommandOutput(data, lambda console: _show_bundle(found, manifest, history, console))


async def remove(cluster: ClusterOptions, bundle: _Reference) -> CommandOutput:
    """Remove a name, or the bundle of a digest with all files that no other bundle has.

    A name is removed with its history, and its bundle stays. A bundle that a name points to or that a node runs is not
    removed.

    Exit codes: 0 removed, 2 error (no such bundle, or it is needed).

    [bold]Examples[/bold]

      mainstay cluster bundle remove 4f1c09ae
    """
    async with _client(cluster) as client:
        done = await client.remove(bundle)
    return CommandOutput(done, lambda console: _show_removal(done, console))


async def prune(
    cluster: ClusterOptions,
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, metavar="N", help="Keep the N newest of each program.")
    ] = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Remove only what was published before, such as 30d.")
    ] = "",
) -> CommandOutput:
    """Remove old bundles, and stored files that no bundle has.

    Bundles that a name points to or that a node runs stay. With both options, only what both name is removed.

    Exit codes: 0 done, 2 error.

    [bold]Examples[/bold]

      mainstay cluster bundle prune --keep 5
      mainstay cluster bundle prune --keep 2 --older-than 30d
    """
    older_than_s = seconds(older_than, field="older-than") if older_than else None
    if keep is None and older_than_s is None:
        raise InvalidInput("keep", "say what to remove: --keep N, --older-than AGE, or both")
    async with _client(cluster) as client:
        done = await client.prune(keep=keep, older_than_s=older_than_s)
    return CommandOutput(done, lambda console: _show_removal(done, console))


# for people ----------------------------------------------------------------------------------------


def _show_push(done: PublishResult, console: Console) -> None:
    console.print(
        facts(
            [
                ("digest", done.digest),
                ("name", done.name),
                ("app", done.target),
                ("files", f"{done.files:,}, {_size(done.bytes)}"),
                ("sent", f"{counted(done.sent_parts, 'part')}, {_size(done.sent_bytes)}"),
                ("present", f"{counted(done.present_parts, 'part')}, {_size(done.present_bytes)}"),
                ("run it", f"mainstay node join URL bundle:{done.name or done.digest[:_DIGITS]}"),
            ]
        )
    )


def _show_list(found: BundleListing, console: Console) -> None:
    if not found.bundles:
        console.print("no bundles; publish one: mainstay cluster bundle push MODULE:APP", markup=False)
        return
    names: dict[str, list[str]] = {}
    for name, digest in sorted(found.names.items()):
        names.setdefault(digest, []).append(name)
    columns: list[Column[PublishedBundle]] = [
        Column("digest", lambda each: each.digest[:_DIGITS]),
        Column("names", lambda each: ", ".join(names.get(each.digest, []))),
        Column("app", lambda each: each.target),
        Column("files", lambda each: f"{each.files:,}", right=True),
        Column("code", lambda each: _size(each.code_bytes), right=True),
        Column("data", lambda each: _size(each.data_bytes), right=True),
        Column("published", lambda each: time_text(each.at_ms)),
        Column("by", lambda each: each.by, min_screen=_WIDE),
    ]
    console.print(table(columns, found.bundles, screen_width=console.width))


def _show_bundle(found: PublishedBundle, manifest: BundleManifest, history: list[NameMove], console: Console) -> None:
    console.print(
        facts(
            [
                ("digest", found.digest),
                ("app", found.target),
                ("code", _size(found.code_bytes)),
                ("data", _size(found.data_bytes)),
                ("published", f"{time_text(found.at_ms)} by {found.by}"),
            ]
        )
    )
    console.print()
    console.print(
        table(
            [
                Column("file", lambda file: file.path),
                Column("size", lambda file: _size(file.size), right=True),
                Column("", lambda file: "data" if file.data else ""),
                Column("digest", lambda file: file.sha256[:_DIGITS], min_screen=_WIDE),
            ],
            manifest.files,
            screen_width=console.width,
        )
    )
    if history:
        console.print()
        console.print(
            table(
                [
                    Column("since", lambda move: time_text(move.at_ms)),
                    Column("digest", lambda move: move.digest[:_DIGITS]),
                    Column("by", lambda move: move.by),
                ],
                history,
                screen_width=console.width,
            )
        )


def _show_removal(done: BundleRemoval, console: Console) -> None:
    if done.name:
        console.print(f"name {done.name} removed; its bundle stays", markup=False)
        return
    for bundle in done.removed:
        console.print(f"removed {bundle.digest[:_DIGITS]} ({bundle.target})", markup=False)
    for digest, why in done.kept.items():
        console.print(f"kept {digest[:_DIGITS]}: {why}", markup=False)
    console.print(
        f"{counted(len(done.removed), 'bundle')} and {counted(done.parts, 'stored part')} removed", markup=False
    )


def _size(n: float) -> str:
    return f"{n:,.0f} B" if n < 1000 else f"{n / 1000:,.1f} kB" if n < 1_000_000 else f"{n / 1_000_000:,.1f} MB"


__all__ = ["group", "register"]
