"""The objects that a schema must have: tables, indexes and functions, as parsed from their declarations.

The check compares them with the server's catalogue, and recreates missing indexes and functions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

import asyncpg

from ....errors import StoreDamaged
from ...port import Violation
from ..connection.address import PostgresAddress
from ..connection.engine import PostgresEngine
from ..connection.pool import Db
from ..schema.definition import MIGRATIONS, VERSION, functions
from ..schema.versions import FACTS, SchemaFacts

_TABLE = re.compile(r"CREATE (?:UNLOGGED )?TABLE mainstay\.(\w+) \(\n(.*?)\n\)", re.DOTALL)
_COLUMN = re.compile(r'^    "?(\w+)"? (?:uuid|bigint|integer|smallint|boolean|double|text|bytea)', re.MULTILINE)
_PRIMARY = re.compile(r"CONSTRAINT (\w+) PRIMARY KEY \((.*?)\)")
_MORE_COLUMNS = re.compile(r'ALTER TABLE mainstay\.(\w+) ADD COLUMN "?(\w+)"?')
_INDEX = re.compile(r"CREATE (UNIQUE )?INDEX (?:CONCURRENTLY )?(\w+) ON mainstay\.(\w+) [^;]*")
_GONE = re.compile(r"DROP INDEX (?:CONCURRENTLY )?(?:IF EXISTS )?mainstay\.(\w+)")
_FUNCTION = re.compile(r"CREATE OR REPLACE FUNCTION mainstay\.(\w+)\(")


class SchemaIndex(NamedTuple):
    """An index as declared."""

    name: str
    table: str
    unique: bool
    primary: bool
    make: str
    """the statement that creates it"""


class SchemaObjects(NamedTuple):
    """All objects of a schema of this version."""

    columns: dict[str, frozenset[str]]
    """of each table"""
    indexes: dict[str, SchemaIndex]
    functions: frozenset[str]


@cache
def declared() -> SchemaObjects:
    script = "\n".join(MIGRATIONS)
    columns = {name: frozenset(_COLUMN.findall(body)) for name, body in _TABLE.findall(script)}
    for table, column in _MORE_COLUMNS.findall(script):
        columns[table] |= {column}
    return SchemaObjects(
        columns,
        _last_of(MIGRATIONS),
        frozenset(_FUNCTION.findall(functions())),
    )


def _last_of(migrations: Sequence[str]) -> dict[str, SchemaIndex]:
    """The indexes that the last migration leaves."""
    indexes: dict[str, SchemaIndex] = {}
    for script in migrations:
        created = {index.name: index for index in _indexes(script)}
        for name in _GONE.findall(script):
            indexes.pop(name, None)
        indexes |= created
    return indexes


def _indexes(script: str) -> Iterator[SchemaIndex]:
    for table, body in _TABLE.findall(script):
        for name, key in _PRIMARY.findall(body):
            yield SchemaIndex(name, table, True, True, f"CREATE UNIQUE INDEX {name} ON mainstay.{table} ({key})")
    for found in _INDEX.finditer(script):
        unique, name, table = found.groups()
        yield SchemaIndex(name, table, bool(unique), False, found.group().replace(" CONCURRENTLY", ""))


class MissingObjects(NamedTuple):
    """Declared objects that the schema does not have."""

    indexes: list[SchemaIndex]
    unsound: frozenset[str]
    """the indexes that exist, but are invalid or not unique"""
    functions: list[str]

    def violations(self, repaired: Collection[str] = ()) -> list[Violation]:
        """One for each object; `repaired` are the names of those that were made again."""
        found = []
        for index in self.indexes:
            state = "cannot be relied on: it is invalid, or not unique" if index.name in self.unsound else "is missing"
            found.append((index.name, f"the index {index.name} of {index.table} {state}"))
        found += [(name, f"the function {name} is missing") for name in self.functions]
        return [
            Violation(
                code="schema_incomplete", message=message, repaired="it was made again" if name in repaired else None
            )
            for name, message in found
        ]


_COLUMNS = """
SELECT c.relname::text, a.attname::text FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = $1 AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
"""
#: an index that is being built is neither missing nor invalid
_INDEXES = """
SELECT c.relname::text, i.indisunique,
    i.indisvalid OR EXISTS (SELECT FROM pg_catalog.pg_stat_progress_create_index p WHERE p.index_relid = c.oid)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = $1
"""
_FUNCTIONS = """
SELECT DISTINCT p.proname::text FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = $1
"""
_FACTS = "SELECT name, value FROM mainstay.facts WHERE name = ANY ($1)"


async def missing(db: Db, address: PostgresAddress) -> MissingObjects:
    """Compare with the server's catalogue. Raises `StoreDamaged` for a table that is not as declared: its data is lost,
    and cannot be recreated."""
    ours = declared()
    columns: dict[str, set[str]] = {}
    for table, column in await db.fetch(_COLUMNS, address.schema):
        columns.setdefault(table, set()).add(column)
    for table, expected in ours.columns.items():
        if lost := sorted(expected - columns.get(table, set())):
            what = f"lacks {', '.join(lost)}" if table in columns else "is missing"
            raise StoreDamaged(
                f"schema {address.schema!r} of {address.shown} is damaged: the table {table} {what}. Stop writing to "
                "it, and restore a backup"
            )
    facts = SchemaFacts.of(dict(map(tuple, await db.fetch(_FACTS, list(FACTS)))))
    if facts.version > VERSION:
        # only the newer version knows which indexes and functions it needs
        return MissingObjects(indexes=[], unsound=frozenset(), functions=[])
    rows = await db.fetch(_INDEXES, address.schema)
    found = {name: valid and (unique or not _must_be_unique(name)) for name, unique, valid in rows}
    present = {row[0] for row in await db.fetch(_FUNCTIONS, address.schema)}
    return MissingObjects(
        indexes=[index for index in ours.indexes.values() if not found.get(index.name)],
        unsound=frozenset(name for name, sound in found.items() if not sound),
        # functions of a later release are never replaced, and it may do without some of ours
        functions=[] if facts.is_newer else sorted(ours.functions - present),
    )


async def make(engine: PostgresEngine, lost: MissingObjects) -> list[Violation]:
    """Recreate missing objects beside running work. One that could not be made is reported without a repair."""
    repaired = [index.name for index in lost.indexes if await engine.read_loosely(partial(_built, index=index))]
    if lost.functions:
        await engine.transact(lambda tx: tx.db.execute(functions()))
        repaired += lost.functions
    return lost.violations(repaired)


async def _built(db: Db, *, index: SchemaIndex) -> bool:
    """Whether the index could be made. It cannot while rows violate it."""
    await db.execute(f"DROP INDEX CONCURRENTLY IF EXISTS mainstay.{index.name}")
    try:
        await db.execute(index.make.replace("INDEX", "INDEX CONCURRENTLY", 1))
    except (asyncpg.UniqueViolationError, asyncpg.LockNotAvailableError):
        await db.execute(f"DROP INDEX CONCURRENTLY IF EXISTS mainstay.{index.name}")
        return False
    if index.primary:
        await db.execute(
            f"ALTER TABLE mainstay.{index.table} ADD CONSTRAINT {index.name} PRIMARY KEY USING INDEX {index.name}"
        )
    return True


def _must_be_unique(name: str) -> bool:
    index = declared().indexes.get(name)
    return index is not None and index.unique
