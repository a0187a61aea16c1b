"""The recorded stream of a run: everything that reports are made of, one JSON object a line.

    {"type": "run", ...}      first: the header
    {"type": "window", ...}   for each second: what ended in it, histograms included
    {"type": "end", ...}      last: the summary, without its points, which follow from the windows

A line is on its way to the disk within a second, so a run that is killed leaves a stream that can be read; a last line
that is torn is left out, and said. With a name that ends in .zst it is compressed.

`StreamOutput` writes one, `read_stream` reads it, `remade` makes the summary anew from its windows.
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
from ..storage.private_files import open_private
from .blocking_work import BackgroundThread
from .stats.model import Header, Moment, Summary, Window
from .stats.tally import SECOND, RunTally, merge_windows
from .stats.thresholds import RUNNING, ThresholdJudge, parse, verdict_of
from .stats.trust import TrustWatch

_T = TypeVar("_T")

_MAGIC = b"\x28\xb5\x2f\xfd"
_encode = msgspec.json.Encoder().encode
#: a second looks like the one before: what came minutes ago is of no use, and would be remembered in 2 MB
_PACKING = zstandard.ZstdCompressionParameters.from_level(3, window_log=18)

#: what a summary has that its windows do not tell
_REST = (
    "elapsed_s", "load_s", "users", "thresholds", "trust", "verdict", "ended", "skipped", "outputs", "stream",
)  # fmt: skip


class StreamOutput:
    """Records a run into a file, off the event loop."""

    name = "stream"

    def __init__(self, path: str | os.PathLike[str], *, name: str = name) -> None:
        self.name = name
        self.path = Path(path)
        self._thread = BackgroundThread()
        self._written: Future[None] | None = None
        self._waiting: list[Window] = []
        self._origin = -1
        self._lines = _Lines(self.path)

    async def start(self, header: Header) -> None:
        """Refuses a file that cannot be written."""
        try:
            await asyncio.wrap_future(self._thread.submit(self._lines.begin, header))
        except OSError as error:
            why = error.strerror or str(error)
            raise InvalidInput("stream", f"{self.path} cannot be written ({why}); choose another place") from None

    def add(self, moment: Moment) -> None:
        """Keep a window; a second of them is handed over together. Raises what the last writing came to."""
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
        """Write what is left, and the end."""
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
    """The file. Only ever used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._packed: Any = None
        self._failed: OSError | None = None

    def begin(self, header: Header) -> None:
        self._file = open(self._path, "wb", opener=open_private)  # noqa: SIM115 - closed with the stream
        # held until the file is closed or this process dies: so a reader knows a run that goes on from one that is lost
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
            # all of it could be written, and nobody will ever find it
            raise InvalidInput("stream", f"{str(self._path)!r} was removed while it was written")

    def _line(self, kind: str, data: msgspec.Struct) -> None:
        assert self._file is not None
        if self._failed is not None:
            # a line after one that is torn would make the stream unreadable
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
    """A stream that is being read. `end` and `torn` are known once `windows()` has come to its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end: Summary | None = None
        """None: the run did not come to its end, or that was not written"""
        self.torn = ""
        """what is wrong with the end of the stream, if anything is"""
        lines = self._lines()
        self.header: Header = self._first(next(lines, None))
        lines.close()

    def windows(self) -> Iterator[Window]:
        """Second by second. Can be read again."""
        for number, kind, line in self._lines():
            if kind == "window":
                yield self._read(line, Window, number)
            elif kind == "end":
                self.end = self._read(line, Summary, number)

    def _first(self, found: tuple[int, str, bytes] | None) -> Header:
        if found is None or found[1] != "run":
            raise InvalidInput(
                "stream", f"{self.path} is not the recorded stream of a load test; its first line would say so"
            )
        return self._read(found[2], Header, 1)

    def _lines(self) -> Generator[tuple[int, str, bytes], None, None]:
        self.torn = ""
        with self._opened() as file:
            held: tuple[int, bytes] | None = None
            for number, line in enumerate(self._whole(file), 1):
                if held is not None:
                    yield held[0], self._kind(*held), held[1]
                held = number, line
            if held is not None:
                # only the last line can be torn
                try:
                    kind = self._kind(*held)
                except InvalidInput:
                    self.torn = f"the last line of {self.path} is torn, and left out"
                else:
                    yield held[0], kind, held[1]

    def _whole(self, file: IO[bytes]) -> Iterator[bytes]:
        try:
            yield from file
        except zstandard.ZstdError:
            self.torn = f"the rest of {self.path} cannot be unpacked, and is left out"

    def _opened(self) -> IO[bytes]:
        try:
            file = self.path.open("rb")
        except OSError as error:
            why = error.strerror or str(error)
            raise InvalidInput("stream", f"{self.path} cannot be read ({why}); pass what a run has recorded") from None
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
                "stream", f"line {number} of {self.path} cannot be read ({error}); the stream is damaged there"
            ) from None


class _Kind(msgspec.Struct):
    type: str


def _is_being_written(path: Path) -> bool:
    """Whether a live process records into it."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system without locks
    return False


def read_stream(path: str | os.PathLike[str]) -> RecordedStream:
    """Open a recorded stream, packed or not.

    Its `header` is there at once, its `windows()` are read one by one, its `end` (None if there is none) after them.
    """
    return RecordedStream(Path(path))


def remade(path: str | os.PathLike[str]) -> Summary:
    """The summary of a recorded run, made from its windows.

    Of a run that did not come to its end, thresholds and trust are judged by the seconds that were written. Such a run
    is *running* while its process writes the stream, and *lost* after that.
    """
    recorded = read_stream(path)
    # before the windows are read: a run that ends in the meantime has its end in the stream
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
