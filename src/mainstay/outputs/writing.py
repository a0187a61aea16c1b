"""What user code gets while a unit runs: a private folder with a place for each of its outputs."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from ..errors import InvalidInput

_LOCK = ".owner"
#: a folder that is younger may not be locked yet
_YOUNG_S = 60.0


class Outputs:
    """Places to write the declared outputs to.

    `out["result"]` is a path: write there, whole. `out.save("result", b"...")` writes it for you.
    """

    def __init__(self, folder: Path, declared: Mapping[str, str]) -> None:
        self._folder = folder
        self._declared = dict(declared)

    def __getitem__(self, name: str) -> Path:
        if name not in self._declared:
            close = difflib.get_close_matches(str(name), self._declared, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it declares {', '.join(self._declared)}"
            raise InvalidInput("output", f"the unit declares no output {name!r}; {hint}")
        return self._folder / self._declared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def save(self, name: str, content: bytes) -> Path:
        """Write an output."""
        path = self[name]
        path.write_bytes(content)
        return path

    def written(self) -> dict[str, Path]:
        """File -> where it is, of those that were written."""
        return {file: path for file in self._declared.values() if (path := self._folder / file).is_file()}


@contextlib.asynccontextmanager
async def scratch_folder(base: Path | None) -> AsyncIterator[Path]:
    """A folder of one's own, removed afterwards; with it go those whose owners were killed."""
    made, lock = await asyncio.to_thread(_made, base)
    try:
        yield made / "files"
    finally:
        # also while the task is being cancelled
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def _made(base: Path | None) -> tuple[Path, int]:
    home = base or Path(tempfile.gettempdir()) / f"mainstay-outputs-{os.getuid()}"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.stat().st_uid == os.getuid():
        sweep(home)
        made = Path(tempfile.mkdtemp(dir=home))
    else:  # in a temporary folder anybody can be first
        made = Path(tempfile.mkdtemp(prefix="mainstay-outputs-"))
    lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (made / "files").mkdir()
    return made, lock


def sweep(home: Path) -> None:
    """Remove the folders of those who are gone: nobody holds their lock, and they are old enough to have one."""
    for found in home.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - found.stat().st_mtime <= _YOUNG_S:
                continue
            lock = os.open(found / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(found, ignore_errors=True)
            finally:
                os.close(lock)
