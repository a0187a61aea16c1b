"""`mainstay store`: make what a store needs, bring it up to this version, and see where it stands."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..clock import SystemClock
from ..stores import open_store, shown_url
from ..stores.factory import REGISTRY_SCHEMES, chain_of, check_adapter
from ..stores.registry import RegistryInfo, prepare_registry
from ..stores.sqlite import path_of, schema
from ..stores.versioned import prepare_versioned
from .command import command
from .common import JsonOption, Refused, opened, print_command, print_json, printable, quietly, screen
from .exits import NO
from .target import Where, told_again

group = typer.Typer(help="Set up, migrate and inspect a store.", no_args_is_help=True, rich_markup_mode="rich")

UrlArgument = Annotated[
    str, typer.Argument(metavar="[URL]", help="URL of the store. Default: that of --store or --app.")
]
ValuesOption = Annotated[
    bool, typer.Option("--values", help="Create the folder, bucket or table only, without a job registry.")
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")]

_SERVERS = ("postgresql", "postgres")
#: also files of SQLite: which kind of store is in one, its first opening decides
_SELF_MADE = ("memory", "sqlite", "redis", "rediss", "valkey", "valkeys")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration did, or would do."""

    store: str
    before: int | None
    """None: such a store keeps its version to itself"""
    after: int | None
    done: bool
    """False: it would be done"""
    changes: bool
    """there was something to do"""
    steps: tuple[str, ...] = ()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a versioned store is."""

    store: str
    made: list[str]
    """what was done; nothing if all was there"""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store stands."""

    store: str
    current: bool
    durability: str
    version: int | None = None
    known: int | None = None
    """the version this Mainstay brings it to"""
    schema: str | None = None
    server: str | None = None
    jobs: int = 0
    events: int | None = None
    bytes: int | None = None
    commits: int | None = None
    """of a registry: how many there ever were"""
    snapshot: int | None = None
    """of a registry: the last commit in its newest snapshot"""
    sessions: int = 0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="store")


@command(group, "init")
def init(where: Where, url: UrlArgument = "", values: ValuesOption = False, as_json: JsonOption = False) -> None:
    """Create a job registry, and the folder, bucket, container or table that it needs.

    With --values only the folder, bucket, container or table is created, for a versioned store of your own values.
    Existing ones are not changed.

    If you lack the permission to create one, the error names the permission, and the command of the cloud's own tool.
    Buckets of Google Cloud Storage must be created with that tool.

    Other job stores do not need it: [bold]mainstay store migrate[/bold] sets up a PostgreSQL store; SQLite and Redis
    are set up when they are first opened.

    Exit codes: 0 it exists now, 2 error.

    [bold]Examples[/bold]

      mainstay store init s3://my-bucket/studies
      mainstay store init 'dynamodb://jobs/studies?region=eu-central-1'
      mainstay store init az://studies --json | jq -r '.made[]'
      mainstay store init file:values --values
    """
    place = asyncio.run(_init(url or where.target().url, values=values))
    if as_json:
        print_json(msgspec.to_builtins(place))
    else:
        done = ", ".join(place.made)
        screen().print(
            f"{place.store}: {done}" if done else f"{place.store} is there already", markup=False, soft_wrap=True
        )


@command(group, "migrate")
def migrate(where: Where, url: UrlArgument = "", dry_run: DryOption = False, as_json: JsonOption = False) -> None:
    """Migrate a store to this version of Mainstay.

    A PostgreSQL store is migrated by this command only, unless its URL has auto_migrate=on. Run it before you start the
    new version. Workers of the previous version may keep running. Concurrent migrations wait for each other.

    An SQLite file is migrated by this command, and by the first worker or other program of the new version that opens
    it for writing. Commands that only read do not migrate it. Programs of the previous version keep working, and may be
    restarted.

    Other stores have nothing to migrate.

    Exit codes: 0 the store is up to date, 1 with --dry-run: a migration is needed, 2 error.

    [bold]Examples[/bold]

      mainstay store migrate postgresql://app@db/shop
      mainstay store migrate 'postgresql://app@db/shop?schema=billing' --dry-run
      mainstay store migrate --dry-run --json | jq -r '.steps[]'
    """
    step = asyncio.run(_migrate(url or where.target().url, dry_run=dry_run))
    if as_json:
        print_json(msgspec.to_builtins(step))
    else:
        _show_step(step, screen())
    if dry_run and step.changes:
        raise typer.Exit(NO)


@command(group, "status")
def status(where: Where, url: UrlArgument = "", as_json: JsonOption = False) -> None:
    """Show the state of a store: its version and the version that this Mainstay needs, its size, and its durability.

    Nothing is changed. Numbers of a large PostgreSQL store are the server's estimates.

    Exit codes: 0 this Mainstay can use the store, 1 the store must be migrated or Mainstay upgraded, 2 error.

    [bold]Examples[/bold]

      mainstay store status postgresql://app@db/shop
      mainstay store status || mainstay store migrate
      mainstay store status --json | jq .durability
    """
    state = asyncio.run(_status(url or where.target().url))
    if as_json:
        print_json(msgspec.to_builtins(state))
    else:
        next_time = where.again("mainstay store migrate")
        _show_state(state, screen(), f"mainstay store migrate {told_again(url)}" if url else next_time)
    if not state.current:
        raise typer.Exit(NO)


