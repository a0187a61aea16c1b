"""The URL of a PostgreSQL store: the database, the schema and the timeouts.

    postgresql://user:password@host:5432/database?schema=mainstay

Our own options are removed from the URL; options of libpq that asyncpg supports (`sslmode`, `target_session_attrs`,
several hosts) are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlencode, urlsplit

import msgspec

from ....errors import InvalidInput, UnknownOption
from ....storage import duration_of, is_on, number_of, shown_url
from ...durability import Durability, check_durability
from .timeouts import LOCK_S

_OWN = (
    "schema",
    "auto_migrate",
    "pool",
    "connect_timeout",
    "lock_timeout",
    "retries",
    "listen",
    "durability",
)
_PASSED_ON = (
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "database",
    "passfile",
    "service",
    "sslmode",
    "sslcert",
    "sslkey",
    "sslrootcert",
    "sslcrl",
    "sslpassword",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "target_session_attrs",
    "krbsrvname",
    "gsslib",
    "application_name",
)
_HOST = re.compile(r"(?:\[[^\[\]]*\]|[^\[\]:]*)(?::[0-9]{0,5})?")
#: at most 40 characters: it is part of the names of channels, which have at most 63 bytes
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class PostgresAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL. Only `shown` may be displayed: the rest has the password."""

    shown: str
    """the URL without its secrets"""
    dsn: str
    """for the driver"""
    schema: str = "mainstay"
    """several applications may share a database"""
    auto_migrate: bool = False
    pool: int = 4
    """the most connections for statements; two more are for heartbeats and leadership, and one listens and holds
    locks"""
    connect_timeout_s: float = 5.0
    lock_timeout_s: float = LOCK_S
    """how long a statement waits for a lock of another transaction; see `timeouts.py`"""
    retries: int = 10
    """how often a call is sent again after the connection was lost"""
    listen: bool = True
    """False: use only features that work behind PgBouncer in transaction mode"""
    durability: Durability | None = None
    """None: as the server is configured"""

    def __repr__(self) -> str:
        return f"Address({self.shown!r}, schema={self.schema!r})"


def parse(url: str, options: Mapping[str, str]) -> PostgresAddress:
    """Parse a store URL and its options; refuses unknown options.

    >>> parse("postgresql://ann:secret@db/jobs", {"schema": "shop"})
    Address('postgresql://ann:***@db/jobs', schema='shop')
    """
    known = (*_OWN, *_PASSED_ON)
    for name in options:
        if name not in known:
            raise UnknownOption(name, known)
    shown = shown_url(url)
    parts = _split(url)
    if parts.fragment:
        raise InvalidInput("store", f"{shown!r}: a # ends a URL; write %23 for a # in a name or a password")
    if not parts.path.strip("/") and not {"dbname", "database", "service"} & options.keys():
        raise InvalidInput("store", f"{shown!r} does not name a database; write postgresql://user@host/database")
    passed_on = urlencode({name: value for name, value in options.items() if name in _PASSED_ON})
    head = url.partition("?")[0]
    return PostgresAddress(
        shown=shown,
        dsn=f"{head}?{passed_on}" if passed_on else head,
        schema=_schema(options.get("schema", "mainstay")),
        auto_migrate=is_on(options, "auto_migrate", default="off"),
        pool=number_of(options, "pool", 4, least=1, most=1000),
        connect_timeout_s=duration_of(options, "connect_timeout", "5s"),
        lock_timeout_s=duration_of(options, "lock_timeout", f"{LOCK_S}s"),
        retries=number_of(options, "retries", 10, least=0, most=1000),
        listen=is_on(options, "listen", default="on"),
        durability=check_durability(options["durability"]) if "durability" in options else None,
    )


def _split(url: str) -> SplitResult:
    """Refuse an invalid URL, without quoting it: it is not known where its password ends."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    hosts = [] if parts is None else parts.netloc.rpartition("@")[2].split(",")
    if parts is None or not all(map(_HOST.fullmatch, hosts)):
        raise InvalidInput(
            "store",
            "the URL has no valid host and port; write postgresql://user:password@host:5432/database, and "
            "%2F %3F %23 %40 %3A for / ? # @ : in a user name or a password",
        )
    return parts


def _schema(text: str) -> str:
    if not _SCHEMA.fullmatch(text) or text.startswith("pg_"):
        raise InvalidInput(
            "schema",
            f"{text!r}: a schema must have 1 to 40 of the characters a-z 0-9 _ and must not start with a digit or pg_",
        )
    return text
