"""Processes that write until they are killed, and tell what was acknowledged.

Run as: crashing.py URL. It reads lines `NAME SEED PIPE`, forks a process for each and prints its number; nothing is
open yet when they are forked. Each tells through its pipe, after the answer: `wrote KEY N`, `made N` and `gone N` (of
a key of its own), or `torn KEY`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sys

from mainstay.stores.versioned import VersionedStore, open_versioned

SHARED = [f"shared/{n}" for n in range(6)]


def packed(n: int, name: str, padding: int) -> bytes:
    """A value that shows whether it is whole."""
    body = f"{n} {name} ".encode() + b"." * padding
    return hashlib.blake2b(body, digest_size=16).digest() + body


def unpacked(value: bytes) -> int | None:
    """The number in it; None if it is torn."""
    digest, body = value[:16], value[16:]
    return int(body.split()[0]) if hashlib.blake2b(body, digest_size=16).digest() == digest else None


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def write_shared(store: VersionedStore, name: str, rng: random.Random) -> None:
    key = rng.choice(SHARED)
    found = await store.get(key)
    n = unpacked(found.value) if found else 0
    if n is None:
        tell(f"torn {key}")
        return
    value = packed(n + 1, name, rng.choice([0, 500, 60_000]))
    done = await (store.put(key, value, found.version) if found else store.create_if_absent(key, value))
    if done is not None:
        tell(f"wrote {key} {n + 1}")


async def live(url: str, name: str, seed: str) -> None:
    rng = random.Random(seed)
    store = await open_versioned(url)
    n = 0
    while True:
        for _ in range(2):
            await write_shared(store, name, rng)
        n += 1
        version = await store.create_if_absent(f"own/{name}", packed(n, name, 0))
        assert version is not None
        tell(f"made {n}")
        assert await store.delete(f"own/{name}", version)
        tell(f"gone {n}")


def main(url: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # most of a process's start; nothing is open after it
    import mainstay.stores.versioned.file
    import mainstay.stores.versioned.sqlite  # noqa: F401  # loaded before the processes are forked

    for line in sys.stdin:
        name, seed, pipe = line.split()
        number = os.fork()
        if number == 0:
            os.dup2(os.open(pipe, os.O_WRONLY), 1)
            asyncio.run(live(url, name, seed))
        print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
