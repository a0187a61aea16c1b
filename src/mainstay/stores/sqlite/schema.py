"""The SQLite schema and its forward migrations.

There is one column per field of `Job` and `Event`. Statements name the columns in the order of the fields, because rows
are bound and built positionally; the order in the table does not matter. Partial indexes hold only unfinished work, so
a claim costs the same with a thousand and with a million stored jobs. `settled_ms IS NULL` is the stored form of
"unsettled"; `lane` that of "ready".
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from ...errors import SchemaTooOld, StoreError
from ..audit_key import admit_fingerprint
from ..compatibility import compatible_from, read_migrations, refuse_newer
from .sql import all_rows, first_row

APPLICATION_ID = 0x4D41494E  # "MAIN"

MIGRATIONS = read_migrations(Path(__file__).with_name("migrations"))
VERSION = len(MIGRATIONS)


def version_of(db: apsw.Connection) -> int:
    found: int = db.pragma("user_version")
    return found


def is_fresh(db: apsw.Connection) -> bool:
    """Whether the database is empty."""
    empty = first_row(db, "SELECT count(*) FROM sqlite_schema") == (0,)
    return version_of(db) == 0 and db.pragma("application_id") == 0 and empty


def admit(db: apsw.Connection, path: str) -> None:
    """Refuse a database that we must not open, before anything is written to it."""
    if not is_fresh(db) and db.pragma("application_id") != APPLICATION_ID:
        raise StoreError(f"{path} is an SQLite database, but not a Mainstay store; choose another file")
    if (version := version_of(db)) > VERSION:
        has_facts = "facts" in tables_of(db)
        row = first_row(db, "SELECT value FROM facts WHERE name = 'compatible_from'") if has_facts else None
        refuse_newer(path, version=version, compatible=int(row[0]) if row else version, known=VERSION)


def migrate(db: apsw.Connection) -> None:
    """Migrate the database to this version, in one transaction. A newer one stays as it is."""
    version = version_of(db)
    if version >= VERSION:
        return
    with db:
        for step in MIGRATIONS[version:]:
            db.execute(step)
        oldest = str(compatible_from(MIGRATIONS))
        db.execute("INSERT OR REPLACE INTO facts VALUES ('compatible_from', ?)", (oldest,))
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", VERSION)


def admit_key(db: apsw.Connection, fingerprint: str, path: str) -> None:
    """Store the fingerprint of the audit key in a new database; refuse any other key afterwards."""
    known = "SELECT value FROM facts WHERE name = 'audit'"
    if (row := first_row(db, known)) is None:
        db.execute("INSERT OR IGNORE INTO facts VALUES ('audit', ?)", (fingerprint,))
        row = first_row(db, known)
    admit_fingerprint(row[0] if row else "", fingerprint, path)


def expected_objects(version: int) -> dict[str, str]:
    """Name -> SQL of every table and index of a version, for the check."""
    with _scratch(version) as db:
        return dict(all_rows(db, "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))


def expected_columns() -> dict[str, dict[str, str]]:
    """Table -> column -> its default as SQL, in this version."""
    with _scratch(VERSION) as db:
        return {name: columns_of(db, name) for name in tables_of(db)}


def tables_of(db: apsw.Connection) -> list[str]:
    return [name for (name,) in all_rows(db, "SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY name")]


def columns_of(db: apsw.Connection, table: str) -> dict[str, str]:
    """Column -> its default as SQL."""
    return {
        name: "NULL" if default is None else default
        for name, default in all_rows(db, "SELECT name, dflt_value FROM pragma_table_info(?, 'main')", (table,))
    }


@contextlib.contextmanager
def _scratch(version: int) -> Iterator[apsw.Connection]:
    db = apsw.Connection(":memory:")
    try:
        for step in MIGRATIONS[:version]:
            db.execute(step)
        yield db
    finally:
        db.close()


_INDEXED = re.compile(r"\bINDEXED BY \w+")


class OlderSchema(apsw.Connection):
    """A connection that reads a database of an older version as if it were of this one.

    Tables and columns of later migrations exist in the temporary schema of this connection, whose names take
    precedence: a view with the default of each missing column, an empty table for each missing table. The file is not
    changed.
    """

    def supply(self) -> None:
        """Create the temporary objects, once after connecting."""
        present = {name: columns_of(self, name) for name in tables_of(self)}
        for table, columns in expected_columns().items():
            if table not in present:
                names = ", ".join(f'"{name}"' for name in columns)
                super().execute(f"CREATE TEMP TABLE {table} ({names})")
            elif missing := {name: sql for name, sql in columns.items() if name not in present[table]}:
                added = ", ".join(f'{default} AS "{name}"' for name, default in missing.items())
                rowid = "rowid AS rowid, " if table == "jobs" else ""
                super().execute(f"CREATE TEMP VIEW {table} AS SELECT {rowid}*, {added} FROM main.{table}")
        self.pragma("query_only", True)

    def execute(self, statements: str, *args: Any, **options: Any) -> apsw.Cursor:
        # INDEXED BY is not allowed for a view; SQLite finds the index of its table all the same
        return super().execute(_INDEXED.sub("", statements), *args, **options)


def refuse_older(path: str, version: int, command: str) -> SchemaTooOld:
    """The error of a write to a database of an older version that may not be migrated here."""
    return SchemaTooOld(
        f"{path} has schema version {version}, and this Mainstay writes version {VERSION}; nothing was changed. It can "
        f"be read. To write to it, migrate it first (programs of the version before can continue): {command}"
    )
