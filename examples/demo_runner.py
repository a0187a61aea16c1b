"""The demo's worker process: a stand-in for the worker of the next release, small enough to read at one sitting.

It shows which calls a worker makes of `Control`: claim, start, complete or fail; beat; obey a cancel; sweep. What a
real worker has besides (a supervisor, threads, child processes, a drain with patience) is left out.

    python examples/demo_runner.py sqlite:////tmp/jobs.db worker-1
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys

from demo_tasks import QUEUES, TASKS

from mainstay.control import Completion, Control, Failure, decoded, error_info
from mainstay.errors import SessionLost
from mainstay.model import Job, Settings
from mainstay.stores import open_store


class Runner:
    """One session and the jobs it holds."""

    def __init__(self, control: Control, name: str) -> None:
        self.control = control
        self.settings = control.settings
        self.name = name
        self.session = ""
        self.running: dict[str, asyncio.Task[None]] = {}
        self.freed = asyncio.Event()
        self.opening = asyncio.Lock()

    async def run(self) -> None:
        """Work until told to stop; then give back what is not done."""
        await self.open()
        loops = [asyncio.create_task(loop()) for loop in (self.claim_loop, self.beat_loop, self.sweep_loop)]
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        for loop in loops:
            loop.cancel()
        for work in self.running.values():
            work.cancel()
        await asyncio.gather(*loops, *self.running.values(), return_exceptions=True)
        await self.control.close_session(self.session)

    async def open(self) -> None:
        session = await self.control.open_session(worker=self.name, pid=os.getpid())
        self.session = session.id

    async def begin_anew(self, lost: str) -> None:
        """Given up for dead: others have our jobs, so drop them and go on under a new session."""
        async with self.opening:
            if self.session != lost:
                return  # the other loop has noticed, too
            await self.open()
            for work in self.running.values():
                work.cancel()

    async def claim_loop(self) -> None:
        async with self.control.store.wake([f"queue:{queue}" for queue in QUEUES]) as wake:
            while True:
                self.freed.clear()
                free = self.settings.concurrency - len(self.running)
                if not free:
                    await self.freed.wait()
                    continue
                session = self.session
                try:
                    taken = await self.control.claim(QUEUES, session, free)
                except SessionLost:
                    await self.begin_anew(session)
                    continue
                for job in taken:
                    self.running[job.id] = asyncio.create_task(self.work(job))
                if len(taken) < free:
                    await wake.wait(self.settings.poll_s)

    async def beat_loop(self) -> None:
        while True:
            session = self.session
            (pulse,) = await self.control.beat([session])
            for job_id in pulse.cancelling:
                if job_id in self.running:
                    self.running[job_id].cancel()
            if not pulse.known:
                await self.begin_anew(session)
            await asyncio.sleep(self.settings.heartbeat_s)

    async def sweep_loop(self) -> None:
        while True:
            await asyncio.sleep(self.settings.sweep_s * random.uniform(0.5, 1.0))
            await self.control.sweep()

    async def work(self, job: Job) -> None:
        """One attempt, from the start mark to its end."""
        try:
            if (await self.control.start([job]))[0]:
                await self.attempt(job)
        except asyncio.CancelledError:
            if job.session != self.session:
                return
            # a cancel ends as one; a drain gives the job back
            await self.control.release([job], reason=f"stopped by {self.name}")
        finally:
            self.running.pop(job.id, None)
            self.freed.set()

    async def attempt(self, job: Job) -> None:
        limit = asyncio.timeout(job.options.run_timeout_s)
        try:
            async with limit:
                result = await TASKS[job.name](job, **decoded(job.payload))
        except TimeoutError as error:
            if limit.expired():
                await self.control.time_out([job], cause="run")
            else:
                await self.control.fail([Failure(job, error_info(error))])
        except Exception as error:  # noqa: BLE001 - a task may raise anything
            await self.control.fail([Failure(job, error_info(error))])
        else:
            # shielded: a result on its way is not called back; if the claim was lost, it is refused and recorded
            await asyncio.shield(self.control.complete([Completion(job, result)]))


async def main(url: str, name: str) -> None:
    logging.getLogger("mainstay").setLevel(logging.ERROR)
    store = await open_store(url)
    try:
        await Runner(Control(store, settings=Settings.from_env(os.environ)), name).run()
    finally:
        await store.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], sys.argv[2]))
