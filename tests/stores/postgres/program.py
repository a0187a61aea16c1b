"""What the other processes of these tests do. Run as: program.py ACTION URL [ARGUMENTS]

Each action prints a line when it has got somewhere, and reads a line before it goes on.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from mainstay.model import Session
from mainstay.stores import open_store
from tests.conformance.world import World


def say(*words: object) -> None:
    print(*words, flush=True)


def listen() -> str:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return line.strip()


async def hold(url: str, session: str) -> None:
    """Open a session with a lease of an hour, take a job and lead; then hang about."""
    store = await open_store(url)
    await store.open_session(Session(id=session, pid=os.getpid(), lease_s=3600))
    await store.claim(["default"], session, 1)
    await store.lead("leader", session, 3600)
    say("ready")
    while line := await asyncio.to_thread(listen):
        [pulse] = await store.beat([session])
        say(line, pulse.known)


async def an_hour_off(url: str, hours: str) -> None:
    """Work with a wall clock that is off, and say what is seen."""
    off_ns = int(hours) * 3_600_000_000_000
    right_ns, right_s = time.time_ns, time.time
    time.time_ns = lambda: right_ns() + off_ns
    time.time = lambda: right_s() + off_ns / 1e9
    store = await open_store(url)
    world = World(store, store.clock)  # type: ignore[arg-type]  # it is only read here
    say(store.clock.now_ms())
    await store.open_session(Session(id="off", pid=os.getpid(), lease_s=8))
    soon = await world.submit(delay_s=0.5, queue="soon")
    late = await world.submit(delay_s=1800, queue="late")
    now = [job.id for job in await store.claim(["soon", "late"], "off", 5)]
    await asyncio.sleep(0.6)  # the job's own delay is what is tested
    then = [job.id for job in await store.claim(["soon", "late"], "off", 5)]
    say(now == [], then == [soon.id], (await world.row(late)).status)
    lead = await store.lead("leader", "off", 8)
    say(len(await store.overdue()), [session.dead for session in await store.sessions()], lead.epoch)
    listen()
    await store.close()


ACTIONS = {"hold": hold, "an_hour_off": an_hour_off}

if __name__ == "__main__":
    asyncio.run(ACTIONS[sys.argv[1]](*sys.argv[2:]))
