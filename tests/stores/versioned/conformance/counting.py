"""A process that counts: run as counting.py URL KEY TIMES. It says `ready`, waits for a line, adds one to the value of
the key that many times, and says what it cost."""

from __future__ import annotations

import asyncio
import sys

from mainstay.stores.versioned import UpdateCounts, open_versioned, update


def one_more(value: bytes | None) -> bytes:
    return b"%d" % (int(value or 0) + 1)


async def main(url: str, key: str, times: str) -> None:
    store = await open_versioned(url)
    counts = UpdateCounts()
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(times)):
        await update(store, key, one_more, tries=1000, base_s=0.004, counts=counts)
    await store.close()
    print(counts.updates, counts.conflicts, counts.retries, counts.gave_up, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
