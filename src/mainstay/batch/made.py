"""What units have made, in the hands of an aggregation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..outputs import OutputStore, Unit

#: files fetched at a time
_AT_ONCE = 8


class Made(msgspec.Struct, frozen=True):
    """The outputs of one unit, verified, as files on this machine.

    `made["result"]` is the path of an output. They are gone when the aggregation ends.
    """

    params: dict[str, Any]
    seed: int | None
    files: Mapping[str, Path]

    def __getitem__(self, output: str) -> Path:
        return self.files[output]

    def read(self, output: str | None = None) -> bytes:
        """An output's content; the first one's if none is named."""
        return self.files[output or next(iter(self.files))].read_bytes()

    def json(self, output: str | None = None) -> Any:
        """The same, read as JSON: what an aggregation returned."""
        return msgspec.json.decode(self.read(output))


async def fetched(store: OutputStore, units: Iterable[Unit], outputs: Mapping[str, str], folder: Path) -> list[Made]:
    """Bring the outputs of some units here. Raises `OutputMissing` or `OutputCorrupt`, or a `StoreError`."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def bring(unit: Unit, target: Path, file: str) -> Path:
        async with turn:
            return await store.save_to(unit, file, target)

    async def one(place: int, unit: Unit) -> Made:
        home = folder / str(place)
        await asyncio.to_thread(home.mkdir, parents=True)
        paths = await asyncio.gather(*(bring(unit, home / file, file) for file in outputs.values()))
        return Made(dict(unit.params), unit.seed, dict(zip(outputs, paths, strict=True)))

    return list(await asyncio.gather(*(one(place, unit) for place, unit in enumerate(units))))
