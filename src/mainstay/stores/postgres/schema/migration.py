"""Migrates a database to this version while workers run, and shows its status.

Each migration is a transaction of its own, under a lock that excludes a second migrator. A migration that waits for a
table's lock keeps all other transactions out of that table, so after a short time it steps back and tries again. A
script that begins with `OUTSIDE` runs statement by statement without a transaction, because PostgreSQL builds an index
beside running work (`CONCURRENTLY`) only there; each of its statements must be safe to repeat. Workers of the version
before continue: functions with other arguments exist beside the old ones. A function with the same arguments and
another result type cannot be replaced; it is dropped and created in one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import msgspec

from ....errors import StoreError, StoreLocked
from ...audit_key import admit_fingerprint
from ...compatibility import compatible_from
from ..connection.address import PostgresAddress, parse
from ..connection.durability import SETTINGS
from ..connection.engine import wait_s
from ..connection.errors import is_lost, translated, unavailable
from ..connection.pool import Db, begin, connect, hang_up
from ..write.statements import savepoint
from .definition import MIGRATIONS, OUTSIDE, VERSION, functions, placed, quoted
from .versions import FACTS, FITS, RELEASE, SchemaFacts, functions_mark

#: how long a migration waits for a table's lock, with other transactions waiting behind it
_STEP_BACK_MS = 1000
#: how often it tries; about a minute in all
_MOST_TRIES = 30
_OLDEST = 140000


class DatabaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a database."""

    url: str
    """without its secrets"""
    schema: str
    version: int
    """0: the schema does not exist yet"""
    known: int
    """the version that this Mainstay migrates to"""
    current: bool
    """nothing has to be migrated"""
    server: str
    """the server's version"""
    jobs: int = 0
    """stored jobs, as estimated by the server (exact up to a few thousand)"""
    events: int = 0
    bytes: int = 0
    """on disk, with indexes"""
    sessions: int = 0
    """live sessions of workers"""
    settings: dict[str, str] = {}
    """the server's settings for durability: fsync, synchronous_commit, synchronous_standby_names, full_page_writes"""


class MigrationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a migration, or of a dry run."""

    before: int
    after: int
    steps: tuple[str, ...]
    """the script of each missing version"""
    functions: bool
    """whether the functions were replaced"""


async def status(url: str) -> DatabaseStatus:
    """The status of a database. Opens no store and changes nothing."""
    async with _connected(url) as (db, address):
        found = await _found(db, address)
        server = await db.fetchval("SELECT current_setting('server_version')")
        rows = await db.fetch("SELECT name, setting FROM pg_settings WHERE name = ANY($1)", list(SETTINGS))
        counts = await _sizes(db, address) if found.version else {}
        return DatabaseStatus(
            url=address.shown,
            schema=address.schema,
            version=found.version,
            known=VERSION,
            current=found.current,
            server=server,
            settings={row["name"]: row["setting"] for row in rows},
            **counts,
        )


async def migrate(url: str, *, dry_run: bool = False, migrations: Sequence[str] = MIGRATIONS) -> MigrationResult:
    """Migrate a database to this version. Running workers continue; a second migrator waits for the first."""
    async with _connected(url) as (db, address):
        return await bring_up(db, address, dry_run=dry_run, migrations=migrations)


async def bring_up(
    db: Db, address: PostgresAddress, *, dry_run: bool = False, migrations: Sequence[str] = MIGRATIONS
) -> MigrationResult:
    """The same on an open connection."""
    await _admit_server(db, address)
    found = await _found(db, address)
    found.refuse_newer(_place(address), known=len(migrations))
    before = found.version
    steps = tuple(migrations[before:])
    outdated = not found.is_newer and (bool(steps) or found.mark != functions_mark())
    if not dry_run:
        for version in range(before, len(migrations)):
            await _step(db, address, version, migrations[: version + 1], fresh=before == 0)
        if outdated:
            await _make_functions(db, address)
    return MigrationResult(before=before, after=max(before, len(migrations)), steps=steps, functions=outdated)


async def admit(db: Db, address: PostgresAddress) -> None:
    """Refuse a database of another version, or migrate it if that is allowed."""
    if address.auto_migrate:
        await bring_up(db, address)
        return
    await _admit_server(db, address)
    found = await _found(db, address)
    found.refuse_newer(_place(address))
    command = f"mainstay store migrate '{_shown_url(address)}' (workers can keep running)"
    found.refuse_older(_place(address), f"{command}, or add auto_migrate=on to the URL")


async def admit_key(db: Db, fingerprint: str, address: PostgresAddress) -> None:
    """Store the fingerprint of the audit key in a new database; refuse any other key afterwards."""
    await db.execute("INSERT INTO mainstay.facts VALUES ('audit', $1) ON CONFLICT DO NOTHING", fingerprint)
    stored = await db.fetchval("SELECT value FROM mainstay.facts WHERE name = 'audit'")
    admit_fingerprint(stored, fingerprint, f"schema {address.schema!r} of {address.shown}")


# -- internals --------------------------------------------------------------------------------


async def _admit_server(db: Db, address: PostgresAddress) -> None:
    """Refuse a server that cannot hold a store."""
    major = db.raw.get_server_version().major
    if major * 10000 < _OLDEST:
        raise StoreError(f"{address.shown} is PostgreSQL {major}; Mainstay needs 14 or later")
    encoding = await db.fetchval("SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        raise StoreError(
            f"the database of {address.shown} has the encoding {encoding}, which cannot store every text; nothing was "
            "changed. Create one with: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        )


@contextlib.asynccontextmanager
async def _connected(url: str) -> AsyncIterator[tuple[Db, PostgresAddress]]:
    address = parse(url, dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)))
    try:
        db = await first_connection(address)
        try:
            yield db, address
        finally:
            await hang_up(db)
    except Exception as error:
        raise translated(error, address.shown) from error


async def first_connection(address: PostgresAddress, *, tries: int = 4) -> Db:
    """A connection to a server that may still be starting. It does not wait for long, because the URL may be wrong."""
    rng = random.Random()
    for lost in range(min(tries, address.retries + 1)):
        try:
            return await connect(address)
        except Exception as error:
            if not is_lost(error):
                raise translated(error, address.shown) from error
            if lost + 1 == min(tries, address.retries + 1):
                raise unavailable(error, address.shown, lost + 1) from error
            await asyncio.sleep(wait_s(lost + 1, rng))
    raise AssertionError("it tries at least once")


async def _found(db: Db, address: PostgresAddress) -> SchemaFacts:
    """The facts of the stored schema."""
    if await db.fetchval("SELECT to_regclass($1)", f"{quoted(address.schema)}.facts") is None:
        if await db.fetchval("SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace($1)", quoted(address.schema)):
            raise StoreError(
                f"schema {address.schema!r} of {address.shown} has tables of another program; choose another schema "
                "with ?schema="
            )
        return SchemaFacts()
    rows = await db.fetch("SELECT name, value FROM mainstay.facts WHERE name = ANY ($1)", list(FACTS))
    return SchemaFacts.of(dict(map(tuple, rows)))


async def _step(db: Db, address: PostgresAddress, version: int, migrations: Sequence[str], *, fresh: bool) -> None:
    """Run the last of these migrations."""
    sql, oldest = migrations[-1], str(compatible_from(migrations))
    if sql.lstrip().startswith(OUTSIDE):
        if not fresh:
            await _outside(db, address, version, sql, oldest)
            return
        # no worker uses it yet, and without CONCURRENTLY it can be made through a pooler
        sql = sql.replace(" CONCURRENTLY", "")

    async def run() -> None:
        if version == 0:
            await db.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(address.schema)}")
        await db.execute(sql)
        await _store_facts(db, version=str(version + 1), compatible_from=oldest)

    await _alone(db, address, version, run)


async def _make_functions(db: Db, address: PostgresAddress) -> None:
    async def run() -> None:
        found = await _found(db, address)
        if found.mark == functions_mark() or found.is_newer:  # another migrator was faster
            return
        await _put_functions(db, functions())
        # the function that users call must be the only one of its name, or calls could be ambiguous
        [submit] = [text for text in _EACH.split(functions()) if text.startswith(_SUBMIT)]
        ours = placed(f"mainstay.{_signature(submit)}", address.schema)
        for each in await db.fetch(_OTHERS, address.schema, ours):
            await db.raw.execute(f"DROP FUNCTION {each[0]}")
        await _store_facts(db, functions=functions_mark(), functions_release=str(RELEASE), functions_fits=str(FITS))

    await _alone(db, address, None, run)


_COMMENT = re.compile(r"--[^\n]*")
_EACH = re.compile(r"^(?=CREATE OR REPLACE FUNCTION )", re.MULTILINE)
_HEAD = re.compile(r"CREATE OR REPLACE FUNCTION mainstay\.(\w+)\((.*?)\)\s*(?:RETURNS|LANGUAGE)", re.DOTALL)
_ARGUMENT = re.compile(r"(?:IN |INOUT |VARIADIC )?\w+ (.*?)(?: DEFAULT .*)?", re.DOTALL)
_SUBMIT = "CREATE OR REPLACE FUNCTION mainstay.submit("
_OTHERS = """
SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
WHERE s.nspname = $1 AND p.proname = 'submit' AND p.oid IS DISTINCT FROM to_regprocedure($2)::oid
"""


async def _put_functions(db: Db, script: str) -> None:
    """Replace all at once, which nearly always works; otherwise one by one, dropping those that cannot be replaced."""
    try:
        async with savepoint(db):
            await db.execute(script)
        return
    except asyncpg.InvalidFunctionDefinitionError:
        pass
    for text in filter(_HEAD.match, _EACH.split(script)):
        try:
            async with savepoint(db):
                await db.execute(text)
        except asyncpg.InvalidFunctionDefinitionError:
            await db.execute(f"DROP FUNCTION mainstay.{_signature(text)}")
            await db.execute(text)


def _signature(text: str) -> str:
    """The name of a function with the types of its arguments, from its declaration.

    >>> _signature("CREATE OR REPLACE FUNCTION mainstay.f(a text[], b integer DEFAULT 0, OUT c text) LANGUAGE sql")
    'f(text[], integer)'
    """
    head = _HEAD.match(text)
    assert head is not None
    arguments = (part.strip() for part in head[2].split(","))
    types = [_ARGUMENT.fullmatch(part) for part in arguments if part and not part.startswith("OUT ")]
    return f"{head[1]}({', '.join(found[1] for found in types if found is not None)})"


async def _alone(db: Db, address: PostgresAddress, version: int | None, run: Callable[[], Awaitable[None]]) -> None:
    """Run it in a transaction without other migrators, unless one of them has already done it."""
    for _ in range(_MOST_TRIES):
        await db.raw.execute(f"{begin(address, 'on')}; SET LOCAL lock_timeout TO {_STEP_BACK_MS}")
        try:
            mine = await db.fetchval("SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))", _lock_name(address))
            if mine and (version is None or (await _found(db, address)).version == version):
                await run()
            await db.raw.execute("COMMIT")
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            mine = False
            await db.raw.execute("ROLLBACK")
        except BaseException:
            if not db.raw.is_closed():
                await db.raw.execute("ROLLBACK")
            raise
        if mine:
            return
        await asyncio.sleep(_STEP_BACK_MS / 1000)
    raise _locked_out(address)


async def _outside(db: Db, address: PostgresAddress, version: int, sql: str, oldest: str) -> None:
    if not address.listen:
        raise StoreError(
            f"{address.shown}: version {version + 1} builds an index beside running work, which does not work through "
            "a pooler; run the migration with the server's own address, without listen=off"
        )
    for _ in range(_MOST_TRIES):
        # polled: the index that is being built would wait for a statement that waits here
        if await db.fetchval("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", _lock_name(address)):
            break
        await asyncio.sleep(_STEP_BACK_MS / 1000)
    else:
        raise _locked_out(address)
    try:
        if (await _found(db, address)).version == version:
            await db.execute("SET lock_timeout TO 0")
            for statement in _statements(sql):
                await db.execute(statement)
            await _store_facts(db, version=str(version + 1), compatible_from=oldest)
    finally:
        if not db.raw.is_closed():
            await db.execute("SELECT pg_advisory_unlock(hashtextextended($1, 0))", _lock_name(address))


def _statements(sql: str) -> list[str]:
    """The statements of a script, without its comments, which may have semicolons.

    >>> _statements("-- first drop; then create\\nDROP INDEX a;\\nCREATE INDEX a ON t (x);\\n")
    ['DROP INDEX a', 'CREATE INDEX a ON t (x)']
    """
    return [part.strip() for part in _COMMENT.sub("", sql).split(";") if part.strip()]


def _locked_out(address: PostgresAddress) -> StoreLocked:
    return StoreLocked(
        f"{address.shown} could not be migrated: another session locks its tables, or is migrating it. Completed steps "
        "stay. Find the transaction that stays open (pg_stat_activity) and end it, then try again"
    )


async def _store_facts(db: Db, **facts: str) -> None:
    for name, value in facts.items():
        await db.execute(
            "INSERT INTO mainstay.facts VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            name,
            value,
        )


async def _sizes(db: Db, address: PostgresAddress) -> dict[str, int]:
    # an estimate, because counting millions of rows takes minutes; a small table has no estimate yet, and is counted
    row = await db.fetchrow(
        "SELECT sum(pg_total_relation_size(oid))::bigint AS bytes,"
        " max(reltuples) FILTER (WHERE relname = 'jobs')::bigint AS jobs,"
        " max(reltuples) FILTER (WHERE relname = 'events')::bigint AS events "
        "FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind = 'r'",
        quoted(address.schema),
    )
    found = {"bytes": row["bytes"]}
    for name in ("jobs", "events"):
        few = await db.fetchval(f"SELECT count(*) FROM (SELECT FROM mainstay.{name} LIMIT 5001) few")
        found[name] = few if few <= 5000 else max(row[name], few)
    found["sessions"] = await db.fetchval("SELECT count(*) FROM mainstay.sessions WHERE NOT dead")
    return found


def _lock_name(address: PostgresAddress) -> str:
    return f"mainstay migration of {address.schema}"


def _place(address: PostgresAddress) -> str:
    return f"schema {address.schema!r} of {address.shown}"


def _shown_url(address: PostgresAddress) -> str:
    """The URL for a command line."""
    return address.shown if address.schema == "mainstay" else f"{address.shown}?schema={address.schema}"
