"""`make demo`: a few hundred jobs meet every fate, on SQLite, in a temporary folder.

Three worker processes run them; one is killed in the middle of a job, one hangs past its lease and comes back as a
ghost. At the end every job is asked what happened to it, and the answer is proven. Exit code 1 if anything is not as
expected.

`demo_fates.py` is the cast, `demo_tasks.py` what the jobs do, `demo_runner.py` the worker (a stand-in for the one of
the next release), `demo_workers.py` its processes, and `demo_screen.py` what you see.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import apsw
from demo_fates import fates
from demo_screen import Screen, summary, timeline
from demo_workers import SETTINGS, Workers
from rich.text import Text

from mainstay.clock import duration_text
from mainstay.control import Control
from mainstay.control.check import check
from mainstay.lifecycle import JOB
from mainstay.model import Job, Settings
from mainstay.stores import JobStore, Query, open_store

PATIENCE_S = 60


class Demo:
    """The story, told on a screen."""

    def __init__(self, folder: Path, store: JobStore) -> None:
        self.folder = folder
        self.store = store
        self.control = Control(store, settings=Settings.of(**SETTINGS), rng=random.Random(7), actor="demo")
        self.workers = Workers(folder, store.url)
        self.flag = folder / "let-the-ghost-return"
        self.cast = fates(random.Random(7), self.flag)
        self.ids: dict[str, list[str]] = {}
        self.names: dict[str, str] = {}
        self._counts: Mapping[str, int] = dict.fromkeys(JOB.states, 0)
        self.screen = Screen(self)
        self.wrong: list[str] = []

    @property
    def counts(self) -> Mapping[str, int]:
        """How many jobs are in which state."""
        return self._counts

    @property
    def moods(self) -> dict[str, str]:
        """How each worker is doing."""
        return self.workers.moods

    async def play(self) -> None:
        """The acts, one after the other, until every job is settled."""
        watching = asyncio.create_task(self.watch())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.submit()
                for _ in range(3):
                    self.workers.start()
                self.screen.tell("3 worker processes start (a stand-in for the worker to come)")
                await self.cancel()
                await self.kill_one()
                await self.hang_one()
                await self.until(self.all_settled)
            self.screen.tell("every job is settled", "bold")
        finally:
            watching.cancel()
            self.flag.touch()  # whatever went wrong, let go of whoever hangs
            for name in self.workers.stop():
                self.wrong.append(f"{name} ended badly; see {self.folder / name}.log")

    async def watch(self) -> None:
        """Keep the bars true, and learn which session is whose."""
        while True:
            await self.look()
            self.screen.tick()
            await asyncio.sleep(0.1)

    async def look(self) -> None:
        """Count the jobs once."""
        stats = await self.control.stats()
        counts: Counter[str] = Counter()
        for queue in stats.queues.values():
            counts.update(queue.counts)
        self._counts = {name: counts[name] for name in (*JOB.states, *(counts.keys() - JOB.states.keys()))}
        self.names |= {session.id: session.worker for session in await self.store.sessions()}

    async def until(self, true: Callable[[], Awaitable[bool]]) -> None:
        """Wait until something is true of the store."""
        while not await true():  # noqa: ASYNC110 - the truth is in a database, where other processes write it
            await asyncio.sleep(0.05)

    async def all_settled(self) -> bool:
        """Whether nothing is left to happen."""
        await self.look()
        return all(not n or JOB.states[name].settled for name, n in self.counts.items())

    async def jobs(self, tag: str) -> list[Job]:
        """The jobs of one fate, as they are now."""
        return [await self.control.get(job_id) for job_id in self.ids[tag]]

    # the acts -----------------------------------------------------------------------------------------

    async def submit(self) -> None:
        """Submit everybody but the haunted one, duplicates included."""
        await self.control.pause("night", reason="nobody works at night")
        early = [fate for fate in self.cast if fate.tag != "haunted"]
        requests = [request for fate in early for request in fate.requests]
        began = time.perf_counter()
        answers = iter(await self.control.submit_many(requests))
        took_ms = (time.perf_counter() - began) * 1000
        for fate in early:
            self.ids[fate.tag] = list(dict.fromkeys(next(answers).id for _ in fate.requests))
        made = sum(map(len, self.ids.values()))
        self.screen.tell(f"{made} jobs submitted, in one durable commit of {took_ms:.0f} ms")
        self.screen.tell(f"{len(requests) - made} more were duplicates by key, answered with the first job")

    async def cancel(self) -> None:
        """Cancel what waits, and what runs."""
        waiting = await self.control.cancel_many(self.ids["waiting"], actor="you", reason="changed my mind")
        self.screen.tell(f"{sum(answer.ok for answer in waiting)} waiting jobs cancelled at once")

        async def all_begun() -> bool:
            return all(job.started_ms for job in await self.jobs("endless"))

        await self.until(all_begun)
        await self.control.cancel_many(self.ids["endless"], actor="you", reason="enough")
        self.screen.tell(f"{len(self.ids['endless'])} running jobs asked to stop: cancelling, then cancelled")

    async def kill_one(self) -> None:
        """Kill a worker in the middle of a job, and see the job taken back."""

        async def in_the_thick() -> bool:
            (victim,) = await self.jobs("victim")
            return victim.started_ms is not None and self.counts["succeeded"] >= 60

        await self.until(in_the_thick)
        (victim,) = await self.jobs("victim")
        assert victim.session is not None
        name = await self.worker_of(victim)
        held = (await self.control.find(Query(session=victim.session))).jobs
        killed_ms = self.store.clock.now_ms()
        pid = self.workers.kill(name)
        self.screen.tell(f"{name} (pid {pid}) killed with SIGKILL in the middle of {victim.name}", "bold red")

        async def taken_back() -> bool:
            return (await self.control.get(victim.id)).crashes > 0

        await self.until(taken_back)
        reaped = [
            event.at_ms
            for job in held
            for event in await self.control.events(job.id)
            if event.actor == "sweeper" and event.source == "running" and event.at_ms >= killed_ms
        ]
        after = duration_text((max(reaped, default=killed_ms) - killed_ms) / 1000)
        self.screen.tell(f"its session lock is free: {len(reaped)} jobs taken back after {after}", "green")
        self.screen.tell(f"{self.workers.start()} takes its place")
        await self.control.wait(victim.id)

    async def hang_one(self) -> None:
        """Let a worker hang past its lease, and come back as a ghost."""
        (fate,) = (fate for fate in self.cast if fate.tag == "haunted")
        made = await self.control.submit_many(fate.requests)
        self.ids["haunted"] = [answer.id for answer in made]
        job_id = made[0].id

        async def begun() -> bool:
            return (await self.control.get(job_id)).started_ms is not None

        await self.until(begun)
        job = await self.control.get(job_id)
        name = await self.worker_of(job)
        self.moods[name] = "hangs"
        self.screen.tell(f"{name} hangs in {job.name}: alive, but not a beat from it", "bold yellow")
        await self.control.wait(job_id)
        self.screen.tell("its lease ran out; another worker has finished the job", "green")
        self.flag.touch()

        async def refused() -> bool:
            return bool(await self.store.refusals(job_id))

        await self.until(refused)
        self.moods[name] = "works"
        self.screen.tell(f"{name} is back with its own result: refused, its token is old", "green")

    async def worker_of(self, job: Job) -> str:
        """The name of the worker that holds a job."""
        await self.look()
        return self.names[job.session or ""]

    # the proof ----------------------------------------------------------------------------------------

    async def tell_fates(self) -> None:
        """Judge every fate: the states, and the proof of each job."""
        self.screen.title("what became of them")
        rows = []
        for fate in self.cast:
            jobs = await self.jobs(fate.tag)
            fine = (
                len(jobs) == (fate.jobs or len(fate.requests))
                and all(job.status == fate.expected for job in jobs)
                and all(fate.proof(job) for job in jobs)
            )
            if not fine:
                self.wrong.append(f"not as expected: {fate.title}")
            got = ", ".join(f"{n} {status}" for status, n in Counter(job.status for job in jobs).items())
            rows.append((fate.title, len(jobs), fate.expected, got, fine))
        self.screen.console.print(summary(rows))

    async def tell_story(self) -> None:
        """The audit trails of the two jobs that lived through most."""
        (victim,) = await self.jobs("victim")
        self.screen.title(f"the story of {victim.name}, as its audit trail tells it")
        await self.tell_trail(victim)
        (haunted,) = await self.jobs("haunted")
        self.screen.title(f"the story of {haunted.name}, and its ghost")
        await self.tell_trail(haunted)
        if not await self.store.refusals(haunted.id):
            self.wrong.append("the ghost was not refused")

    async def tell_trail(self, job: Job) -> None:
        """One audit trail, with what was refused."""
        rows = []
        for event in await self.control.events(job.id):
            move = f"{event.source or 'new'} → {event.to}"
            rows.append((event.at_ms, move, self.named(event.actor), self.named(event.reason or "")))
        for refusal in await self.store.refusals(job.id):
            why = f"refused: its claim (token {refusal.token}) had been lost"
            rows.append((refusal.at_ms, f"{refusal.wanted}?", self.named(refusal.session), why))
        rows.sort(key=lambda row: row[0])
        start_ms = rows[0][0]
        shown = [(f"+{(at_ms - start_ms) / 1000:.3f}s", move, who, why) for at_ms, move, who, why in rows]
        self.screen.console.print(timeline(shown))

    def named(self, text: str) -> str:
        """Session ids are long; their workers have names."""
        for session, name in self.names.items():
            text = text.replace(f"session {session}", name).replace(session, name)
        return text

    async def prove(self) -> None:
        """Check the store, then check a copy in which somebody rewrote an event."""
        self.screen.title("can you prove it?")
        report = await check(self.store)
        say = self.screen.console.print
        verdict = Text("clean", style="green") if report.clean else Text("NOT clean", style="bold red")
        say(Text("check: ").append_text(verdict).append(f", {report.checked} jobs and the event chain of each"))
        if not report.clean:
            self.wrong += [f"check: {found.job_id} {found.message}" for found in report.violations]
        (victim,) = await self.jobs("victim")
        crash = next(event for event in await self.control.events(victim.id) if event.to == "timed_out")
        forged = self.folder / "forged.db"
        forge(Path(self.store.url.removeprefix("sqlite:///")), forged, victim.id, crash.seq)
        say(Text(f"now somebody rewrites event {crash.seq} of {victim.name} in a copy, to hide the crash:"))
        copy = await open_store(f"sqlite:///{forged}")
        found = (await check(copy)).violations
        await copy.close()
        for each in found:
            say(Text("check: ").append(f"{each.code}: {each.message}", style="red"))
        if [each.job_id for each in found] != [victim.id]:
            self.wrong.append("the check did not find exactly the forged event")

    def tell_next(self) -> None:
        """What to type next."""
        self.screen.title("try next")
        command = "mainstay" if shutil.which("mainstay") else str(Path(sys.executable).with_name("mainstay"))
        command = min(command, os.path.relpath(command), key=len) if "/" in command else command
        (victim,) = self.ids["victim"]
        for line in (
            f"export MAINSTAY_STORE={self.store.url}",
            f"{command} stats",
            f"{command} jobs list --status quarantined",
            f"{command} jobs show {victim}",
            f"{command} check",
            f"{command} check -s sqlite:///{self.folder / 'forged.db'}",
            f"{command} machine",
        ):
            self.screen.console.print(Text("  " + line, style="cyan"), soft_wrap=True)
        self.screen.console.print(Text(f"\nremove it all with: rm -r {self.folder}", style="dim"), soft_wrap=True)


def forge(source: Path, copy: Path, job_id: str, seq: int) -> None:
    """A copy of the database in which one event reads better than it was."""
    database = apsw.Connection(str(source))
    database.execute("VACUUM INTO ?", (str(copy),))
    database.close()
    database = apsw.Connection(str(copy))
    database.execute("UPDATE events SET reason = 'a planned pause' WHERE job_id = ? AND seq = ?", (job_id, seq))
    database.close()


async def main(folder: Path) -> int:
    """Play the demo in a folder; the exit code."""
    logging.getLogger("mainstay").setLevel(logging.ERROR)
    store = await open_store(f"sqlite:///{folder / 'jobs.db'}")
    demo = Demo(folder, store)
    try:
        demo.screen.console.print(
            Text("Mainstay", style="bold").append(f"  {store.url}", style="dim not bold"), soft_wrap=True
        )
        with demo.screen:
            await demo.play()
        await demo.tell_fates()
        await demo.tell_story()
        await demo.prove()
        demo.tell_next()
    except TimeoutError:
        demo.wrong.append(f"not done after {PATIENCE_S} s; the folder {folder} has the logs of the workers")
    finally:
        await store.close()
    for each in demo.wrong:
        demo.screen.console.print(Text(each, style="bold red"))
    return 1 if demo.wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A few hundred jobs meet every fate.")
    parser.add_argument("--folder", type=Path, help="where to work (default: a new temporary folder, kept)")
    chosen = parser.parse_args().folder or Path(tempfile.mkdtemp(prefix="mainstay-demo-"))
    if (chosen / "jobs.db").exists():
        parser.error(f"{chosen} holds a jobs.db already; choose another folder")
    chosen.mkdir(parents=True, exist_ok=True)
    try:
        sys.exit(asyncio.run(main(chosen.absolute())))
    except KeyboardInterrupt:
        print(f"\nstopped; what there is so far is in {chosen}\nremove it with: rm -r {chosen}")
        sys.exit(130)
