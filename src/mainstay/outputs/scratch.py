"""The private folder of a running unit, with a path for each of its outputs."""

from __future__ import annotations

import atexit
import contextlib
import difflib
import fcntl
import itertools
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import InvalidInput

_LOCK = ".owner"
#: outputs up to this size are kept in memory until they are published
_SMALL = 1 << 20
#: a younger folder may not be locked yet
_YOUNG_S = 60.0


class Outputs:
    """The paths of the declared outputs.

    `out["result"]` is a path to write a file to. `out.save("result", b"...")` is for small content in memory.
    """

    def __init__(self, scratch: Scratch, declared: Mapping[str, str]) -> None:
        self._scratch = scratch
        self._declared = dict(declared)
        self._saved: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> Path:
        file = self._file(name)
        path = self._scratch.folder / file
        if (content := self._saved.pop(file, None)) is not None:
            path.write_bytes(content)
        return path

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def save(self, name: str, content: bytes) -> None:
        """Write an output."""
        if len(content) > _SMALL:
            self[name].write_bytes(content)
        else:
            self._saved[self._file(name)] = bytes(content)

    def written(self) -> dict[str, Path | bytes]:
        """File -> its content or its path, for the outputs that were written."""
        files: dict[str, Path | bytes] = {}
        for file in self._declared.values():
            if file in self._saved:
                files[file] = self._saved[file]
            elif self._scratch.exists and (path := self._scratch.folder / file).is_file():
                files[file] = path
        return files

    def _file(self, name: str) -> str:
        if name not in self._declared:
            close = difflib.get_close_matches(str(name), self._declared, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it declares {', '.join(self._declared)}"
            raise InvalidInput("output", f"the unit declares no output {name!r}; {hint}")
        return self._declared[name]


class Scratch:
    """A private folder, created on first use and removed by `close`."""

    def __init__(self, base: Path | None = None) -> None:
        self._base = base
        self._place: Path | None = None

    @property
    def exists(self) -> bool:
        return self._place is not None

    @property
    def folder(self) -> Path:
        if self._place is None:
            self._place = _home_in(self._base).take()
        return self._place / "files"

    def beside(self, name: str) -> Path:
        """Another folder, for files that are not published."""
        return self.folder.with_name(name)

    def close(self) -> None:
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)


class _Home:
    """The folder of one process, with its scratch folders. Its lock ends with the process; then the next process that
    starts removes it."""

    def __init__(self, base: Path | None) -> None:
        self.pid = os.getpid()
        self._numbers = itertools.count()
        top = base or Path(tempfile.gettempdir()) / f"mainstay-outputs-{os.getuid()}"
        with contextlib.suppress(FileExistsError):
            top.mkdir(mode=0o700, parents=True)
        if _is_ours(top):
            sweep(top)
            self._folder = Path(tempfile.mkdtemp(dir=top))
        else:
            self._folder = Path(tempfile.mkdtemp(prefix="mainstay-outputs-"))
        self._lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        atexit.register(self._leave)

    def take(self) -> Path:
        """A new folder in it."""
        place = self._folder / str(next(self._numbers))
        (place / "files").mkdir(parents=True)
        return place

    def _leave(self) -> None:
        if os.getpid() == self.pid:
            shutil.rmtree(self._folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    """Any user can create this name in the temporary folder first: as a folder, or as a link to one of our folders,
    where a sweep would remove other files than scratch folders."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


_homes: dict[Path | None, _Home] = {}
_turn = threading.Lock()


def _home_in(base: Path | None) -> _Home:
    with _turn:
        home = _homes.get(base)
        if home is None or home.pid != os.getpid():
            home = _homes[base] = _Home(base)
        return home


def sweep(home: Path) -> None:
    """Remove the folders of ended processes: their lock is free, and they are old enough to have one. A folder without
    a lock is not ours."""
    for folder in home.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime <= _YOUNG_S:
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
