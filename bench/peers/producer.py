"""The submitting side of one system: `python -m bench.peers.producer MODULE`, in that system's environment.

Reads one JSON request a line from standard input, answers one a line on standard output, until the input closes.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any


class Producer:
    """Carries out requests with the functions of an app module. Times are monotonic nanoseconds."""

    def __init__(self, peer: Any) -> None:
        self._peer = peer

    async def reset(self) -> None:
        await _called(self._peer.reset)

    async def one(self, *, i: int) -> int:
        """Submit one job; answers when the call began."""
        began_ns = time.monotonic_ns()
        await _called(self._peer.submit_one, i)
        return began_ns

    async def singly(self, *, n: int) -> float:
        """Submit n jobs one after the other; answers how many seconds that took."""
        submit = self._peer.submit_one
        began = time.perf_counter()
        if inspect.iscoroutinefunction(submit):
            for i in range(n):
                await submit(i)
        else:
            for i in range(n):
                submit(i)
        return time.perf_counter() - began

    async def can(self, *, what: str) -> bool:
        """Whether the module has this function, which not every one must."""
        return hasattr(self._peer, what)

    async def bulk(self, *, n: int) -> float:
        """Submit n jobs as one bulk; answers how many seconds that took."""
        began = time.perf_counter()
        await _called(self._peer.submit_many, n)
        return time.perf_counter() - began

    async def steadily(self, *, first: int, n: int, rate: float) -> list[int]:
        """Submit n jobs at random moments, `rate` a second on average; answers when each call began."""
        rng = random.Random(7)
        began_ns: list[int] = []
        due = time.monotonic()
        for i in range(first, first + n):
            due += rng.expovariate(rate)
            if (left := due - time.monotonic()) > 0:
                await asyncio.sleep(left)
            began_ns.append(await self.one(i=i))
        return began_ns

    async def sleeper(self, *, tag: str, seconds: float) -> None:
        await _called(self._peer.submit_sleeper, tag, seconds)

    async def settled(self) -> int:
        """How many jobs are done and committed."""
        count: int = await _called(self._peer.settled)
        return count


async def _called(function: Callable[..., Any], *given: object) -> Any:
    answer = function(*given)
    return await answer if inspect.isawaitable(answer) else answer


async def serve(module: str) -> None:
    # whatever a library prints must not end up between the answers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    producer = Producer(importlib.import_module(module))
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        answer = await getattr(producer, request.pop("do"))(**request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
