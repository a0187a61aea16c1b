"""The other processes of a benchmark: `python -m bench.roles ROLE SIDE PATH`.

Each says `ready` when it is, works until its standard input closes, and reports on standard output.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from pathlib import Path

from . import ours
from .raw import RawStore

BATCH = 100


def saturate_raw(path: Path) -> None:
    store = RawStore(path)
    print("ready", flush=True)
    while not _told_to_stop():
        if rows := store.claim(BATCH):
            store.complete(rows)


def saturate_ours(path: Path) -> None:
    async def work() -> None:
        control = await ours.open_control(path)
        session = await control.claims.open_session(pid=os.getpid())
        print("ready", flush=True)
        while not _told_to_stop():
            if jobs := await control.claims.claim(["default"], session.id, BATCH):
                await control.attempts.complete([ours.Completion(job) for job in jobs])
        await control.store.close()

    asyncio.run(work())


def pick_up_raw(path: Path) -> None:
    """What one does by hand: look at the data version every two milliseconds."""
    store = RawStore(path)
    seen = -1
    print("ready", flush=True)
    while not _told_to_stop():
        version = store.db.pragma("data_version")
        if version == seen:
            time.sleep(0.002)
            continue
        seen = version
        for _ in store.claim(BATCH):
            print(time.monotonic_ns(), flush=True)


def pick_up_ours(path: Path) -> None:
    async def work() -> None:
        control = await ours.open_control(path)
        session = await control.claims.open_session(pid=os.getpid(), lease_s=3600)
        async with control.store.wake(["queue:default"]) as wake:
            print("ready", flush=True)
            while not _told_to_stop():
                for _ in await control.claims.claim(["default"], session.id, BATCH):
                    print(time.monotonic_ns(), flush=True)
                await wake.wait(0.5)
        await control.store.close()

    asyncio.run(work())


def _told_to_stop() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable)


ROLES = {
    ("saturate", "raw"): saturate_raw,
    ("saturate", "ours"): saturate_ours,
    ("pick_up", "raw"): pick_up_raw,
    ("pick_up", "ours"): pick_up_ours,
}

if __name__ == "__main__":
    ROLES[sys.argv[1], sys.argv[2]](Path(sys.argv[3]))
