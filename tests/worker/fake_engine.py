"""An engine that does as the names of its jobs say, so that a test knows exactly what has begun and what has not.

`run` begins and goes on; `late` begins and overruns at once; `wait` is claimed and never begun; `die` ends the process
with code 3; `retire` lets the engine retire. Its target is the store's URL, with words that change its manners.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys

import msgspec

from mainstay.control import Control
from mainstay.errors import StoreError
from mainstay.model import Job, Settings
from mainstay.stores import open_store
from mainstay.worker.messages import Drain, EngineConfig, Hello, Pulsed, Retiring, StartClaiming, ToEngine, Unfit, line
from mainstay.worker.recorder import Recorder
from mainstay.worker.spawn import leave_stopping_to_the_supervisor

FAST = Settings.of(
    heartbeat=os.environ.get("FAKE_HEARTBEAT", "200ms"),
    lease=os.environ.get("FAKE_LEASE", "3s"),
    sweep="200ms",
    grace="1s",
)


class Fake:
    def __init__(self, config: EngineConfig, control: Control, link: socket.socket) -> None:
        self.config = config
        self.control = control
        self.link = link
        self.recorder = Recorder(config.recorder_fd)
        self.held: list[Job] = []
        self.session = ""
        self.manners = config.options.queues

    async def greet(self, url: str) -> None:
        session = await self.control.claims.open_session(
            worker=self.config.options.name, pid=os.getpid(), supervisor=self.config.supervisor_pid
        )
        self.session = session.id
        self.say(Hello(session=session.id, store_url=url, settings=self.control.settings, queues=("default",)))

    def say(self, message: Hello | Retiring | Unfit) -> None:
        self.link.sendall(line(message))

    async def claim(self) -> None:
        async with self.control.store.wake(["queue:default"]) as wake:
            while True:
                with contextlib.suppress(StoreError):
                    for job in await self.claimed():
                        self.held.append(job)
                        self.begin(job)
                await wake.wait(0.05)

    async def claimed(self) -> list[Job]:
        """Nothing while it drains: it may hear of that after the other engine, whose jobs are given back by then."""
        if any(each.id == self.session and each.is_draining for each in await self.control.store.sessions()):
            return []
        return await self.control.claims.claim(["default"], self.session, 10)

    def begin(self, job: Job) -> None:
        now_ms = self.control.store.clock.now_ms()
        if job.name == "wait":
            return
        deadline_ms = self.control.store.clock.lease_ms() + 1 if job.name == "late" else 0
        self.recorder.begin(len(self.held), job.id, token=job.token, started_ms=now_ms, deadline_ms=deadline_ms)
        if job.name == "die":
            os._exit(3)
        if job.name == "retire":
            self.say(Retiring("it was asked to"))

    async def drain(self) -> None:
        if "deaf" in self.manners:
            return
        await self.control.attempts.release(self.held, reason="drained")
        await self.control.claims.close_session(self.session)
        os._exit(0)


async def main() -> None:
    config = msgspec.json.decode(sys.argv[1], type=EngineConfig)
    link = socket.socket(fileno=config.link_fd)
    if "unfit" in config.options.queues or "FAKE_UNFIT" in os.environ:
        link.sendall(line(Unfit("it does not feel well")))
        sys.exit(2)
    if "silent" in config.options.queues:
        sys.exit(7)
    fake = Fake(config, Control(await open_store(config.options.target), settings=FAST), link)
    reader, _ = await asyncio.open_connection(sock=link.dup())
    await fake.greet(config.options.target)
    claiming: asyncio.Task[None] | None = None
    while text := await reader.readline():
        match msgspec.json.decode(text, type=ToEngine):
            case StartClaiming() if claiming is None:
                claiming = asyncio.create_task(fake.claim())
            case Drain() as asked if "slow" not in fake.manners or asked.grace_s == 0:
                if claiming is not None and "deaf" not in fake.manners:
                    claiming.cancel()
                    await asyncio.wait([claiming])
                await fake.drain()
            case Pulsed(known=False):
                fake.held.clear()
                await fake.greet(config.options.target)
    os._exit(9)


if __name__ == "__main__":
    leave_stopping_to_the_supervisor()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    asyncio.run(main())
