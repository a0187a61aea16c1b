"""SQLite: the default store. One machine, many processes; a call that returns is durable.

- `store.py` implements the port; `engine.py` has connections and the group commit; `turnstile.py` the writers' queue
- `schema.py` and `migrations/` have the tables; `rows.py` their values; `damaged_text.py` rows with invalid text
- `changes.py`, `selection.py`, `waits.py`, `directory.py`, `retention.py`, `queries.py`, `index_pages.py`, `audit.py`
  have the statements, by purpose
- `liveness.py` has the session locks, `wake.py` the wake sockets, `errors.py` and `path_check.py` the refusals
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...clock import Clock, seconds
from ...errors import InvalidInput, StoreError, UnknownOption
from ...lifecycle import Chain
from ..port import JobStore
from .store import SqliteStore

_OPTIONS = ("busy_timeout", "durable", "create", "migrate")


async def open_sqlite(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore:
    """Open `sqlite:///relative.db` or `sqlite:////absolute.db`.

    Options: `busy_timeout` (how long to wait for other writers, default 10s), `durable` (default yes; no is faster, but
    a power cut may lose the last writes), `create` (default yes; no refuses a missing file), `migrate` (default yes; no
    opens a file of an older version for reading only).
    """
    for name in options:
        if name not in _OPTIONS:
            raise UnknownOption(name, _OPTIONS)
    path = path_of(url)
    return await asyncio.to_thread(
        _open,
        path,
        create=_yes(options, "create"),
        clock=clock,
        chain=chain,
        busy_timeout_s=seconds(options.get("busy_timeout", "10s"), field="busy_timeout"),
        durable=_yes(options, "durable"),
        migrates=_yes(options, "migrate"),
    )


def path_of(url: str) -> Path:
    """The file of a URL.

    >>> path_of("sqlite:///jobs.db?durable=no")
    PosixPath('jobs.db')
    """
    if "#" in url:
        raise InvalidInput("store", f"{url!r}: a # ends the path of a URL; write %23 if the file's name has one")
    parts = urlsplit(url)
    path = Path(unquote(parts.path.removeprefix("/")))
    if path.name == ":memory:":
        raise InvalidInput("store", f"{url!r} would be a file of that name; for a store in memory use memory:")
    if parts.netloc or not path.name:
        raise InvalidInput("store", f"{url!r} does not name a file; write sqlite:///jobs.db, or sqlite:////srv/jobs.db")
    return path


def _open(
    path: Path, *, create: bool, clock: Clock, chain: Chain, busy_timeout_s: float, durable: bool, migrates: bool
) -> SqliteStore:
    path = path.absolute()
    if not create and not path.exists():
        raise StoreError(f"there is no database {path}; check the path")
    return SqliteStore(
        path, clock=clock, chain=chain, busy_timeout_s=busy_timeout_s, durable=durable, migrates=migrates
    )


def _yes(options: dict[str, str], name: str) -> bool:
    value = options.get(name, "yes").lower()
    if value not in ("yes", "no"):
        raise InvalidInput(name, f"{value!r} is neither yes nor no")
    return value == "yes"


__all__ = ["SqliteStore", "open_sqlite"]
