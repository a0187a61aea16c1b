"""Files as earlier versions left them."""

from __future__ import annotations

from pathlib import Path

import apsw

from mainstay.stores.sqlite import schema


def older_file(path: Path, *, version: int = 5) -> Path:
    """A database that an earlier version made, with nothing in it."""
    db = apsw.Connection(str(path))
    for step in schema.MIGRATIONS[:version]:
        db.execute(step)
    db.pragma("journal_mode", "WAL")
    db.pragma("application_id", schema.APPLICATION_ID)
    db.pragma("user_version", version)
    db.execute("INSERT INTO facts VALUES ('audit', '')")
    db.close()
    return path
