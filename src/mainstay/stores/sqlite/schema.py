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
from typing import Any

import apsw

from ...errors import SchemaTooOld, StoreError
from ..audit_key import admit_fingerprint
from ..compatibility import compatible_from, refuse_newer
from .sql import all_rows, first_row

APPLICATION_ID = 0x4D41494E  # "MAIN"

_V1 = """
CREATE TABLE jobs (
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    parent TEXT,
    unit TEXT,
    "group" TEXT,
    options BLOB NOT NULL,
    key TEXT,
    unique_key TEXT,
    concurrency_key TEXT,
    priority INTEGER NOT NULL,
    status TEXT NOT NULL,
    reason TEXT,
    version INTEGER NOT NULL,
    token INTEGER NOT NULL,
    session TEXT,
    starts INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    releases INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    claimed_ms INTEGER,
    started_ms INTEGER,
    settled_ms INTEGER,
    expires_ms INTEGER,
    extra_ms INTEGER NOT NULL,
    error TEXT,
    result BLOB,
    head BLOB NOT NULL,
    trimmed_seq INTEGER NOT NULL,
    trimmed_digest BLOB NOT NULL,
    lane INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    progress TEXT,
    progress_ms INTEGER,
    checkpoint BLOB,
    payload BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_id ON jobs (id);
CREATE INDEX jobs_ready ON jobs (queue, rank, due_ms) WHERE lane = 1;
CREATE INDEX jobs_due ON jobs (queue, due_ms) WHERE lane = 2;
CREATE INDEX jobs_blocked ON jobs (concurrency_key, queue, rank) WHERE lane = 3;
CREATE INDEX jobs_key_ready ON jobs (concurrency_key, queue) WHERE lane = 1 AND concurrency_key IS NOT NULL;
CREATE INDEX jobs_aside ON jobs (id) WHERE lane = 4;
CREATE INDEX jobs_held ON jobs (session) WHERE session IS NOT NULL;
CREATE INDEX jobs_key_held ON jobs (concurrency_key) WHERE concurrency_key IS NOT NULL AND session IS NOT NULL;
CREATE INDEX jobs_expires ON jobs (expires_ms) WHERE expires_ms IS NOT NULL AND settled_ms IS NULL;
CREATE INDEX jobs_keep ON jobs (expires_ms) WHERE expires_ms IS NOT NULL AND settled_ms IS NOT NULL;
CREATE UNIQUE INDEX jobs_unique ON jobs (unique_key) WHERE unique_key IS NOT NULL AND settled_ms IS NULL;
CREATE INDEX jobs_status ON jobs (status, id) WHERE parent IS NULL;
CREATE INDEX jobs_units ON jobs (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX jobs_open_units ON jobs (parent) WHERE parent IS NOT NULL AND settled_ms IS NULL;
CREATE INDEX jobs_key ON jobs (key) WHERE key IS NOT NULL;
CREATE INDEX jobs_long ON jobs (version - trimmed_seq) WHERE version - trimmed_seq > 3;

CREATE TABLE events (
    job_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    source TEXT,
    "to" TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT,
    token INTEGER NOT NULL,
    flag TEXT NOT NULL,
    details TEXT,
    digest BLOB NOT NULL,
    PRIMARY KEY (job_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE tags (
    tag TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (tag, job_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_job ON tags (job_id);

CREATE TABLE keys (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    content BLOB NOT NULL,
    job_id TEXT NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX keys_name ON keys (scope, name);
CREATE INDEX keys_until ON keys (until_ms);

CREATE TABLE refusals (
    job_id TEXT NOT NULL,
    token INTEGER NOT NULL,
    session TEXT NOT NULL,
    wanted TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (job_id, token)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    worker TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    beat_ms INTEGER NOT NULL,
    lease_s REAL NOT NULL,
    dead INTEGER NOT NULL,
    boot TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE leaders (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    boot TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE queues (name TEXT PRIMARY KEY, paused INTEGER NOT NULL, reason TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE limits (key TEXT PRIMARY KEY, most INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    spec BLOB NOT NULL,
    paused INTEGER NOT NULL,
    last_tick_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE ticks (schedule TEXT NOT NULL, at_ms INTEGER NOT NULL, PRIMARY KEY (schedule, at_ms))
    STRICT, WITHOUT ROWID;

-- Facts about the file as a whole: "audit" is the fingerprint of the key its trail is sealed with ('' for none).
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- How many jobs of a queue stand in a status, and how many came into it in a minute. Written in the same
-- transaction as the rows they count; `mainstay check` compares them with the rows.
CREATE TABLE tallies (
    queue TEXT NOT NULL,
    status TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (queue, status)
) STRICT, WITHOUT ROWID;
CREATE TABLE flow (
    minute INTEGER NOT NULL,
    status TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (minute, status)
) STRICT, WITHOUT ROWID;
"""

