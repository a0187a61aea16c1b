"""Where a watcher is in a run, and what it gets next. No I/O.

A watcher that is told the header of the run begins to count: once at first, and again after another leader has taken
over, or if it was away for so long that what it has cannot be told from what it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from ...errors import InvalidInput
from ..stats.model import Header, Moment, WorkflowResult
from .live_history import HistoryEntry, LiveHistory, joined

#: windows that are joined for a client that is behind; to join more would delay the others, and the sum of all is there
_JOINED = 150
_MARK = re.compile(r"(\d{1,15})-(\d{1,15})-(\d{1,9})(?:-end(\d{1,9}))?", re.ASCII)


class LiveMark(NamedTuple):
    """What a watcher has received: the id of an event.

    >>> LiveMark(3, 120, 1).text, LiveMark.read("3-120-1-end7")
    ('3-120-1', LiveMark(epoch=3, windows=120, results=1, ended=7))
    """

    epoch: int = 0
    """of the leader"""
    windows: int = 0
    """those with lower numbers"""
    results: int = 0
    """of workflows"""
    ended: int | None = None
    """the version of the job whose end it has; None: it does not have the end"""

    @property
    def text(self) -> str:
        end = "" if self.ended is None else f"-end{self.ended}"
        return f"{self.epoch}-{self.windows}-{self.results}{end}"

    @classmethod
    def read(cls, text: str) -> LiveMark:
        match = _MARK.fullmatch(text)
        if match is None:
            raise InvalidInput("Last-Event-ID", f"{text[:100]!r} is not an id of this stream, like 1-20-0")
        epoch, windows, results, ended = match.groups()
        return cls(int(epoch), int(windows), int(results), None if ended is None else int(ended))


class LiveUpdate(NamedTuple):
    """What a watcher gets: some of these."""

    header: Header | None = None
    """the watcher begins to count, from zero"""
    entry: HistoryEntry | None = None
    """a window, or several as one"""
    moment: Moment | None = None
    """the same, unpacked"""
    result: WorkflowResult | None = None
    lines: tuple[tuple[int, str], ...] = ()
    """what steps have printed, with the numbers of their processes"""
    over: bool = False
    """the leader has ended the load, or left it to another one"""


class LiveCursor:
    """One watcher. `mark` is what it has.

    At first it gets in detail what is kept; `caught_up` says when it has that. From then on it may take what it has
    missed as one window."""

    def __init__(self, mark: LiveMark | None = None) -> None:
        self.mark = mark
        self._upto: tuple[int, int] | None = None

    def caught_up(self, history: LiveHistory) -> bool:
        """Whether it has what was kept when it came."""
        if self._upto is None:
            self._upto = (history.epoch, history.windows)
        mark = self.mark
        return mark is not None and (mark.epoch, mark.windows) >= self._upto

    def pending(self, history: LiveHistory) -> list[HistoryEntry] | None:
        """The entries that it lacks; None: it has to begin again."""
        mark = self.mark
        if mark is None or mark.epoch < history.epoch:
            return None
        # this history may know less than the watcher: it is from another server
        return history.after(mark.windows) if mark.epoch == history.epoch else []

    def lacks_results(self, history: LiveHistory) -> bool:
        """Whether it lacks the result of a workflow."""
        mark = self.mark
        return mark is not None and mark.epoch == history.epoch and mark.results < len(history.results)

    def updates(self, history: LiveHistory, *, as_one: bool = False, at_a_time: int = 1) -> Iterator[LiveUpdate]:
        """What it lacks now, with `at_a_time` windows in each, or all `as_one`. The mark has moved when an update is
        passed on."""
        entries = self.pending(history)
        if entries is None:
            is_new = self.mark is None or self.mark.epoch != history.epoch
            yield self._begin(history)
            entries = list(history.entries()) if is_new else [history.total()]
        elif as_one and len(entries) > _JOINED:
            yield self._begin(history)
            entries = [history.total()]
        if entries:
            groups = [entries] if as_one else _groups(entries, at_a_time)
            for entry in map(joined, groups):
                self.mark = self._marked(history)._replace(windows=entry.end)
                yield LiveUpdate(entry=entry)
        yield from self._results(history)

    def _begin(self, history: LiveHistory) -> LiveUpdate:
        self.mark = LiveMark(history.epoch, 0, 0 if self.mark is None else self.mark.results)
        return LiveUpdate(header=history.header)

    def _results(self, history: LiveHistory) -> Iterator[LiveUpdate]:
        while self.lacks_results(history):
            mark = self._marked(history)
            self.mark = mark._replace(results=mark.results + 1)
            yield LiveUpdate(result=history.results[mark.results])

    def _marked(self, history: LiveHistory) -> LiveMark:
        return self.mark or LiveMark(history.epoch)


def _groups(entries: list[HistoryEntry], at_a_time: int) -> Iterator[list[HistoryEntry]]:
    for _, group in groupby(entries, key=lambda entry: entry.begin // at_a_time):
        yield list(group)


__all__ = ["LiveCursor", "LiveMark", "LiveUpdate"]
