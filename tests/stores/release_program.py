"""A program of one release. Run as: release_program.py URL NAME

It opens the store, prints the version of Mainstay's schemas that it knows, and does what it reads line by line:
`submit`, `work` (claim one job, end it, print its name), `check` (print what a check finds), `repair`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from mainstay.clock import SystemClock
from mainstay.control.check import check
from mainstay.errors import MainstayError
from mainstay.model import IdSource, Session
from mainstay.stores import JobStore, open_store
from mainstay.stores.sqlite import schema
from mainstay.testing import new_job
from tests.conformance.world import World


def say(text: object) -> None:
    print(text, flush=True)


async def main(url: str, name: str) -> None:
    try:
        store = await open_store(url)
    except MainstayError as error:
        say(f"refused {type(error).__name__}")
        return
    say(f"opened {schema.VERSION}")
    try:
        await store.open_session(Session(id=name, pid=os.getpid(), lease_s=3600))
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            say(await act(store, line, name))
    finally:
        await store.close()


async def act(store: JobStore, what: str, name: str) -> str:
    if what == "submit":
        [made] = await store.insert([new_job(store.clock, IdSource(random.Random()), name=f"of.{name}", actor=name)])
        return made.id
    if what == "work":
        [job] = await store.claim(["default"], name, 1)
        world = World(store, SystemClock())  # type: ignore[arg-type]
        [answer] = await store.apply([world.change(job, "succeeded", holder=name)])
        return f"{job.name} {answer.outcome}"
    report = await check(store, repair=what == "repair")
    return f"{report.checked} jobs, found {[each.code for each in report.violations]}"


asyncio.run(main(*sys.argv[1:]))
