"""`mainstay store`: set up a store, migrate it to this version, and show its state."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from ..clock import SystemClock
from ..stores import REGISTRY_SCHEMES, chain_of, check_adapter, open_store, shown_url
from ..stores.registry import RegistryInfo, prepare_registry
from ..stores.sqlite import path_of, schema
from ..stores.versioned import prepare_versioned
from .commands import CommandOutput, command, command_group
from .common import InvalidUsage, opened, print_command, quietly
from .exits import DONE, NO
from .tables import facts
from .target import Where, shell_word

group = command_group("Set up, migrate and inspect a store.")

UrlArgument = Annotated[
    str, typer.Argument(metavar="[URL]", help="URL of the store. Default: that of --store or --app.")
]
ValuesOption = Annotated[
    bool, typer.Option("--values", help="Create the folder, bucket or table only, without a job registry.")
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")]

_SERVERS = ("postgresql", "postgres")
#: what `DatabaseStatus` and `StoreStatus` have in common
_DATABASE_FIELDS = ("current", "version", "known", "schema", "jobs", "events", "bytes", "sessions")
#: stores that are set up when they are first opened; the first opening of an SQLite file decides its kind
_SELF_MADE = ("memory", "sqlite", "redis", "rediss", "valkey", "valkeys")


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration did, or would do."""

    store: str
    before: int | None = None
    """the version; None: such a store has no version to migrate"""
    after: int | None = None
    done: bool
    """False: a dry run"""
    changes: bool = False
    """there was something to do"""
    steps: tuple[str, ...] = ()


class InitReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `init` created."""

    store: str
    made: list[str]
    """empty: everything existed"""


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a store."""

    store: str
    current: bool
    durability: str
    version: int | None = None
    known: int | None = None
    """the version to which this Mainstay migrates it"""
    schema: str | None = None
    server: str | None = None
    jobs: int = 0
    events: int | None = None
    bytes: int | None = None
    commits: int | None = None
    """of a registry: the number of its commits"""
    snapshot: int | None = None
    """of a registry: the last commit in its newest snapshot"""
    sessions: int = 0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="store")


@command(group, "init")
def init(where: Where, url: UrlArgument = "", values: ValuesOption = False) -> CommandOutput:
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
    report = asyncio.run(_init(url or where.target().url, values=values))
    made = ", ".join(report.made)
    return CommandOutput(report, f"{report.store}: {made}" if made else f"{report.store} exists already")


@command(group, "migrate")
def migrate(where: Where, url: UrlArgument = "", dry_run: DryOption = False) -> CommandOutput:
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
    report = asyncio.run(_migrate(url or where.target().url, dry_run=dry_run))
    return CommandOutput(report, _migration_line(report), exit_code=NO if dry_run and report.changes else DONE)


@command(group, "status")
def status(where: Where, url: UrlArgument = "") -> CommandOutput:
    """Show the state of a store: its version and the version that this Mainstay needs, its size, and its durability.

    Nothing is changed. Numbers of a large PostgreSQL store are the server's estimates.

    Exit codes: 0 this Mainstay can use the store, 1 the store must be migrated or Mainstay upgraded, 2 error.

    [bold]Examples[/bold]

      mainstay store status postgresql://app@db/shop
      mainstay store status || mainstay store migrate
      mainstay store status --json | jq .durability
    """
    state = asyncio.run(_status(url or where.target().url))
    migrate_with = f"mainstay store migrate {shell_word(url)}" if url else where.again("mainstay store migrate")
    exit_code = DONE if state.current else NO
    return CommandOutput(state, lambda console: _show_status(state, console, migrate_with), exit_code=exit_code)


async def _init(url: str, *, values: bool) -> InitReport:
    scheme = urlsplit(url).scheme
    if scheme in _SERVERS:
        raise InvalidUsage("store", f"{shown_url(url)} is set up by: mainstay store migrate {shown_url(url)}")
    if scheme in _SELF_MADE:
        raise InvalidUsage("store", f"{shown_url(url)} needs no init: it is set up when it is first opened")
    if values or scheme not in REGISTRY_SCHEMES:
        made = await prepare_versioned(url)
    else:
        made = await prepare_registry(url, clock=SystemClock(), chain=chain_of(None))
    return InitReport(store=shown_url(url).partition("?")[0], made=made)


