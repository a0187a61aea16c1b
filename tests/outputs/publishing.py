"""A process that publishes one unit after the other until it is killed, and tells which were acknowledged.

Run as: publishing.py URL ROUND. What a unit has to hold follows from its number.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from pathlib import Path

from mainstay.outputs import Unit, open_outputs


def unit(turn: int, n: int) -> Unit:
    return Unit("killed", "1", {"turn": turn}, n)


def content(turn: int, n: int) -> bytes:
    return f"{turn} {n} ".encode() * 20_000


async def main(url: str, turn: int) -> None:
    async with await open_outputs(url) as store:
        for n in count():
            files: dict[str, Path | bytes] = {"a.bin": content(turn, n), "b.bin": content(turn, n)[::-1]}
            await store.publish(unit(turn, n), files)
            os.write(1, f"{n}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
