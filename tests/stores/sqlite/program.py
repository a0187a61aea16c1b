"""What the other processes of these tests do. Run as: program.py ACTION DATABASE [ARGUMENTS]

Each action prints a line when it has got somewhere, and reads a line before it goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import apsw

from mainstay.clock import SystemClock
from mainstay.errors import StoreError, StoreFull
from mainstay.lifecycle import Move
from mainstay.model import IdSource, Session
from mainstay.stores.sqlite import SqliteStore, changes, schema, store
from mainstay.stores.sqlite.engine import SqliteTx
from mainstay.stores.sqlite.turnstile import Turnstile
from mainstay.testing import new_job
from tests.conformance.world import World


def say(*words: object) -> None:
    print(*words, flush=True)


def listen() -> str:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return line.strip()


def take_turns(path: Path) -> None:
    """Enter the turnstile whenever told, sign the book while inside, and leave (or stay until told)."""
    turnstile = Turnstile(path.with_name(path.name + "-mainstay"), timeout_s=60)
    book = path.with_name("book")
    say("ready")
    while True:
        how = listen()
        turnstile.enter()
        with book.open("a") as pages:
            pages.write("child\n")
        if how == "stay":
            say("inside")
            listen()
        turnstile.leave()
        say("left")


def keep_locked(path: Path) -> None:
    """What a database browser does that somebody forgot to close."""
    db = apsw.Connection(str(path))
    db.execute("BEGIN IMMEDIATE")
    say("locked")
    listen()
    db.execute("ROLLBACK")
    say("unlocked")


async def open_it(path: Path, version: str = "") -> None:
    """Open the store, say how that went, and insert a job when told."""
    if version:
        store.sqlite_version = lambda: tuple(map(int, version.split(".")))
    try:
        opened = SqliteStore(path)
        say("open")
        clock = SystemClock()
        ids = IdSource(random.Random(os.getpid()))
        while listen() == "insert":
            try:
                await opened.insert([new_job(clock, ids)])
                say("inserted")
            except StoreError as error:
                say(error.code, error)
        await opened.close()
        say("closed")
    except StoreError as error:
        say(error.code, error)


async def hold(path: Path, session: str, lease_s: str) -> None:
    """Open a session, claim what is there, and go on living."""
    opened = SqliteStore(path)
    await opened.open_session(Session(id=session, pid=os.getpid(), lease_s=float(lease_s)))
    say(*[job.id for job in await opened.claim(["default"], session, 10)])
    listen()
    await opened.close_session(session)
    await opened.close()
    say("closed")


async def lead(path: Path, session: str, ttl_s: str) -> None:
    """Open a session, take the lead, and go on living."""
    opened = SqliteStore(path)
    await opened.open_session(Session(id=session, pid=os.getpid(), lease_s=3600))
    taken = await opened.lead("main", session, float(ttl_s))
    say(taken.holder, taken.epoch)
    listen()
    await opened.close()


async def sleep_until_woken(path: Path, *topics: str) -> None:
    opened = SqliteStore(path)
    wake = opened.wake(topics)
    waiting = asyncio.create_task(wake.wait(60.0))
    await asyncio.sleep(0)
    say("asleep")
    say("woken" if await waiting else "not woken")
    listen()
    await wake.close()
    await opened.close()


async def write_and_hang(path: Path) -> None:
    """Insert jobs and stop before the commit, with every lock in hand."""
    opened = SqliteStore(path)
    clock, ids = SystemClock(), IdSource(random.Random(os.getpid()))

    def run(tx: SqliteTx) -> None:
        changes.insert(tx, [new_job(clock, ids) for _ in range(10)], opened.chain)
        say("inside")
        listen()

    await opened._engine.write(run)


async def assign_and_hang(path: Path, how: str, steps: str) -> None:
    """Assign all pending units together, and stop before a statement of that transaction."""
    opened = SqliteStore(path)
    world = World(opened, opened.clock)  # type: ignore[arg-type]
    found = await opened.audit(limit=100)
    await opened.open_session(Session(id="n0", pid=os.getpid(), lease_s=3600))
    moves = [
        Move(to="dispatched", fields={"token": each.job.token + 1, "session": "n0", "claimed_ms": each.job.created_ms})
        for each in found
    ]
    spawned = [(new_job(opened.clock, world.ids),) if how == "spawn" else () for _ in found]
    gang = [
        world.change(each.job, move, spawn=spawn)
        for each, move, spawn in zip(found, moves, spawned, strict=True)
        if each.job.is_unit
    ]
    left = int(steps)

    def trace(*_: object) -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            say("inside")
            listen()
        return True

    opened._engine._db.exec_trace = trace
    say(*sorted({result.outcome for result in await opened.apply(gang, together=True)}))


def migrate_and_hang(path: Path, version: str) -> None:
    """Stop in the middle of a migration, after its statements and before its commit."""

    def pause() -> int:
        say("inside")
        listen()
        return 1

    def connect(self: SqliteStore) -> apsw.Connection:
        db = apsw.Connection(str(self.path))
        db.create_scalar_function("pause", pause, 0)
        return db

    SqliteStore._connect = connect  # type: ignore[method-assign]
    steps = schema.MIGRATIONS
    if version == "0":
        schema.MIGRATIONS = (*steps[:-1], steps[-1] + "; SELECT pause();")
    else:
        schema.MIGRATIONS = (*steps, "CREATE TABLE extra (id TEXT); DELETE FROM jobs; SELECT pause();")
        schema.VERSION += 1
    SqliteStore(path)
    say("done")


async def fill_the_disk(folder: Path) -> None:
    """On a disk of two megabytes of our own: write until it is full, make room, write again."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    ballast = folder / "ballast"
    ballast.write_bytes(b"\0" * 300_000)
    opened = SqliteStore(folder / "jobs.db")
    clock, ids = SystemClock(), IdSource(random.Random(1))
    acknowledged: list[str] = []
    try:
        while True:
            batch = [new_job(clock, ids, payload=bytes(500)) for _ in range(20)]
            acknowledged += [made.id for made in await opened.insert(batch)]
    except StoreFull as error:
        message = str(error)
    kept = [job.id for job in await opened.get(acknowledged) if job is not None]
    stored = sum((await opened.stats()).queues["default"].counts.values())
    ballast.unlink()
    [made] = await opened.insert([new_job(clock, ids)])
    found = [each.code for each in await opened.check()]
    await opened.close()
    say(
        json.dumps(
            {
                "message": message,
                "acknowledged": len(acknowledged),
                "kept": len(kept),
                "stored": stored,
                "afterwards": made.created,
                "check": found,
            }
        )
    )


ACTIONS = {
    action.__name__: action
    for action in (
        take_turns,
        keep_locked,
        open_it,
        hold,
        lead,
        sleep_until_woken,
        write_and_hang,
        assign_and_hang,
        migrate_and_hang,
        fill_the_disk,
    )
}


def main() -> None:
    action, path, *arguments = sys.argv[1:]
    running = ACTIONS[action](Path(path), *arguments)
    if running is not None:
        asyncio.run(running)


if __name__ == "__main__":
    main()
