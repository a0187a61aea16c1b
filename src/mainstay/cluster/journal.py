"""The journal of a cluster: what happened to nodes, managers and leads, as lines of JSON in a folder.

Files are named for the moment of their first entry, so that old ones can be dropped as a whole. An entry is appended
and flushed at once. A line that a crash has torn is skipped by readers, and the next entry begins on a new line.

>>> import tempfile
>>> from mainstay.clock import SystemClock
>>> folder = tempfile.TemporaryDirectory()
>>> journal = ClusterJournal(Path(folder.name), clock=SystemClock())
>>> journal.append("node_joined", "n1", "n1 joined with 4 cores", manager="m1").about
'n1'
>>> [entry.text for entry in journal.entries()]
['n1 joined with 4 cores']
>>> journal.close(); folder.cleanup()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..clock import Clock
from .status import JournalEntry

_PREFIX, _SUFFIX = "journal-", ".jsonl"
_DAY_MS = 86_400_000
#: characters of one text; a longer one is cut
_LONGEST_TEXT = 2000
#: the newest entries, which are kept in memory: they are asked for every second
_RECENT = 1000


class ClusterJournal:
    """The journal of one manager. It is written by one process. Without a folder it keeps the newest entries only, in
    memory.

    `kept_days`: older files are dropped. `file_bytes`: a file that has reached this size is followed by a new one, as
    is one that is a day old. `most_bytes`: if all files are larger than this, the oldest is dropped first.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        clock: Clock,
        kept_days: float = 30.0,
        file_bytes: int = 4 * 1024 * 1024,
        most_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.folder = folder
        self._clock = clock
        self._kept_ms = round(kept_days * _DAY_MS)
        self._file_bytes = file_bytes
        self._most_bytes = most_bytes
        self._file: BinaryIO | None = None
        self._began_ms = 0
        self._size = 0
        self._recent: deque[JournalEntry] | None = None
        """the newest entries, once they have been read"""

    def append(
        self, event: str, about: str, text: str, *, manager: str = "", cause: str = "", seconds: float | None = None
    ) -> JournalEntry:
        """Write an entry with the time of now, and return it."""
        now_ms = self._clock.now_ms()
        entry = JournalEntry(
            at_ms=now_ms,
            event=event,
            about=about,
            text=text[:_LONGEST_TEXT],
            manager=manager,
            cause=cause,
            seconds=seconds,
        )
        self._newest().append(entry)
        if self.folder is None:
            return entry
        line = msgspec.json.encode(entry) + b"\n"
        file = self._writable(now_ms)
        file.write(line)
        file.flush()
        self._size += len(line)
        return entry

    def entries(
        self, *, from_ms: int | None = None, until_ms: int | None = None, limit: int | None = None
    ) -> list[JournalEntry]:
        """The entries of a time range, oldest first: at or after `from_ms`, before `until_ms`; the newest `limit`, for
        which older files are not read."""
        recent = self._newest()
        # the files hold more than the memory only if it is full, and then only before its oldest entry
        enough = self.folder is None or len(recent) < _RECENT or (from_ms is not None and from_ms > recent[0].at_ms)
        enough = enough or (until_ms is None and limit is not None and limit <= _RECENT)
        found = (
            entry
            for entry in (reversed(recent) if enough else self._read_backwards(from_ms))
            if (from_ms is None or entry.at_ms >= from_ms) and (until_ms is None or entry.at_ms < until_ms)
        )
        return list(islice(found, limit))[::-1]

    def _newest(self) -> deque[JournalEntry]:
        if self._recent is None:
            found = reversed(list(islice(self._read_backwards(None), _RECENT)))
            self._recent = deque(found, maxlen=_RECENT)
        oldest_ms = self._clock.now_ms() - self._kept_ms
        while self._recent and self._recent[0].at_ms < oldest_ms:
            self._recent.popleft()
        return self._recent

    def close(self) -> None:
        """Close the file. The next entry opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _files_from(self, from_ms: int | None) -> list[Path]:
        files = self._files()
        # a file ends where the next begins; the clock may have been set back between them, by less than a day
        ends = [_began_ms(path) + _DAY_MS for path in files[1:]]
        return [
            path for path, end_ms in zip_longest(files, ends) if from_ms is None or end_ms is None or end_ms >= from_ms
        ]

    def _read_backwards(self, from_ms: int | None) -> Iterator[JournalEntry]:
        for path in reversed(self._files_from(from_ms)):
            yield from reversed(list(_entries_of(path)))

    def _files(self) -> list[Path]:
        if self.folder is None:
            return []
        found = [path for path in self.folder.glob(f"{_PREFIX}*{_SUFFIX}") if _began_ms(path) >= 0]
        return sorted(found, key=_began_ms)

    def _writable(self, now_ms: int) -> BinaryIO:
        if self._file is not None and not self._is_over(now_ms):
            return self._file
        self.close()
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        files = self._files()
        if files:
            self._began_ms, self._size = _began_ms(files[-1]), files[-1].stat().st_size
        if not files or self._is_over(now_ms):
            began_ms = now_ms if not files else max(now_ms, self._began_ms + 1)
            files.append(self.folder / f"{_PREFIX}{began_ms:015d}{_SUFFIX}")
            self._began_ms, self._size = began_ms, 0
        self._file = file = files[-1].open("ab")
        if self._size and not _ends_whole(files[-1]):
            file.write(b"\n")
            self._size += 1
        self._drop(files, now_ms)
        return file

    def _is_over(self, now_ms: int) -> bool:
        # after the clock was set back, entries follow in the newest file, whatever its name says
        return self._size >= self._file_bytes or now_ms - self._began_ms >= _DAY_MS

    def _drop(self, files: list[Path], now_ms: int) -> None:
        """Drop the oldest files; the newest stays."""
        sizes = [path.stat().st_size for path in files]
        for number, path in enumerate(files[:-1]):
            is_old = _began_ms(files[number + 1]) < now_ms - self._kept_ms
            if is_old or sum(sizes[number:]) > self._most_bytes:
                path.unlink(missing_ok=True)


def _entries_of(path: Path) -> Iterator[JournalEntry]:
    for line in path.read_bytes().splitlines():
        try:
            yield msgspec.json.decode(line, type=JournalEntry)
        except msgspec.MsgspecError:
            continue  # torn by a crash, or damaged: the rest is fine


def _began_ms(path: Path) -> int:
    digits = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return int(digits) if digits.isdigit() else -1


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


__all__ = ["ClusterJournal"]
