"""The results of units, as inputs of an aggregation: each output is fetched when it is first read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InvalidInput, StoreError
from ..outputs import OutputStore, Unit

#: files fetched at a time
_AT_ONCE = 8
#: the same output of this many following units is fetched in advance
_AHEAD = 64


class UnitResult(msgspec.Struct, frozen=True):
    """The outputs of one unit, verified, as files on this machine.

    `run["result"]` is the path of an output. It is copied when it is first read, and removed when the aggregation ends.
    """

    params: dict[str, Any]
    seed: int | None
    files: Mapping[str, Path]
    unit: str = ""
    """the unit, in words"""

    def __getitem__(self, output: str) -> Path:
        return self.files[output]

    def read(self, output: str | None = None) -> bytes:
        """The content of an output. Default: the first."""
        return self.files[output or next(iter(self.files))].read_bytes()

    def json(self, output: str | None = None) -> Any:
        """The same, decoded as JSON."""
        try:
            return msgspec.json.decode(self.read(output))
        except msgspec.DecodeError as error:
            name = output or next(iter(self.files))
            raise InvalidInput(
                f"{name} of {self.unit or 'a unit'}",
                f"it is not JSON: {error}. JSON has no NaN and no Infinity, though json.dumps writes them; read such a "
                f"file with json.loads(run.read({name!r}))",
            ) from None


class Inputs:
    """The inputs of one aggregation."""

    def __init__(self, store: OutputStore, units: Sequence[Unit], outputs: Mapping[str, str], folder: Path) -> None:
        self._store = store
        self._units = units
        self._outputs = outputs
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._lock = threading.Lock()
        self._arriving: dict[tuple[int, str], Future[Path]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.away: StoreError | None = None
        """why an output could not be fetched, if the storage did not answer"""

    def results(self) -> list[UnitResult]:
        """The result of each unit, in order. Nothing is fetched yet."""
        return [
            UnitResult(dict(unit.params), unit.seed, _Files(self, place, self._outputs), str(unit))
            for place, unit in enumerate(self._units)
        ]

    async def all(self) -> None:
        """Fetch everything now: a function on the loop could not wait for it."""
        with self._lock:
            for output in self._outputs:
                self._begin(0, len(self._units), output)
        await asyncio.gather(*(asyncio.wrap_future(one) for one in self._arriving.values()))

    def get(self, place: int, output: str) -> Path:
        """The path of an output. Called from other threads, or after `all`."""
        key = place, output
        with self._lock:
            if key not in self._arriving:
                self._begin(place, min(place + _AHEAD, len(self._units)), output)
            arriving = self._arriving[key]
        try:
            return arriving.result()
        except StoreError as error:
            self.away = error
            with self._lock:
                self._arriving.pop(key, None)
            raise

    async def close(self) -> None:
        """Fetch no more."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, start: int, end: int, output: str) -> None:
        for place in range(start, end):
            if (place, output) not in self._arriving:
                self._arriving[place, output] = asyncio.run_coroutine_threadsafe(self._fetch(place, output), self._loop)

    async def _fetch(self, place: int, output: str) -> Path:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async with self._turns:
                home = self._folder / str(place)
                home.mkdir(parents=True, exist_ok=True)
                file = self._outputs[output]
                return await self._store.save_to(self._units[place], file, home / file)
        finally:
            self._tasks.discard(task)


class _Files(Mapping[str, Path]):
    """The files of a unit by output, each fetched on first use."""

    def __init__(self, inputs: Inputs, place: int, names: Mapping[str, str]) -> None:
        self._inputs = inputs
        self._place = place
        self._names = names

    def __getitem__(self, output: str) -> Path:
        if output not in self._names:
            raise KeyError(output)
        return self._inputs.get(self._place, output)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, output: object) -> bool:
        return output in self._names
