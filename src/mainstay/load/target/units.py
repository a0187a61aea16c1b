"""Parse sizes and shares."""

from __future__ import annotations

import re

from ...errors import InvalidInput

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(b|kb|mb|gb|kib|mib|gib)?", re.IGNORECASE)
_BYTES = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
#: a response is built in memory
LARGEST = 100 * 1000**2


def size_of(value: str | int, *, field: str) -> int:
    """Bytes.

    >>> size_of("1KB", field="size"), size_of("2KiB", field="size"), size_of(512, field="size")
    (1000, 2048, 512)
    """
    found = _SIZE.fullmatch(str(value).strip())
    if found is None:
        raise InvalidInput(field, f"{value!r} is not a size; write it like 512, '1KB' or '2MiB'")
    number, unit = found.groups()
    total = round(float(number) * _BYTES[(unit or "b").lower()])
    if total > LARGEST:
        raise InvalidInput(field, f"{value!r} is too big; at most 100MB")
    return total


def share_of(value: str | float, *, field: str) -> float:
    """A share, from 0 to 1.

    >>> share_of("2%", field="errors"), share_of(0.5, field="errors")
    (0.02, 0.5)
    """
    text = str(value).strip()
    number, percent, rest = text.partition("%")
    try:
        found = float(number) / (100 if percent else 1)
    except ValueError:
        found = -1.0
    if rest or not 0 <= found <= 1:
        raise InvalidInput(field, f"{value!r} is not a share; write it like '2%' or 0.02")
    return found
