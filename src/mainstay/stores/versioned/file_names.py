"""The path of a key's value in a folder, and the keys of a folder in order.

Every part of a key becomes a name with a mark at its end: `+` for a folder, `@` for a value, so that a value `a` and a
value `a/b` can both exist. A capital letter becomes `%` and the small letter, because some file systems do not tell
`A` from `a`. Names have at most 255 bytes, so a part of 100 characters or more is cut: its first hundred become a
folder with the mark `~`.

>>> "/".join(path_of("jobs/V1/a.json"))
'jobs+/%v1+/a.json@'
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

_VALUE, _FOLDER, _BEGUN = "@", "+", "~"
_CUT = 100
#: file systems record the time of a change in ticks; a change younger than this may not be the last of its tick
_TICK_NS = 20_000_000
_MOST_SCANS = 4


def path_of(key: str) -> list[str]:
    """The names on the path to a key's value."""
    names: list[str] = []
    *folders, last = key.split("/")
    for part in folders:
        names += _cut(part, _FOLDER)
    return [*names, *_cut(last, _VALUE)]


def keys_in(folder: Path, *, prefix: str, after: str) -> Iterator[str]:
    """The keys below a folder in byte order. Folders that can contain none of them are not read."""
    yield from _walk(str(folder), "", prefix, after)


def _cut(part: str, mark: str) -> Iterator[str]:
    # a part of just this length is cut, too: all keys with the same beginning are in one folder, in order
    while len(part) >= _CUT:
        yield _written(part[:_CUT]) + _BEGUN
        part = part[_CUT:]
    yield _written(part) + mark


def _written(text: str) -> str:
    return re.sub("[A-Z]", lambda match: "%" + match[0].lower(), text)


def _read(name: str) -> str:
    return re.sub("%([a-z])", lambda match: match[1].upper(), name)


def _walk(folder: str, begin: str, prefix: str, after: str) -> Iterator[str]:
    entries: list[tuple[str, str]] = []
    for name in _names(folder):
        text = begin + _read(name[:-1])
        if name.endswith(_VALUE):
            if text > after and text.startswith(prefix):
                entries.append((text, ""))
        elif name.endswith((_FOLDER, _BEGUN)):
            inner = text + "/" if name.endswith(_FOLDER) else text
            wanted = inner.startswith(prefix) or prefix.startswith(inner)
            if wanted and (inner > after or after.startswith(inner)):
                entries.append((inner, f"{folder}/{name}"))
    for text, path in sorted(entries):
        if path:
            yield from _walk(path, text, prefix, after)
        else:
            yield text


def _names(folder: str) -> set[str]:
    """The names in a folder. Some file systems may skip or repeat a name that is given to another file during the
    read, so a folder that changed is read again."""
    names: set[str] = set()
    for _ in range(_MOST_SCANS):
        changed_ns, now_ns = os.stat(folder).st_mtime_ns, time.time_ns()
        names.update(os.listdir(folder))
        if changed_ns == os.stat(folder).st_mtime_ns and abs(now_ns - changed_ns) > _TICK_NS:
            break
    return names
