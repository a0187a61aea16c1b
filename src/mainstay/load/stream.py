"""The recorded stream of a run: the source of all reports, one JSON object per line.

    {"type": "run", ...}      first: the header
    {"type": "window", ...}   one per second: what ended in it, histograms included
    {"type": "end", ...}      last: the summary, without its points, which follow from the windows

A line is written within a second, so a killed run leaves a readable stream; a torn last line is skipped and reported. A
stream whose name ends in .zst is compressed.

`StreamOutput` writes a stream, `RecordedStream` reads it, `remade` recomputes the summary from its windows.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import os
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import zstandard

from ..errors import InvalidInput
from ..storage import open_private
from .blocking_work import BackgroundThread, InlineThread
from .stats.grammar import parse
from .stats.model import Header, Moment, Summary, Window
from .stats.tally import SECOND, RunTally, merge_windows
from .stats.thresholds import RUNNING, ThresholdJudge, verdict_of
from .stats.trust import TrustWatch

_T = TypeVar("_T")

_MAGIC = b"\x28\xb5\x2f\xfd"
_encode = msgspec.json.Encoder().encode
#: a second resembles the one before; a larger window (2 MB by default) does not compress better
_PACKING = zstandard.ZstdCompressionParameters.from_level(3, window_log=18)

#: fields of a summary that do not follow from its windows
_REST = (
    "elapsed_s", "load_s", "users", "thresholds", "trust", "verdict", "ended", "skipped", "outputs", "stream",
    "slices",
)  # fmt: skip


class StreamOutput:
    """Records a run into a file, off the event loop: `thread` does the writing."""

    name = "stream"

    def __init__(
        self, path: str | os.PathLike[str], *, name: str = name, thread: BackgroundThread | InlineThread | None = None
    ) -> None:
        self.name = name
        self.path = Path(path)
        self._thread = thread or BackgroundThread()
        self._written: Future[None] | None = None
        self._waiting: list[Window] = []
        self._origin = -1
        self._lines = _Lines(self.path)

    async def start(self, header: Header) -> None:
        """Raises `InvalidInput` if the file cannot be written."""
        try:
            await asyncio.wrap_future(self._thread.submit(self._lines.begin, header))
        except OSError as error:
            why = error.strerror or str(error)
            raise InvalidInput("stream", f"{self.path} cannot be written ({why}); choose another place") from None

    def add(self, moment: Moment) -> None:
        """Keep a window; they are written by the second. Raises the error of the last write, if there was one."""
        if self._written is not None and self._written.done():
            self._written.result()
        window = moment.window
        if self._origin < 0:
            self._origin = window.bucket
        if self._waiting and self._second(window.bucket) > self._second(self._waiting[0].bucket):
            self._hand_over()
        self._waiting.append(window)
        if (window.bucket + window.width - self._origin) % SECOND == 0:
            self._hand_over()

    async def stop(self, summary: Summary) -> None:
        """Write the rest, and the end."""
        self._hand_over()
        if self._written is not None:
            await asyncio.wrap_future(self._written)
        await asyncio.wrap_future(self._thread.submit(self._lines.end, summary))

    def _second(self, bucket: int) -> int:
        return (bucket - self._origin) // SECOND

    def _hand_over(self) -> None:
        if self._waiting:
            self._written = self._thread.submit(self._lines.write, self._waiting)
            self._waiting = []


class _Lines:
    """The file, used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._packed: Any = None
        self._failed: OSError | None = None

    def begin(self, header: Header) -> None:
        self._file = open(self._path, "wb", opener=open_private)  # noqa: SIM115 - closed with the stream
        # held until the file is closed or this process dies: a reader can tell a running run from a lost one
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._path.suffix == ".zst":
            self._packed = zstandard.ZstdCompressor(compression_params=_PACKING).stream_writer(
                self._file, closefd=False
            )
        self._line("run", header)

    def write(self, windows: list[Window]) -> None:
        self._line("window", merge_windows(windows))

    def end(self, summary: Summary) -> None:
        self._line("end", msgspec.structs.replace(summary, points=[]))
        if self._packed is not None:
            self._packed.close()
        assert self._file is not None
        self._file.close()
        if not self._path.exists():
            # every write succeeded, but the file is gone
            raise InvalidInput("stream", f"{str(self._path)!r} was removed while it was written")

    def _line(self, kind: str, data: msgspec.Struct) -> None:
        assert self._file is not None
        if self._failed is not None:
            # a line after a torn one would make the stream unreadable
            raise self._failed
        line = b'{"type":"%b",%b\n' % (kind.encode(), _encode(data)[1:])
        try:
            (self._packed or self._file).write(line)
            if self._packed is not None:
                self._packed.flush(zstandard.FLUSH_BLOCK)
            self._file.flush()
        except OSError as error:
            self._failed = error
            with contextlib.suppress(OSError):
                self._file.close()
            raise


