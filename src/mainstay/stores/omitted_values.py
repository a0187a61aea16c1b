"""Values that a list leaves out: a payload, result or checkpoint that is longer than the limit of the query.

In the row such a value is replaced by a mark that holds its size. The mark begins with the one byte that MessagePack
never uses, so no stored value looks like it.
"""

from __future__ import annotations

import msgspec

from ..model import Job

#: the fields that may be large
OMITTED_FIELDS = ("payload", "result", "checkpoint")
MARK = b"\xc1"


def left_out(size: int) -> bytes:
    """The mark for a value of this size in bytes.

    >>> size_left_out(left_out(70_000)), size_left_out(b"a value")
    (70000, None)
    """
    return MARK + str(size).encode()


def size_left_out(value: bytes | None) -> int | None:
    """The size of a value that was left out; None for a value that is present, or that the job does not have."""
    if value is None or value[:1] != MARK:
        return None
    digits = value[1:]
    return int(digits) if digits.isdigit() and len(digits) < 20 else None


def shortened(job: Job, most_bytes: int | None) -> Job:
    """The job with each longer value left out. For stores that read a row as a whole."""
    if most_bytes is None:
        return job
    found: dict[str, bytes] = {}
    for name in OMITTED_FIELDS:
        value: bytes | None = getattr(job, name)
        if value is not None and len(value) > most_bytes:
            found[name] = left_out(len(value))
    return msgspec.structs.replace(job, **found) if found else job


__all__ = ["MARK", "OMITTED_FIELDS", "left_out", "shortened", "size_left_out"]
