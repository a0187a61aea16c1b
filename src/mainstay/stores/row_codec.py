"""Jobs as rows: what the adapters that keep one column per field have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Generic, TypeVar

import msgspec

from ..lifecycle import Event
from ..model import ErrorInfo, Job, Options, Progress
from .change_check import takes_away
from .port import SealedChange

T = TypeVar("T")
S = TypeVar("S", bound=bytes | str)

JOB_FIELDS = Job.__struct_fields__
EVENT_FIELDS = Event.__struct_fields__
#: The columns that a change writes. The others are fixed at submit, reported by the holder, or kept by trimming.
CHANGED = (
    "priority",
    "status",
    "reason",
    "version",
    "token",
    "session",
    "starts",
    "failures",
    "crashes",
    "releases",
    "losses",
    "changed_ms",
    "due_ms",
    "claimed_ms",
    "started_ms",
    "settled_ms",
    "expires_ms",
    "extra_ms",
    "error",
    "result",
    "head",
    "lane",
    "rank",
)

_MOST = 256
_WIDTH = len(JOB_FIELDS)
_OPTIONS, _ERROR, _PROGRESS = (JOB_FIELDS.index(name) for name in ("options", "error", "progress"))
_CHANGED_ERROR = CHANGED.index("error")
_changed = itemgetter(*(JOB_FIELDS.index(name) for name in CHANGED))
_as_tuple = msgspec.structs.astuple
_encode_json = msgspec.json.Encoder().encode
_decode_error = msgspec.json.Decoder(ErrorInfo).decode
_decode_progress = msgspec.json.Decoder(Progress).decode


class OfOptions(Generic[T]):
    """A function of options that remembers its last results: jobs submitted alike share their options.

    >>> from mainstay.model import Options
    >>> tags = OfOptions(lambda options: options.tags)
    >>> tags(Options(tags=("red",)))
    ('red',)
    """

    def __init__(self, make: Callable[[Options], T]) -> None:
        self._make = make
        self._known: dict[int, tuple[Options, T]] = {}

    def __call__(self, options: Options) -> T:
        known = self._known.get(id(options))
        if known is not None:
            return known[1]
        value = self._make(options)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[id(options)] = (options, value)  # a reference keeps the id from being reused
        return value


class OptionsCodec(Generic[S]):
    """Encodes and decodes options as an adapter stores them, and remembers the last ones."""

    def __init__(self, encode: Callable[[Options], S], decode: Callable[[S], Options]) -> None:
        self.encode: OfOptions[S] = OfOptions(encode)
        self._decode = decode
        self._known: dict[S, Options] = {}

    def decode(self, stored: S) -> Options:
        known = self._known.get(stored)
        if known is None:
            known = self._decode(stored)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[stored] = known
        return known


class RowCodec(Generic[S]):
    """A job as the values of its columns, in the order of the fields. Error and progress are stored as JSON."""

    def __init__(self, encode_options: Callable[[Options], S], decode_options: Callable[[S], Options]) -> None:
        self._options = OptionsCodec(encode_options, decode_options)
        self._decoders: tuple[tuple[int, Callable[[Any], object], object], ...] = (
            (_OPTIONS, decode_options, Options()),
            (_ERROR, _decode_error, None),
            (_PROGRESS, _decode_progress, None),
        )

    def values(self, job: Job) -> list[Any]:
        values = list(_as_tuple(job))
        values[_OPTIONS] = self._options.encode(job.options)
        if job.error is not None:
            values[_ERROR] = json_text(job.error)
        if job.progress is not None:
            values[_PROGRESS] = json_text(job.progress)
        return values

    def decoded(self, stored: Sequence[Any]) -> list[Any]:
        """The fields of a job. Further values may follow in `stored`. Raises a `msgspec.MsgspecError` for a damaged
        value."""
        row = list(stored[:_WIDTH])
        row[_OPTIONS] = self._options.decode(row[_OPTIONS])
        if row[_ERROR] is not None:
            row[_ERROR] = _decode_error(row[_ERROR])
        if row[_PROGRESS] is not None:
            row[_PROGRESS] = _decode_progress(row[_PROGRESS])
        return row

    def readable(self, stored: Sequence[Any]) -> tuple[list[Any], dict[str, str]]:
        """The fields of a job that may be damaged, with harmless values for what cannot be decoded; and by column, what
        is wrong with it."""
        row = list(stored[:_WIDTH])
        damaged: dict[str, str] = {}
        for at, decode, instead in self._decoders:
            if row[at] is None:
                continue
            try:
                row[at] = decode(row[at])
            except (msgspec.MsgspecError, UnicodeError) as error:
                text = row[at].hex() if isinstance(row[at], bytes) else str(row[at])
                damaged[JOB_FIELDS[at]] = f"{error} (stored: {text[:200]})"
                row[at] = instead
        return row, damaged


def json_text(value: ErrorInfo | Progress | None) -> str | None:
    """An error or a progress as it is stored."""
    return None if value is None else _encode_json(value).decode()


def changed_values(job: Job) -> list[Any]:
    """The values of `CHANGED`."""
    values = list(_changed(_as_tuple(job)))
    if job.error is not None:
        values[_CHANGED_ERROR] = json_text(job.error)
    return values


def expected_progress_ms(change: SealedChange) -> int | None:
    """The time of the last progress that the row must still have: -1 for none yet; None if any will do."""
    if not takes_away(change):
        return None
    return -1 if change.before.progress_ms is None else change.before.progress_ms
