"""Whoever is stopped in the middle has published nothing that counts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mainstay.outputs import OutputStore, Unit, open_outputs
from mainstay.outputs.blobs import Blob
from tests.outputs import publishing

FILES: dict[str, Path | bytes] = {"a": b"1234", "b": b"5678"}


class Stopped(BaseException):
    """The process ends here."""


class Stopping:
    """Storage whose user is stopped before, or after, its n-th change."""

    def __init__(self, blobs: Any, at: int) -> None:
        self._blobs = blobs
        self._at = at
        self._done = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def write(self, path: str, source: bytes | Path) -> Blob:
        self._step()
        written: Blob = await self._blobs.write(path, source)
        return written

    async def delete(self, paths: Sequence[str]) -> None:
        self._step()
        await self._blobs.delete(paths)

    def _step(self) -> None:
        if self._done == self._at:
            raise Stopped
        self._done += 1


async def seen(store: OutputStore, unit: Unit) -> set[str]:
    (found,) = await store.look([unit], list(FILES), verify="content", fresh=True)
    return {finding.state for finding in found.outputs.values()}


@pytest.mark.parametrize("before", [None, {"a": b"other", "b": b"files"}], ids=["anew", "over other results"])
async def test_a_publish_that_stops_after_any_step_leaves_all_or_nothing(
    memory: OutputStore, unit: Unit, before: dict[str, Path | bytes] | None
) -> None:
    blobs = memory.blobs
    for at in count():
        memory.blobs = blobs
        await memory.remove(unit)
        if before:
            await memory.publish(unit, before)
        memory.blobs = Stopping(blobs, at)
        try:
            await memory.publish(unit, FILES)
        except Stopped:
            memory.blobs = blobs
            states = await seen(memory, unit)
            assert len(states) == 1, f"in part after {at} steps"
            assert states <= {"missing", "present"}
            if states == {"present"}:
                whole = {**FILES} if await memory.read(unit, "a") == b"1234" else before
                assert {name: await memory.read(unit, name) for name in FILES} == whole
            await memory.publish(unit, FILES)
            assert await seen(memory, unit) == {"present"}
        else:
            assert at >= 3
            break


def test_a_process_that_is_killed_leaves_no_half_of_anything(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/outputs"
    acknowledged = {turn: killed_after(url, turn, acks=turn * 7) for turn in range(4)}

    async def check() -> None:
        async with await open_outputs(url) as store:
            for turn, last in acknowledged.items():
                units = [publishing.unit(turn, n) for n in range(last + 50)]
                found = await store.look(units, ["a.bin", "b.bin"], verify="content")
                states = [{finding.state for finding in one.outputs.values()} for one in found]
                assert states[: last + 1] == [{"present"}] * (last + 1)
                # one more may have been published and not told; none is there in part
                assert states[last + 1] in ({"present"}, {"missing"})
                assert states[last + 2 :] == [{"missing"}] * 48
                for n in (0, last):
                    assert await store.read(units[n], "a.bin") == publishing.content(turn, n)

    asyncio.run(check())


def killed_after(url: str, turn: int, *, acks: int) -> int:
    """The last unit that was acknowledged."""
    command = [sys.executable, publishing.__file__, url, str(turn)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(acks + 1):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read()
    return acks + len(rest.splitlines())