async def _init(url: str, *, values: bool) -> Place:
    scheme = urlsplit(url).scheme
    if scheme in _SERVERS:
        raise Refused("store", f"{shown_url(url)} is set up by: mainstay store migrate {shown_url(url)}")
    if scheme in _SELF_MADE:
        raise Refused("store", f"{shown_url(url)} needs no init: it is made when it is opened first")
    if values or scheme not in REGISTRY_SCHEMES:
        made = await prepare_versioned(url)
    else:
        made = await prepare_registry(url, clock=SystemClock(), chain=chain_of(None))
    return Place(store=shown_url(url).partition("?")[0], made=made)


async def _migrate(url: str, *, dry_run: bool) -> Step:
    check_adapter(url)
    if urlsplit(url).scheme in _SERVERS:
        made = await _migrating().migrate(url, dry_run=dry_run)
        changes = made.functions or made.before != made.after
        return Step(
            store=shown_url(url),
            before=made.before,
            after=made.after,
            done=not dry_run,
            changes=changes,
            steps=made.steps,
        )
    if urlsplit(url).scheme == "sqlite":
        return await _migrate_file(url, dry_run=dry_run)
    if not dry_run:
        await (await open_store(url)).close()
    return Step(store=shown_url(url), before=None, after=None, done=not dry_run, changes=False)


async def _migrate_file(url: str, *, dry_run: bool) -> Step:
    """Of SQLite."""
    if not dry_run:
        with quietly():
            store: Any = await open_store(url)
        await store.close()
        before, after = store.schema_found, store.schema_version
    elif not path_of(url).exists():
        before, after = 0, schema.VERSION
    else:
        async with opened(url) as found:
            before = getattr(found, "schema_version", schema.VERSION)
        after = max(before, schema.VERSION)
    return Step(
        store=shown_url(url),
        before=before,
        after=after,
        done=not dry_run,
        changes=before != after,
        steps=schema.MIGRATIONS[before:after],
    )


async def _status(url: str) -> State:
    check_adapter(url)
    if urlsplit(url).scheme in _SERVERS:
        found = await _migrating().status(url)
        promised = import_module("mainstay.stores.postgres.connection.durability").promised
        return State(
            store=found.url,
            current=found.current,
            durability=promised(dict(parse_qsl(urlsplit(url).query)).get("durability"), found.settings),
            version=found.version,
            known=found.known,
            schema=found.schema,
            server=f"PostgreSQL {found.server}",
            jobs=found.jobs,
            events=found.events,
            bytes=found.bytes,
            sessions=found.sessions,
        )
    async with opened(url) as store:
        stats = await store.stats()
        jobs = sum(sum(queue.counts.values()) for queue in stats.queues.values())
        state = State(
            store=shown_url(url), current=True, durability=store.durability, jobs=jobs, sessions=stats.sessions
        )
        if (version := getattr(store, "schema_version", None)) is not None:
            known = schema.VERSION
            state = msgspec.structs.replace(state, version=version, known=known, current=version >= known)
        about = getattr(store, "about", None)
        if about is None:
            return state
        stands: RegistryInfo = await about()
        return msgspec.structs.replace(
            state, commits=stands.commits, snapshot=stands.snapshot, events=stands.events, bytes=stands.snapshot_bytes
        )


def _migrating() -> Any:
    """Imported only when it is needed: its driver is an extra."""
    return import_module("mainstay.stores.postgres.schema.migration")


def _show_step(step: Step, console: Console) -> None:
    if step.before is None:
        told = f"{step.store} has nothing to migrate"
    elif not step.changes:
        told = f"{step.store} is up to date: version {step.after}"
    else:
        verb = "brought" if step.done else "would be brought"
        what = (
            f"from version {step.before} to {step.after}"
            if step.before != step.after
            else "to this release's functions"
        )
        begun = " (it is new)" if step.before == 0 else ""
        told = f"{step.store}: {verb} {what}{begun}"
    # folded by the terminal, if at all: a URL with a line break in it cannot be copied
    console.print(told, markup=False, soft_wrap=True)


def _show_state(state: State, console: Console, migrate_with: str) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("store", Text(printable(state.store)))
    if state.server is not None:
        table.add_row("server", Text(printable(state.server)))
    if state.schema is not None:
        table.add_row("schema", Text(printable(state.schema)))
    if state.version is not None and state.known is not None:
        table.add_row("version", _version(state.version, state.known, current=state.current))
    table.add_row("jobs", f"{state.jobs:,}")
    if state.events is not None and state.bytes is not None:
        table.add_row("events", f"{state.events:,}")
        if state.commits is None:
            table.add_row("on disk", f"{state.bytes / 1_048_576:,.1f} MiB")
    if state.commits is not None:
        table.add_row("commits", f"{state.commits:,}")
        size = f", {(state.bytes or 0) / 1_048_576:,.1f} MiB"
        table.add_row("snapshot", f"of commit {state.snapshot:,}{size}" if state.snapshot else "none yet")
    table.add_row("sessions", f"{state.sessions:,}")
    table.add_row("durability", Text(printable(state.durability)))
    console.print(table)
    if not state.current and (state.known or 0) >= (state.version or 0):
        console.print()
        print_command(migrate_with, console, indent=0)


def _version(there: int, known: int, *, current: bool) -> Text:
    if current and there > known:
        return Text(f"{there}, of a newer Mainstay; this one ({known}) can work with it", style="green")
    if current:
        return Text(f"{there}, as this Mainstay needs it", style="green")
    if there > known:
        return Text(f"{there}; this Mainstay knows up to {known}: upgrade it", style="red")
    if there == known:
        return Text(f"{there}, with functions of another release: migrate it", style="yellow")
    return Text(f"{there or 'none'}; this Mainstay needs {known}: migrate it", style="yellow")
