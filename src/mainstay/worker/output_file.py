"""The kept output of one attempt of a job: its last 64 KiB, in two files of a ring.

    FOLDER/ID.TOKEN        a header, then the newest bytes
    FOLDER/ID.TOKEN.old    the bytes before them

Every byte has a position, counted from the first byte that the attempt printed, so that a reader notices what it has
missed. A line is cut at 8 KiB, and an attempt keeps 256 KiB a second: of what it prints beyond that, the newest lines
are kept, and a line in the output says how many bytes were dropped.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..errors import InvalidInput

#: bytes of output that a reader gets at most
TAIL_BYTES = 64 * 1024
_SEGMENT_BYTES = 64 * 1024
_LINE_BYTES = 8 * 1024
_SECOND_BYTES = 256 * 1024
#: bytes of the newest lines that wait for the next second
_LATE_BYTES = 16 * 1024
#: a text without a line break waits for the rest of its line up to this length
_BUFFER_BYTES = 1024
#: mark, position of the first byte, bytes that were dropped so far
_HEADER = struct.Struct(">4sQQ")
_MARK = b"MSO1"
_ID = re.compile(r"[0-9a-f-]{36}")
_TRIES = 3


class OutputTail(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of the output of one attempt, from a position on."""

    start: int = 0
    """position of the first byte"""
    end: int = 0
    """position after the last byte"""
    data: bytes = b""
    dropped: int = 0
    """bytes that were printed and not kept: above the limits of a line and of a second"""


class AttemptOutput:
    """The writing end. Any thread may write. It never raises: a full disk loses output and no job."""

    def __init__(self, path: Path, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        #: bytes on disk
        self.size = 0
        self.closed = False
        self._now_s = now_s
        self._lock = threading.Lock()
        self._file = -1
        self._segment = 0
        """bytes in the newest file"""
        self._end = 0
        self._dropped = 0
        self._unsaid = 0
        """dropped bytes that no line of the output names yet"""
        self._line = 0
        """bytes of the current line that were kept"""
        self._cut = 0
        """bytes of the current line that were not"""
        self._buffer = bytearray()
        self._second = -1
        self._left = 0
        self._late: deque[bytes] = deque()
        self._late_size = 0

    def write(self, text: str) -> None:
        """Add text. It is written with the end of its line, with `flush`, or with `close`."""
        self.write_bytes(text.encode("utf-8", "replace"))

    def write_bytes(self, data: bytes) -> None:
        with self._lock:
            if self.closed:
                return
            self._buffer += data
            if b"\n" in data or len(self._buffer) >= _BUFFER_BYTES:
                self._take_buffer()

    def flush(self) -> None:
        """Write what was printed of an unfinished line."""
        with self._lock:
            if not self.closed and self._buffer:
                self._take_buffer()

    def close(self) -> None:
        """Write the rest. What is written later is ignored."""
        with self._lock:
            if self.closed:
                return
            self._take_buffer()
            self._second = -1  # the last lines are kept in any case
            self._write_late()
            self.closed = True
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    # within -------------------------------------------------------------------------------------

    def _take_buffer(self) -> None:
        data, self._buffer = bytes(self._buffer), bytearray()
        for piece in data.splitlines(keepends=True) if len(data) > _LINE_BYTES or self._line else (data,):
            kept = self._bounded(piece)
            if kept:
                self._admit(kept)

    def _bounded(self, piece: bytes) -> bytes:
        """A piece of text without what is beyond the longest line. A piece of several lines is shorter than that."""
        ended = piece.endswith(b"\n")
        room = _LINE_BYTES - self._line
        body = piece[:-1] if ended else piece
        if b"\n" in body or len(body) <= room:
            kept = piece
            if ended and self._cut:
                kept = body + self._cut_mark()
            self._line = 0 if ended else self._line + len(body.rpartition(b"\n")[2])
            return kept
        self._cut += len(body) - room
        self._dropped += len(body) - room
        self._line = 0 if ended else _LINE_BYTES
        return body[:room] + (self._cut_mark() if ended else b"")

    def _cut_mark(self) -> bytes:
        cut, self._cut = self._cut, 0
        return f" [{cut} bytes of this line dropped]\n".encode()

    def _admit(self, data: bytes) -> None:
        second = int(self._now_s())
        if second != self._second:
            self._write_late()
            self._second, self._left = second, max(0, _SECOND_BYTES - self._late_size)
        if len(data) <= self._left and not self._late:
            self._left -= len(data)
            self._append(data)
            return
        self._late.append(data)
        self._late_size += len(data)
        while self._late_size > _LATE_BYTES and len(self._late) > 1:
            lost = len(self._late.popleft())
            self._late_size -= lost
            self._dropped += lost
            self._unsaid += lost

    def _write_late(self) -> None:
        if self._unsaid:
            text = f"[{self._unsaid} bytes dropped: more than {_SECOND_BYTES // 1024} KiB in a second]\n"
            self._unsaid = 0
            self._append(text.encode())
        while self._late:
            self._append(self._late.popleft())
        self._late_size = 0

    def _append(self, data: bytes) -> None:
        try:
            if self._file < 0 or self._segment >= _SEGMENT_BYTES:
                self._open_segment()
            written = os.write(self._file, data)
        except OSError:
            self._dropped += len(data)
            return
        self._segment += written
        self._end += written
        self.size += written

    def _open_segment(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with contextlib.suppress(FileNotFoundError):  # it was pruned
                self.path.replace(_older(self.path))
            self.size = self._segment + _HEADER.size
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(self._file, _HEADER.pack(_MARK, self._end, self._dropped))
        self._segment = 0
        self.size += _HEADER.size


def output_path(folder: Path, job_id: str, token: int) -> Path:
    """Where the output of an attempt is kept; refuses an id that names another file."""
    if not _ID.fullmatch(job_id):
        raise InvalidInput("job", "it is not the id of a job")
    return folder / f"{job_id}.{int(token)}"


def read_output(path: Path, *, after: int | None = None, most: int = TAIL_BYTES) -> OutputTail | None:
    """The kept output from a position on, at most the newest `most` bytes; None: nothing is kept."""
    for _ in range(_TRIES):
        newest = _segment(path)
        if newest is None:
            return None
        start, dropped, data = newest
        older = _segment(_older(path))
        if older is not None:
            if older[0] + len(older[2]) != start:
                continue  # the writer has begun another file between the two reads
            start, data = older[0], older[2] + data
        end = start + len(data)
        first = max(start, end - most, min(after or 0, end))
        return OutputTail(start=first, end=end, data=data[first - start :], dropped=dropped)
    return None


def _segment(path: Path) -> tuple[int, int, bytes] | None:
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            data = file.read(2 * _SEGMENT_BYTES + _SECOND_BYTES)
    except OSError:
        return None
    if len(head) < _HEADER.size or not head.startswith(_MARK):
        return None
    _, start, dropped = _HEADER.unpack(head)
    return start, dropped, data


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")


__all__ = ["TAIL_BYTES", "AttemptOutput", "OutputTail", "output_path", "read_output"]