async def _migrate(url: str, *, dry_run: bool) -> MigrationReport:
    check_adapter(url)
    scheme = urlsplit(url).scheme
    if scheme in _SERVERS:
        result = await _postgres_migration().migrate(url, dry_run=dry_run)
        before, after, steps = result.before, result.after, result.steps
        changes = result.functions or before != after
    elif scheme == "sqlite":
        before, after = await _migrate_file(url, dry_run=dry_run)
        changes, steps = before != after, schema.MIGRATIONS[before:after]
    else:
        if not dry_run:
            await (await open_store(url)).close()
        return MigrationReport(store=shown_url(url), done=not dry_run)
    return MigrationReport(
        store=shown_url(url), before=before, after=after, done=not dry_run, changes=changes, steps=steps
    )


async def _migrate_file(url: str, *, dry_run: bool) -> tuple[int, int]:
    """Migrate an SQLite file; the versions before and after."""
    if not dry_run:
        with quietly():
            store: Any = await open_store(url)
        await store.close()
        return store.schema_found, store.schema_version
    if not path_of(url).exists():
        return 0, schema.VERSION
    async with opened(url) as existing:
        before = getattr(existing, "schema_version", schema.VERSION)
    return before, max(before, schema.VERSION)


async def _status(url: str) -> StoreStatus:
    check_adapter(url)
    if urlsplit(url).scheme in _SERVERS:
        database = await _postgres_migration().status(url)
        promised = import_module("mainstay.stores.postgres.connection.durability").promised
        return StoreStatus(
            store=database.url,
            durability=promised(dict(parse_qsl(urlsplit(url).query)).get("durability"), database.settings),
            server=f"PostgreSQL {database.server}",
            **{name: getattr(database, name) for name in _DATABASE_FIELDS},
        )
    async with opened(url) as store:
        stats = await store.stats()
        jobs = sum(sum(queue.counts.values()) for queue in stats.queues.values())
        state = StoreStatus(
            store=shown_url(url), current=True, durability=store.durability, jobs=jobs, sessions=stats.sessions
        )
        if (version := getattr(store, "schema_version", None)) is not None:
            known = schema.VERSION
            state = msgspec.structs.replace(state, version=version, known=known, current=version >= known)
        about = getattr(store, "about", None)
        if about is None:
            return state
        registry: RegistryInfo = await about()
        return msgspec.structs.replace(
            state,
            commits=registry.commits,
            snapshot=registry.snapshot,
            events=registry.events,
            bytes=registry.snapshot_bytes,
        )


def _postgres_migration() -> Any:
    """Imported only when it is needed: its driver is an extra."""
    return import_module("mainstay.stores.postgres.schema.migration")


def _migration_line(report: MigrationReport) -> str:
    if report.before is None:
        return f"{report.store} has nothing to migrate"
    if not report.changes:
        return f"{report.store} is up to date: version {report.after}"
    verb = "migrated" if report.done else "would be migrated"
    if report.before == report.after:
        return f"{report.store}: {verb} to this release's functions"
    new = " (it is new)" if report.before == 0 else ""
    return f"{report.store}: {verb} from version {report.before} to {report.after}{new}"


def _show_status(state: StoreStatus, console: Console, migrate_with: str) -> None:
    pairs: list[tuple[str, str | Text | None]] = [
        ("store", state.store),
        ("server", state.server),
        ("schema", state.schema),
        ("version", _version(state)),
        ("jobs", f"{state.jobs:,}"),
    ]
    size = f"{(state.bytes or 0) / 1_048_576:,.1f} MiB"
    if state.events is not None:
        pairs.append(("events", f"{state.events:,}"))
    if state.commits is not None:
        pairs.append(("commits", f"{state.commits:,}"))
        pairs.append(("snapshot", f"of commit {state.snapshot:,}, {size}" if state.snapshot else "none yet"))
    elif state.bytes is not None:
        pairs.append(("on disk", size))
    console.print(facts([*pairs, ("sessions", f"{state.sessions:,}"), ("durability", state.durability)]))
    if not state.current and (state.known or 0) >= (state.version or 0):
        console.print()
        print_command(migrate_with, console, indent=0)


def _version(state: StoreStatus) -> Text | None:
    version, known = state.version, state.known
    if version is None or known is None:
        return None
    if state.current and version > known:
        return Text(f"{version}, of a newer Mainstay; this one ({known}) can use it", style="green")
    if state.current:
        return Text(f"{version}, as this Mainstay needs it", style="green")
    if version > known:
        return Text(f"{version}; this Mainstay knows versions up to {known}: upgrade it", style="red")
    if version == known:
        return Text(f"{version}, with functions of another release: migrate it", style="yellow")
    return Text(f"{version or 'none'}; this Mainstay needs {known}: migrate it", style="yellow")
