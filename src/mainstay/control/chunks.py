"""A list that is stored a chunk at a time: an error of one chunk, in terms of the whole list."""

from __future__ import annotations

import re

from ..errors import InvalidInput, MainstayError, RequestRefused, ServerUnreachable, StoreError

_STORED = "the {n} jobs before this chunk are stored; submit the rest from there"
_PERHAPS = "the {n} jobs before this chunk are stored, and this chunk may be; check before you submit it again"
#: errors after which the write may still have happened
_UNSURE = (StoreError, ServerUnreachable)
_INDEXED = re.compile(r"\A(jobs|requests)\[(\d+)\]")


def note_stored(error: MainstayError, n: int) -> None:
    """Add how many jobs are stored, if any are."""
    if n:
        error.add_note((_PERHAPS if isinstance(error, _UNSURE) else _STORED).format(n=n))


def move_index(error: MainstayError, before: int) -> None:
    """Name the job by its place in the whole list; `before` jobs came before the chunk.

    >>> error = InvalidInput("jobs[2].queue", "must be text")
    >>> move_index(error, 1000)
    >>> error.field, str(error)
    ('jobs[1002].queue', 'jobs[1002].queue: must be text')
    """

    def moved(text: str) -> str:
        return _INDEXED.sub(lambda match: f"{match[1]}[{int(match[2]) + before}]", text)

    if not before:
        return
    error.args = (moved(str(error)),)
    if isinstance(error, InvalidInput | RequestRefused) and error.field is not None:
        error.field = moved(error.field)


__all__ = ["move_index", "note_stored"]
