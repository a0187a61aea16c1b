"""What jobs print: `sys.stdout` and `sys.stderr` of a process that runs jobs, by job.

A write looks up the running job of its task or thread. Outside of a job it goes where it went before, and nowhere else.
A thread that a job starts by itself has no job in Python: in an engine its output is not attributed to any job, and in
a child process, which runs one job at a time, to that one.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from .job_context import Context, current_job
from .output_file import AttemptOutput, output_path

#: what one process keeps; beyond that the output of its oldest attempts is removed
_PROCESS_BYTES = 16 * 1024 * 1024
_PROCESS_FILES = 1000
#: what a node keeps in all, and how long
_FOLDER_BYTES = 64 * 1024 * 1024
_FOLDER_AGE_S = 7 * 24 * 3600.0


class OutputCapture:
    """Keeps what the jobs of this process print. `alone` is the job of a process that runs one at a time."""

    def __init__(self, folder: Path, *, echo: bool = True, now_s: Callable[[], float] = time.monotonic) -> None:
        """`echo`: also print it where it went before."""
        self.folder = folder
        self.alone: Context | None = None
        self._echo = echo
        self._now_s = now_s
        self._files: dict[Path, AttemptOutput] = {}
        """by path, the oldest first"""
        self._opening = threading.Lock()

    def install(self) -> None:
        """Replace the streams of this process."""
        sys.stdout = JobStream(sys.stdout, self)
        sys.stderr = JobStream(sys.stderr, self)

    def current(self) -> Context | None:
        """The job that prints now."""
        return current_job() or self.alone

    def file_of(self, context: Context) -> AttemptOutput:
        """The output of a job, opened with its first byte."""
        file = context.output
        if file is None:
            with self._opening:
                file = context.output
                if file is None:
                    file = context.output = self._opened(context)
        return file

    @property
    def echo(self) -> bool:
        return self._echo

    def _opened(self, context: Context) -> AttemptOutput:
        path = output_path(self.folder, context.job.id, context.job.token)
        made = AttemptOutput(path, now_s=self._now_s)
        self._files[path] = made
        self._make_room()
        return made

    def _make_room(self) -> None:
        size = sum(file.size for file in self._files.values()) if len(self._files) % 32 == 0 else 0
        while len(self._files) > _PROCESS_FILES or size > _PROCESS_BYTES:
            path = next((path for path, file in self._files.items() if file.closed), next(iter(self._files)))
            oldest = self._files.pop(path)
            size -= oldest.size
            oldest.close()
            _remove(path)


class JobStream:
    """Stands for a text stream: what a job writes is kept, too. Everything else is that of the stream."""

    def __init__(self, stream: TextIO, capture: OutputCapture) -> None:
        self._stream = stream
        self._capture = capture
        self.buffer = JobBuffer(getattr(stream, "buffer", None), capture)

    def write(self, text: str) -> int:
        context = current_job() or self._capture.alone
        if context is None:
            return self._stream.write(text)
        self._capture.file_of(context).write(text)
        if self._capture.echo:
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        context = self._capture.current()
        if context is not None and context.output is not None:
            context.output.flush()
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class JobBuffer:
    """The same, for bytes: `sys.stdout.buffer`. Bytes that are not UTF-8 are replaced when they are shown."""

    def __init__(self, buffer: Any, capture: OutputCapture) -> None:
        self._buffer = buffer
        self._capture = capture

    def write(self, data: Any) -> int:
        context = self._capture.current()
        size = memoryview(data).nbytes
        if context is not None:
            self._capture.file_of(context).write_bytes(bytes(data))
        if self._buffer is not None and (context is None or self._capture.echo):
            self._buffer.write(data)
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._buffer, name)


def prune_output(
    folder: Path, *, now_s: float, most_bytes: int = _FOLDER_BYTES, most_age_s: float = _FOLDER_AGE_S
) -> int:
    """Remove what is too old, and then the oldest until the rest is small enough; how many files were removed."""
    found: list[tuple[float, int, Path]] = []
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
    found.sort()
    size = sum(each[1] for each in found)
    removed = 0
    for changed_s, bytes_, path in found:
        if size <= most_bytes and now_s - changed_s <= most_age_s:
            break
        path.unlink(missing_ok=True)
        size -= bytes_
        removed += 1
    return removed


def _remove(path: Path) -> None:
    for each in (path, path.with_name(f"{path.name}.old")):
        with contextlib.suppress(OSError):
            each.unlink(missing_ok=True)


def capture_output(folder: str, *, echo: bool) -> OutputCapture | None:
    """Keep what the jobs of this process print, from now on; None: no folder was given."""
    if not folder:
        return None
    made = OutputCapture(Path(folder), echo=echo)
    try:
        made.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:  # the worker runs without
        return None
    made.install()
    return made


__all__ = ["JobBuffer", "JobStream", "OutputCapture", "capture_output", "prune_output"]
