"""The SQLite schema and its forward migrations.

One column per field of `Job` and `Event`. Statements name the columns in the order of the fields, because rows are
bound and built positionally; the order in the table does not matter.
Partial indexes hold only what is still to be worked on, so claims cost the same with a thousand and with a
million stored jobs. `settled_ms IS NULL` is the stored form of "unsettled"; `lane` that of "ready".
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
    """Whether nothing was made in it yet."""
    empty = first_row(db, "SELECT count(*) FROM sqlite_schema") == (0,)
    return version_of(db) == 0 and db.pragma("application_id") == 0 and empty


def admit(db: apsw.Connection, path: str) -> None:
    """Refuse what is not ours to open, before anything is written to it."""
    if not is_fresh(db) and db.pragma("application_id") != APPLICATION_ID:
        raise StoreError(f"{path} is an SQLite database, but not one of Mainstay's; choose another file")
    if (version := version_of(db)) > VERSION:
        has_facts = "facts" in tables_of(db)
        row = first_row(db, "SELECT value FROM facts WHERE name = 'compatible_from'") if has_facts else None
        refuse_newer(path, version=version, compatible=int(row[0]) if row else version, known=VERSION)


def migrate(db: apsw.Connection) -> None:
    """Bring the database up to this version, in one transaction. A newer one is left as it is."""
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
    """Remember the audit key of a new database; refuse any other afterwards."""
    known = "SELECT value FROM facts WHERE name = 'audit'"
    if (row := first_row(db, known)) is None:
        db.execute("INSERT OR IGNORE INTO facts VALUES ('audit', ?)", (fingerprint,))
        row = first_row(db, known)
    admit_fingerprint(row[0] if row else "", fingerprint, path)


def expected_objects(version: int) -> dict[str, str]:
    """Name -> SQL of every table and index as a version declares them, for the check."""
    with _scratch(version) as db:
        return dict(all_rows(db, "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))


def expected_columns() -> dict[str, dict[str, str]]:
    """Table -> column -> its default as SQL, as this version declares them."""
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

    What later migrations add is supplied for this connection alone, in its temporary schema, whose names come first: a
    view with the default of each missing column, an empty table for each missing table. The file is not changed.
    """

    def supply(self) -> None:
        """Once, after it was connected."""
        there = {name: columns_of(self, name) for name in tables_of(self)}
        for table, columns in expected_columns().items():
            if table not in there:
                names = ", ".join(f'"{name}"' for name in columns)
                super().execute(f"CREATE TEMP TABLE {table} ({names})")
            elif missing := {name: sql for name, sql in columns.items() if name not in there[table]}:
                added = ", ".join(f'{default} AS "{name}"' for name, default in missing.items())
                rowid = "rowid AS rowid, " if table == "jobs" else ""
                super().execute(f"CREATE TEMP VIEW {table} AS SELECT {rowid}*, {added} FROM main.{table}")
        self.pragma("query_only", True)

    def execute(self, statements: str, *args: Any, **options: Any) -> apsw.Cursor:
        # a view has no indexes of its own, and may not be told to use one; that of the table is found all the same
        return super().execute(_INDEXED.sub("", statements), *args, **options)


def refuse_older(path: str, version: int, command: str) -> SchemaTooOld:
    """Why a database that may not be migrated here cannot be written."""
    return SchemaTooOld(
        f"{path} has schema version {version}, and this Mainstay writes version {VERSION}. A command can look at it; "
        f"to change it, bring it up first (programs of the version before go on): {command}; nothing was changed"
    )
