"""A program whose records may have one field more. Run as: record_program.py URL NAME

It opens the store and a session, and does what it reads line by line: `queue` (set a queue, with the new field where it
is known), `drain ID`, `beat`, `list` (print the sessions and queues with the values of the new fields).
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mainstay.model import QueueSettings, Session
from mainstay.stores import JobStore, open_store


def say(text: object) -> None:
    print(text, flush=True)


def new(kind: type[Any], **fields: object) -> dict[str, object]:
    """The fields that this version knows."""
    return {name: value for name, value in fields.items() if name in kind.__struct_fields__}


async def main(url: str, name: str) -> None:
    store = await open_store(url)
    try:
        session = Session(id=name, worker="w", lease_s=3600, **new(Session, zone="north", racks={"a": [1, 2]}))
        await store.open_session(session)
        say("opened")
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            say(await act(store, name, *line))
    finally:
        await store.close()


async def act(store: JobStore, name: str, what: str, other: str = "") -> str:
    if what == "queue":
        await store.set_queue(QueueSettings(name=f"of-{name}", paused=True, **new(QueueSettings, team="mail")))
        return "set"
    if what == "drain":
        return str(await store.drain([other], by=name))
    if what == "beat":
        return str([(each.known, each.draining_by) for each in await store.beat([name])])
    sessions = [(each.id, each.worker, _value(each, "zone"), _value(each, "racks")) for each in await store.sessions()]
    queues = [(each.name, each.paused, _value(each, "team")) for each in await store.queues()]
    return f"{sorted(sessions)} {queues}"


def _value(record: object, name: str) -> object:
    return getattr(record, name, "unknown")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