class RecordedStream:
    """An open stream, compressed or not. Its `header` is read at once, its `windows()` one by one; `end` and `torn` are
    known after them."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.end: Summary | None = None
        """None: the run did not end, or its end was not written"""
        self.torn = ""
        """what is wrong with the end of the stream; empty if nothing"""
        lines = self._lines()
        self.header: Header = self._first(next(lines, None))
        lines.close()

    def windows(self) -> Iterator[Window]:
        """The windows, one per second. Can be called again."""
        for number, kind, line in self._lines():
            if kind == "window":
                yield self._read(line, Window, number)
            elif kind == "end":
                self.end = self._read(line, Summary, number)

    def _first(self, line: tuple[int, str, bytes] | None) -> Header:
        if line is None or line[1] != "run":
            raise InvalidInput("stream", f"{self.path} is not a recorded load test; its first line is not a header")
        return self._read(line[2], Header, 1)

    def _lines(self) -> Generator[tuple[int, str, bytes], None, None]:
        self.torn = ""
        with self._opened() as file:
            previous: tuple[int, bytes] | None = None
            for number, line in enumerate(self._whole(file), 1):
                if previous is not None:
                    yield previous[0], self._kind(*previous), previous[1]
                previous = number, line
            if previous is not None:
                # only the last line can be torn
                try:
                    kind = self._kind(*previous)
                except InvalidInput:
                    self.torn = f"the last line of {self.path} is torn and was skipped"
                else:
                    yield previous[0], kind, previous[1]

    def _whole(self, file: IO[bytes]) -> Iterator[bytes]:
        try:
            yield from file
        except zstandard.ZstdError:
            self.torn = f"the rest of {self.path} cannot be decompressed and was skipped"

    def _opened(self) -> IO[bytes]:
        try:
            file = self.path.open("rb")
        except OSError as error:
            why = error.strerror or str(error)
            raise InvalidInput("stream", f"{self.path} cannot be read ({why}); pass the recording of a run") from None
        if file.peek(4)[:4] != _MAGIC:
            return file
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file, closefd=True))

    def _kind(self, number: int, line: bytes) -> str:
        return self._read(line, _Kind, number).type

    def _read(self, line: bytes, type: type[_T], number: int) -> _T:  # noqa: A002 - as msgspec calls it
        try:
            return msgspec.json.decode(line, type=type)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput(
                "stream", f"line {number} of {self.path} cannot be read ({error}); the stream is damaged"
            ) from None


class _Kind(msgspec.Struct):
    type: str


def _is_being_written(path: Path) -> bool:
    """Whether a live process is writing it."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system without locks
    return False


def remade(path: str | os.PathLike[str]) -> Summary:
    """The summary of a recorded run, recomputed from its windows.

    If the run did not end, thresholds and trust are judged by the recorded seconds. Such a run is *running* while its
    process writes the stream, and *lost* after that.
    """
    recorded = RecordedStream(path)
    # checked first: if the run ends now, the stream has its end
    goes_on = _is_being_written(recorded.path)
    tally = RunTally(recorded.header)
    judge = ThresholdJudge([parse(text) for text in recorded.header.thresholds], recorded.header)
    watch = TrustWatch()
    seconds = 0
    for window in recorded.windows():
        seconds += 1
        tally.add(window)
        judge.add(window)
        watch.add(window)
    if recorded.end is not None:
        rest = {field: getattr(recorded.end, field) for field in _REST}
        return tally.summary(**{**rest, "stream": rest["stream"] or str(path)})
    thresholds = judge.outcomes() if goes_on else judge.finish()
    ended = f"lost: the recording has {seconds} s and no end; {recorded.torn or 'the run was killed'}"
    if goes_on:
        ended = RUNNING
    return tally.summary(
        thresholds=thresholds,
        trust=watch.trust() if goes_on else watch.finish(by_itself=False, cut="the recording has no end"),
        verdict=verdict_of(thresholds, ended),
        ended=ended,
        stream=str(path),
    )