_V2 = """
-- What each job waits for. An edge is open (done = 0) until the job it points to settles or goes; the open ones alone
-- are indexed, so that a store in which nobody waits pays one look at an empty index per write.
CREATE TABLE waits (
    job_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    on_id TEXT NOT NULL,
    done INTEGER NOT NULL,
    PRIMARY KEY (job_id, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_on ON waits (on_id) WHERE done = 0;
-- Without it, the last members of a big group would walk over all that are done: 0.3 ms each at 10,000.
CREATE INDEX waits_open ON waits (job_id) WHERE done = 0;
CREATE INDEX jobs_group ON jobs ("group", id) WHERE "group" IS NOT NULL;
ALTER TABLE jobs ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;
"""

_V3 = """
-- Units of a job by status, to be counted and listed: a job may have a hundred thousand.
CREATE INDEX jobs_unit_status ON jobs (parent, status, id) WHERE parent IS NOT NULL;
"""

_V4 = """
-- Whose turn it is and who has waited longest are not the same: priorities. Without it, statistics read all that is
-- ready: 26 ms at 300,000. One more entry per job costs 2 % of a submit and a claim.
CREATE INDEX jobs_oldest ON jobs (queue, due_ms) WHERE lane = 1;
"""

_V5 = """
-- Which worker an engine belongs to, and who asked it to drain, since when.
ALTER TABLE sessions ADD COLUMN supervisor INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN draining_ms INTEGER;
ALTER TABLE sessions ADD COLUMN draining_by TEXT NOT NULL DEFAULT '';
-- Who paused or resumed a queue last, and when.
ALTER TABLE queues ADD COLUMN set_by TEXT NOT NULL DEFAULT '';
ALTER TABLE queues ADD COLUMN set_ms INTEGER;
-- Lists of one kind: batches and load tests are few among very many tasks. Tasks, which are nearly all, have no entry
-- here and pay nothing.
CREATE INDEX jobs_kind ON jobs (kind, id) WHERE kind <> 'task' AND parent IS NULL;
"""

_V6 = """
-- Lists by queue, status and name, in any combination. Without it, a queue with few jobs is looked for among all the
-- others: 88 jobs before 300,000 were not found in 200 ms.
CREATE INDEX jobs_listed ON jobs (queue, status, name, id) WHERE parent IS NULL AND session IS NULL;
-- What is held is in neither: of two indexes of all jobs, a claim and its end cost 9 % more, of these two nothing.
DROP INDEX jobs_status;
CREATE INDEX jobs_status ON jobs (status, id) WHERE parent IS NULL AND session IS NULL;
"""

_V7 = """
-- What each session offers: its queues and tasks, as JSON. Apart from the sessions, whose rows every beat writes whole.
CREATE TABLE offers (session TEXT PRIMARY KEY, offer TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- Jobs whose task a worker of their queue does not have, by task; `routes` lists what there may be, so that a claim
-- looks at one table that is nearly always empty.
CREATE INDEX jobs_routed ON jobs (queue, kind, name, rank) WHERE lane = 5;
CREATE TABLE routes (
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (queue, kind, name)
) STRICT, WITHOUT ROWID;
"""

_V8 = """
-- Fields of a session and of a queue's settings that have no column of their own, as JSON (`stores/records.py`).
ALTER TABLE sessions ADD COLUMN more TEXT;
ALTER TABLE queues ADD COLUMN more TEXT;
"""

#: Migration i brings a database from version i to i + 1. Landed entries never change. Programs of the version before
#: go on with what a migration leaves: `stores/compatibility.py` has the rule, docs/upgrades.md the recipe.
MIGRATIONS: tuple[str, ...] = (_V1, _V2, _V3, _V4, _V5, _V6, _V7, _V8)
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
