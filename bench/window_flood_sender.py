"""Publishes windows of a run at a steady rate until it is ended: `python -m bench.window_flood_sender URL RATE`.

The bodies are encoded before. The process is nice, so that it does not take the processor from what is measured; it
prints each tenth of a second the time and how many messages it has sent so far.
"""

from __future__ import annotations

import asyncio
import os
import sys
from array import array

from mainstay.cluster.address import parse_address
from mainstay.load.fleet.messages import SliceWindow, encode, window_subject
from mainstay.load.stats.histogram import sketch_of
from mainstay.load.stats.model import StepStats, Window

#: the run that all windows belong to, and the node that sends them
JOB = "018bcfe5-6800-7000-8000-000000000000"
NODE = "flood"
_TURN_S, _EACH_S = 0.002, 0.1
_BODIES = 100


def bodies() -> list[bytes]:
    """Messages with one window of one step and fifty requests each."""
    times = sketch_of(array("d", [0.001 * number for number in range(1, 51)]))
    step = StepStats(workflow="Shop", step="browse", ok=times, statuses={"200": 50})
    return [
        encode([SliceWindow(token=1, go=1, number=number, window=Window(bucket=number, iterations=50, steps=[step]))])
        for number in range(_BODIES)
    ]


async def send(url: str, rate: int) -> None:
    """Send until this task is cancelled."""
    bus = await parse_address(url).connect("node", NODE, timeout_s=10)
    messages, subject = bodies(), window_subject(NODE, JOB, 0)
    loop = asyncio.get_running_loop()
    began_s, sent, told_s = loop.time(), 0, 0.0
    try:
        while True:
            due = round((loop.time() - began_s) * rate)
            for number in range(sent, due):
                await bus.publish(subject, messages[number % _BODIES])
            sent = max(sent, due)
            if loop.time() - told_s >= _EACH_S:
                told_s = loop.time()
                print(told_s, sent, flush=True)
            await asyncio.sleep(_TURN_S)
    finally:
        await bus.close()


if __name__ == "__main__":
    os.nice(10)
    asyncio.run(send(sys.argv[1], int(sys.argv[2])))
