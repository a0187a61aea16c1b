"""Submits a job for every line it reads, and prints its id. Run as: client.py URL TASK"""

from __future__ import annotations

import asyncio
import sys

from mainstay.control import Control
from mainstay.stores import open_store


async def main(url: str, task: str) -> None:
    store = await open_store(url)
    control = Control(store)
    print("ready", flush=True)
    for line in sys.stdin:
        made = await control.jobs.submit(task, {"number": int(line)})
        print(made.id, flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
