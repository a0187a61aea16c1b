"""The rule of rolling upgrades: which programs can use which stored schema.

A schema has two numbers: its `version`, which each migration raises by one, and `compatible_from`, the oldest version
of programs that can read and write it. A program opens a newer schema if `compatible_from` is not above its own
version.

There are two kinds of migration:

- *Expand* adds: a table, an index, a column that may be NULL or has a default. Programs of the version before do not
  notice it. Most migrations are of this kind, and need no mark.
- *Contract* removes or changes what earlier programs use. It comes a release after the last program that used it, and
  says so in a comment of its own: `-- compatible from 8` (programs of version 8 and later do without it). The number is
  below the migration's own version: programs of the version before must always be able to work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import SchemaTooNew

#: Programs of version 6 were the first that follow this rule. Older ones refuse every newer schema.
FIRST = 6

_CONTRACT = re.compile(r"^-- compatible from (\d+)$", re.MULTILINE)


def read_migrations(folder: Path) -> tuple[str, ...]:
    """The SQL scripts of a folder, by the number that their names start with. Landed scripts never change.

    Script i migrates a schema from version i - 1 to i. Raises `ImportError` if one is missing: an incomplete
    installation must not pass for a program of an older version.
    """
    paths = sorted(folder.glob("*.sql"))
    numbers = [path.name.partition("_")[0] for path in paths]
    if not paths or numbers != [f"{number:03}" for number in range(1, len(paths) + 1)]:
        raise ImportError(f"{folder} must have the migrations 001, 002 ..., but has {numbers}; install Mainstay again")
    return tuple(path.read_text(encoding="utf-8") for path in paths)


def compatible_from(migrations: Sequence[str]) -> int:
    """The oldest version of programs that can work with what these migrations leave.

    >>> expand, contract = "ALTER TABLE t ADD COLUMN x", "-- compatible from 8\\nALTER TABLE t DROP COLUMN y"
    >>> seven = ("CREATE TABLE t (y)",) * 7
    >>> compatible_from(seven), compatible_from((*seven, expand)), compatible_from((*seven, expand, contract))
    (6, 6, 8)
    """
    oldest = min(FIRST, len(migrations))
    for version, script in enumerate(migrations, start=1):
        for found in _CONTRACT.findall(script):
            if int(found) >= version:
                raise AssertionError(f"migration {version} shuts out programs of version {version - 1}")
            oldest = max(oldest, int(found))
    return oldest


def refuse_newer(place: str, *, version: int, compatible: int, known: int) -> None:
    """Raise `SchemaTooNew` unless a program that knows the versions up to `known` can work with the schema there."""
    if version > known and compatible > known:
        raise SchemaTooNew(
            f"{place} has schema version {version}, which programs from version {compatible} on can use; this Mainstay "
            f"knows up to {known}: upgrade Mainstay in this environment; nothing was changed"
        )
