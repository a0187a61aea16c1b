"""Slices of a load test that send no load: each tells its leader the same statistics again and again.

They speak the protocol of slices over a real bus, with our own code for messages and statistics. All are in this
process, on one connection: `python -m bench.fan_in_slices URL JOB SLICES STEP,STEP REQUESTS`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from array import array

from mainstay.bus import Bus, BusMessage
from mainstay.bus.nats import connect_nats
from mainstay.load.engine.messages import CollectProvided, SetUp, TearDown, Values, WorkflowReport, WorkflowsDone
from mainstay.load.fleet.messages import (
    CollectEnd,
    CommandAccepted,
    CommandPending,
    PingSlice,
    SliceAnswer,
    SliceBeat,
    SliceCommand,
    SliceEnd,
    SliceWindow,
    StartSlice,
    decode_command,
    encode,
    window_subject,
)
from mainstay.load.stats.accounts import Account
from mainstay.load.stats.histogram import sketch_of
from mainstay.load.stats.model import WINDOW_MS, Health, Sketch, StepStats, Window

#: of a call: what a client of ours measures besides the whole
_PHASES = ("send", "wait", "receive")
_QUEUE = 20_000
#: how long a slice works on a command before it says that it is not done
_POLL_S = 1.0
#: windows that are sent again in one answer
_MOST_REPAIRED = 20


class FakeSlice:
    """One slice, which sends a message each time that as many buckets as its leader wants are over."""

    def __init__(self, number: int, workflow: str, steps: list[str], requests: int) -> None:
        self.number = number
        self.order: StartSlice | None = None
        self.ordered = asyncio.Event()
        self.windows = 0
        self.done = asyncio.Event()
        """its load is over"""
        self._workflow = workflow
        self._together = 2
        self._requests = requests
        self._iterations = 0
        self._kept: dict[int, SliceWindow] = {}
        """by number: those that the leader has not confirmed"""
        self._unsent = 0
        self._bodies: dict[int, list[StepStats]] = {}
        self._steps = steps

    async def answer(self, command: SliceCommand) -> SliceAnswer:
        order = command.order
        match order:
            case PingSlice():
                self._together = order.together
                return SliceBeat(
                    steady_s=time.monotonic(),
                    prepared=True,
                    over=False,
                    go=0 if self.order is None else 1,
                    windows=self.windows,
                    repaired=self._lost(order),
                )
            case StartSlice():
                self.order = order
                self.ordered.set()
            case CollectEnd():
                ending = asyncio.ensure_future(self.done.wait())
                await asyncio.wait([ending], timeout=_POLL_S)
                ending.cancel()
                return self._end() if self.done.is_set() else CommandPending()
            case SetUp() | CollectProvided() | TearDown():
                return Values()
        return CommandAccepted()

    def due(self, bucket: int, first: int) -> SliceWindow | None:
        """What is sent after this bucket."""
        self._unsent += 1
        if (bucket + 1) % self._together:
            return None
        width, self._unsent = self._unsent, 0
        count = width * self._requests
        window = Window(
            bucket=bucket + 1 - width,
            width=width,
            process=self.number,
            users=1,
            begun=count,
            iterations=count,
            steps=self._measured(count),
            health={self.number: Health(cpu=0.5, memory=1 << 26, files=40, files_limit=1024)},
        )
        part = SliceWindow(token=1, go=1, number=bucket + 1 - width - first, count=width, window=window)
        self.windows = part.number + width
        self._iterations += count
        self._kept[part.number] = part
        return part

    def _lost(self, ping: PingSlice) -> list[SliceWindow]:
        """What did not arrive, as far as an answer has room for it. Forgets what did."""
        for number in [number for number in self._kept if number < ping.upto]:
            del self._kept[number]
        wanted = [part for part in self._kept.values() if any(a <= part.number < b for a, b in ping.gaps)]
        return wanted[:_MOST_REPAIRED]

    def _measured(self, count: int) -> list[StepStats]:
        if count not in self._bodies:
            self._bodies[count] = [
                StepStats(
                    workflow=self._workflow,
                    step=step,
                    ok=_sketch(count, 3.0),
                    phases={phase: _sketch(count, 1.0) for phase in _PHASES},
                    statuses={"200": count},
                    sent=count * 200,
                    received=count * 1024,
                )
                for step in self._steps
            ]
        return self._bodies[count]

    def _end(self) -> SliceEnd:
        assert self.order is not None
        done = self._iterations
        account = Account(begun=done, completed=done)
        report = WorkflowReport(iterations=done, clean=done, account=account)
        seconds = self.order.longest_s - self.order.drain_s
        return SliceEnd(
            go=1,
            token=1,
            reports=[WorkflowsDone(workflows={self._workflow: report}, took=seconds, loaded=seconds)],
            loss="",
            isolated=False,
            windows=self.windows,
            total=None,
        )


def _sketch(count: int, log_ms: float) -> Sketch:
    chance = random.Random(7)
    found = sketch_of(array("d", (chance.lognormvariate(log_ms, 0.7) / 1000 for _ in range(count))))
    assert found is not None
    return found


async def serve(bus: Bus, job: str, slices: list[FakeSlice]) -> None:
    """Answer the leader."""
    under_way: set[asyncio.Task[None]] = set()

    async def answer(message: BusMessage) -> None:
        command = decode_command(message.body)
        if message.reply is not None:
            await bus.publish(message.reply, encode(await slices[command.slice].answer(command)))

    async with await bus.subscribe(f"control.slice.*.{job}.*", limit=_QUEUE) as messages:
        async for message in messages:
            task = asyncio.ensure_future(answer(message))
            under_way.add(task)
            task.add_done_callback(under_way.discard)


async def report(bus: Bus, job: str, slices: list[FakeSlice]) -> None:
    """Send the windows of all slices until their load is over."""
    for one in slices:
        await one.ordered.wait()
    order = slices[0].order
    assert order is not None
    first = int(order.wall * 1000 // WINDOW_MS)
    buckets = round((order.longest_s - order.drain_s) * 1000 / WINDOW_MS)
    for bucket in range(first, first + buckets):
        ends_s = order.at_s + (bucket + 1 - first) * WINDOW_MS / 1000
        await asyncio.sleep(ends_s - time.monotonic())
        for one in slices:
            if (part := one.due(bucket, first)) is not None:
                await bus.publish(window_subject(f"n{one.number}", job, one.number), encode([part]))
    for one in slices:
        one.done.set()


async def main(url: str, job: str, count: int, steps: list[str], requests: int) -> None:
    bus = await connect_nats(url, name="slices", timeout_s=20)
    slices = [FakeSlice(number, "Steps", steps, requests) for number in range(count)]
    serving = asyncio.ensure_future(serve(bus, job, slices))
    print("ready", flush=True)
    await report(bus, job, slices)
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].split(","), int(sys.argv[5])))
