"""What is kept of a run while it is watched, so that a watcher may come at any time: the last minute whole, an hour in
sums of ten seconds, and the sum of what was before. Without the phases of the calls.

Windows are counted by the leader that passes them on, so a number means the same to every server. A leader that takes
over counts its own: it begins with the sum of the run so far. No I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec
import zstandard
from msgspec.structs import replace

from ..stats.model import Header, Moment, Window, WorkflowResult
from ..stats.sums import WindowSum
from ..stats.tally import KINDS

#: windows that are kept whole: a minute
WHOLE = 600
#: windows in a sum: ten seconds; and the sums that are kept: an hour
SUMMED, SUMS = 100, 360
#: bytes of windows in one answer: the bus takes 1 MiB
_ANSWER_BYTES = 700 * 1024

#: the name of all steps of a workflow together
ALL_STEPS = "(all steps)"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Moment).decode
_compress = zstandard.ZstdCompressor(level=1).compress
_decompress = zstandard.ZstdDecompressor().decompress


class HistoryEntry(msgspec.Struct, frozen=True, array_like=True):
    """One or several windows as one. Packed: an hour of ten steps with 1,000 requests a second each takes 4 MB, instead
    of 61 MB uncompressed and with phases."""

    begin: int
    """the number of its first window, from 0"""
    end: int
    """the number after its last"""
    packed: bytes

    @property
    def moment(self) -> Moment:
        """The sum of the windows, and the state of the run at the end of the last one."""
        try:
            return _decode(_decompress(self.packed))
        except zstandard.ZstdError as error:
            raise msgspec.DecodeError(f"a window of the history cannot be unpacked: {error}") from None


class LiveQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Asks a leader for what it has passed on."""

    epoch: int = 0
    """an older leader does not answer; 0: any"""
    windows: int = 0
    """those with lower numbers are known"""
    results: int = 0
    """the same of the results of workflows"""


class LiveAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the history of a leader."""

    epoch: int
    header: Header
    from_start: bool
    """the entries begin with the first window, whatever was asked for"""
    entries: list[HistoryEntry]
    more: bool
    """ask again, for what follows these entries"""
    results: list[WorkflowResult] = []
    over: bool = False


class _Sum:
    """Several windows that follow each other."""

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.windows = WindowSum(most=KINDS)
        self._last: Moment | None = None
        self._entry: HistoryEntry | None = None

    def add(self, end: int, moment: Moment) -> None:
        self.windows.add(moment.window)
        self.end, self._last, self._entry = end, moment, None

    def entry(self) -> HistoryEntry:
        if self._entry is None:
            assert self._last is not None
            moment = replace(self._last, window=self.windows.window())
            self._entry = HistoryEntry(self.begin, self.end, _packed(moment))
        return self._entry


class LiveHistory:
    """The windows of one leader, in order, and the results of workflows.

    >>> from mainstay.load.stats.model import Trust
    >>> header = Header(run="j1", name="shop", started_ms=0, version="1", processes=1, duration_s=None)
    >>> history = LiveHistory(header, whole=2, summed=2)
    >>> for bucket in range(5):
    ...     history.add(Moment(window=Window(bucket=bucket, begun=1), elapsed_s=0.1, phase="", trust=Trust()))
    >>> [(entry.begin, entry.end) for entry in history.entries()]
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    >>> [entry.begin for entry in history.after(3)], history.after(1)
    ([3, 4], None)
    """

    def __init__(
        self, header: Header, *, epoch: int = 0, whole: int = WHOLE, summed: int = SUMMED, sums: int = SUMS
    ) -> None:
        self.header = header
        self.epoch = epoch
        self.results: list[WorkflowResult] = []
        self.over = False
        self._whole: deque[HistoryEntry] = deque()
        self._sums: deque[HistoryEntry] = deque()
        self._open: _Sum | None = None
        self._before: _Sum | None = None
        self._total = _Sum(0)
        self._most, self._summed, self._most_sums = whole, summed, sums

    @property
    def windows(self) -> int:
        """The number after the last window."""
        return self._total.end

    @property
    def requests(self) -> int:
        """How many there were."""
        return sum(step.ok.count + step.failed.count for step in self._total.windows.steps.values())

    def add(self, moment: Moment, *, number: int | None = None) -> None:
        """Add a window. `number`: of this window, if windows before it are missing."""
        begin = self.windows if number is None else number
        moment = replace(moment, window=_without_phases(moment.window))
        self._append(HistoryEntry(begin, begin + 1, _packed(moment)), moment)

    def add_entry(self, entry: HistoryEntry) -> None:
        """Add an entry of another history; one that is known is left out."""
        if entry.begin >= self.windows:
            self._append(entry, entry.moment)

    def entries(self) -> Iterator[HistoryEntry]:
        """All that is kept, oldest first: coarse, then whole."""
        for each in (self._before, *self._sums, self._open):
            if each is not None:
                yield each if isinstance(each, HistoryEntry) else each.entry()
        yield from self._whole

    def after(self, windows: int) -> list[HistoryEntry] | None:
        """What follows the windows with lower numbers; None: that cannot be told apart any more."""
        if self._whole and windows >= self._whole[0].begin:
            found = [each for each in self._whole if each.begin >= windows]
            before = len(self._whole) - len(found) - 1
            return found if before < 0 or self._whole[before].end <= windows else None
        entries = list(self.entries())
        if any(each.begin < windows < each.end for each in entries):
            return None
        return [each for each in entries if each.begin >= windows]

    def total(self) -> HistoryEntry:
        """The sum of all windows. There is at least one."""
        return self._total.entry()

    def answer(self, query: LiveQuery, *, most_bytes: int = _ANSWER_BYTES) -> LiveAnswer:
        """The answer of a leader: as much as fits into a message."""
        from_start = query.windows == 0 or query.epoch != self.epoch
        entries = list(self.entries()) if from_start else self.after(query.windows)
        if entries is None:
            # to send an hour again would not bring its detail back
            entries, from_start = [self.total()], True
        chosen: list[HistoryEntry] = []
        size = 0
        for each in entries:
            entry = smaller(each) if len(each.packed) > most_bytes else each
            size += len(entry.packed)
            if chosen and size > most_bytes:
                break
            chosen.append(entry)
        more = len(chosen) < len(entries)
        return LiveAnswer(
            epoch=self.epoch,
            header=self.header,
            from_start=from_start,
            entries=chosen,
            more=more,
            results=[] if more else self.results[query.results :],
            over=self.over and not more,
        )

    def _append(self, entry: HistoryEntry, moment: Moment) -> None:
        self._total.add(entry.end, moment)
        self._whole.append(entry)
        while len(self._whole) > self._most:
            self._fold(self._whole.popleft())

    def _fold(self, entry: HistoryEntry) -> None:
        opened = self._open
        is_sum = entry.end - entry.begin >= self._summed
        if opened is not None and (is_sum or entry.begin // self._summed != opened.begin // self._summed):
            self._close(opened.entry())
            opened = self._open = None
        if is_sum:
            self._close(entry)
            return
        if opened is None:
            opened = self._open = _Sum(entry.begin)
        opened.add(entry.end, entry.moment)

    def _close(self, entry: HistoryEntry) -> None:
        self._sums.append(entry)
        while len(self._sums) > self._most_sums:
            oldest = self._sums.popleft()
            if self._before is None:
                self._before = _Sum(oldest.begin)
            self._before.add(oldest.end, oldest.moment)


def _packed(moment: Moment) -> bytes:
    return _compress(_encode(moment))


def _without_phases(window: Window) -> Window:
    """They take most of the room, and no live view shows them."""
    return replace(window, steps=[replace(step, phases={}) for step in window.steps])


def joined(entries: Sequence[HistoryEntry]) -> HistoryEntry:
    """Entries that follow each other, as one."""
    if len(entries) == 1:
        return entries[0]
    whole = _Sum(entries[0].begin)
    for each in entries:
        whole.add(each.end, each.moment)
    return whole.entry()


def smaller(entry: HistoryEntry) -> HistoryEntry:
    """An entry that is too large for a message: its totals are kept, and the steps of each workflow are one."""
    moment = entry.moment
    return HistoryEntry(entry.begin, entry.end, _packed(replace(moment, window=_by_workflow(moment.window))))


def _by_workflow(window: Window) -> Window:
    summed = WindowSum(most=KINDS)
    steps = [replace(step, step=ALL_STEPS, examples={}) for step in window.steps]
    summed.add(Window(bucket=window.bucket, width=window.width, steps=steps))
    return replace(window, steps=summed.window().steps, checks=[], metrics=[], examples={}, health={})


__all__ = ["ALL_STEPS", "HistoryEntry", "LiveAnswer", "LiveHistory", "LiveQuery", "joined", "smaller"]
