"""The PostgreSQL schema: the scripts of `migrations/`, and the functions of `sql/` that go with the newest of them.

There is one column per field of `Job` and `Event`. The widest columns come first and those of variable length last, so
that no row is padded. Ids are `uuid`: 16 bytes in the row and in every index. Text sorts by its bytes (`COLLATE "C"`),
as Python sorts it. Partial indexes hold only unfinished work, so a claim costs the same with a thousand and with ten
million stored jobs. `settled_ms IS NULL` is the stored form of "unsettled"; `lane` that of "ready".

Every statement of this adapter names its tables as `mainstay.jobs` and so on, whatever the schema is called; `placed`
inserts the real name. A search path would not work: behind PgBouncer it belongs to the previous client of the
connection, and in a user's own transaction it belongs to the user.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import msgspec

from ....model import AWAITS_MS, Options, Settings
from ...compatibility import read_migrations

_FOLDER = Path(__file__).parent
#: the first line of a migration that cannot run in a transaction
OUTSIDE = "-- outside a transaction"
MIGRATIONS = read_migrations(_FOLDER / "migrations")
VERSION = len(MIGRATIONS)

_OURS = re.compile(r"\bmainstay\.(?=[a-z_])")


@lru_cache(maxsize=4096)
def placed(sql: str, schema: str) -> str:
    """A statement with the real name of the schema in place of `mainstay`.

    >>> placed("SELECT count(*) FROM mainstay.jobs", "billing")
    'SELECT count(*) FROM "billing".jobs'
    """
    return _OURS.sub(lambda _: f"{quoted(schema)}.", sql)


def quoted(name: str) -> str:
    """A name as an SQL identifier, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def function_text(name: str) -> str:
    """The declaration of one function."""
    return (_FOLDER / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def functions() -> str:
    """All functions of this version as one script of `CREATE OR REPLACE`. Every migration replaces them: they belong to
    the version as the tables do."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((_FOLDER / "sql").glob("*.sql"))]
    return "\n".join([_submit_defaults(), *texts])


def _submit_defaults() -> str:
    """The function that gives `submit` in SQL the defaults that a submit in Python has."""
    settings = Settings()
    defaults = {
        "options": Options(),
        "boost_ms": round(settings.priority_boost_s * 1000),
        "key_ttl_ms": round(settings.key_ttl_s * 1000),
        "payload_limit": settings.payload_limit,
        "awaits_ms": AWAITS_MS,
    }
    text = msgspec.json.encode(defaults).decode()
    return (
        "CREATE OR REPLACE FUNCTION mainstay.submit_defaults() RETURNS jsonb LANGUAGE sql IMMUTABLE AS $defaults$\n"
        f"    SELECT '{text}'::jsonb\n$defaults$;\n"
    )
