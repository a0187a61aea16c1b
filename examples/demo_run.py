"""The steps of the demo, from the first job to the last check. Import it after the environment names the store."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import demo_checks as checks
import demo_tasks as tasks
from demo_jobs import ENDLESS, FROZEN, GROUP, KILLED, NIGHT, PARTS, UNKNOWN, WAITING, calls_to_submit
from demo_view import Screen
from demo_workers import Workers
from rich.text import Text

from mainstay.clock import duration_text
from mainstay.control import Control, decoded
from mainstay.lifecycle import JOB
from mainstay.model import Job, Lane, Settings
from mainstay.stores import JobStore, Query

_PATIENCE_S = 60
_REFRESH_S = 0.1
_POLL_S = 0.03
_MOST = 500
#: a write that waits longer than this waits for a frozen worker
_FREE_S = 0.5


class DemoState:
    """What all parts of the demo share: the store, the workers, the screen, and ways to read and to wait. Made with an
    open app."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control: Control = tasks.app.control
        self.store: JobStore = self.control.store
        self.workers = Workers(folder)
        self.names: dict[str, str] = {}
        """of the workers, by session"""
        self.problems: list[str] = []
        """what was not as expected"""
        self.counts: Mapping[str, int] = dict.fromkeys(JOB.states, 0)
        """the number of jobs by status"""
        self.screen = Screen(self)

    async def watch(self) -> None:
        """Update the counts until cancelled."""
        while True:
            await self.refresh()
            self.screen.tick()
            await asyncio.sleep(_REFRESH_S)

    async def refresh(self) -> None:
        """Read the counts and the names of the sessions once."""
        counts: Counter[str] = Counter()
        for queue in (await self.control.store.stats()).queues.values():
            counts.update(queue.counts)
        self.counts = {name: counts[name] for name in (*JOB.states, *(counts.keys() - JOB.states.keys()))}
        self.names |= {session.id: session.worker for session in await self.store.sessions()}

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a condition is true."""
        while not await condition():
            await asyncio.sleep(_POLL_S)

    async def jobs(self, tag: str) -> list[Job]:
        """The jobs with a tag, as they are now."""
        return (await self.control.store.find(Query(tag=tag), limit=_MOST)).jobs

    async def job(self, tag: str) -> Job:
        """The only job with a tag."""
        (job,) = await self.jobs(tag)
        return job

    async def all_settled(self) -> bool:
        """Whether all jobs have settled, except the one whose task no worker has."""
        await self.refresh()
        parked = sum(job.lane == Lane.ROUTED for job in await self.jobs(UNKNOWN))
        return sum(n for name, n in self.counts.items() if not JOB.states[name].settled) == parked > 0

    async def worker_of(self, job: Job) -> str:
        """The name of the worker that holds a job."""
        await self.refresh()
        return self.names[job.session or ""]

    def named(self, text: str) -> str:
        """Replace session ids by the names of their workers."""
        for session, name in self.names.items():
            text = text.replace(f"session {session}", name).replace(session, name)
        return text


async def run_demo(folder: Path, *, keep: bool) -> int:
    """Run it in a folder; returns the exit code. No worker is left running, however it ends."""
    async with tasks.app:
        demo = DemoState(folder)
        try:
            await _run_and_report(demo, keep=keep)
        except TimeoutError:
            demo.problems.append(f"not done after {_PATIENCE_S} s")
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C would leave a worker running
            demo.workers.end()
    for each in demo.problems:
        demo.screen.console.print(Text(each, style="bold red"))
    if demo.problems and not keep:
        demo.screen.console.print("--keep keeps the database and the logs of the workers")
    return 1 if demo.problems else 0


async def _run_and_report(demo: DemoState, *, keep: bool) -> None:
    head = Text("Mainstay", style="bold").append(f"  {demo.store.url}", style="dim not bold")
    demo.screen.console.print(head, soft_wrap=True)
    lease, usual = (duration_text(settings.lease_s) for settings in (tasks.app.settings, Settings()))
    note = f"all times are shorter than the defaults: the lease is {lease} instead of {usual}, and so on"
    demo.screen.console.print(Text(note, style="dim"))
    with demo.screen:
        async with asyncio.timeout(_PATIENCE_S):
            await _run_steps(demo)
    await checks.show_results(demo)
    await checks.show_stories(demo)
    await checks.check_store(demo)
    await show_next_commands(demo, keep=keep)


async def _run_steps(demo: DemoState) -> None:
    watching = asyncio.create_task(demo.watch())
    try:
        await submit(demo)
        await start(demo)
        await cancel(demo)
        await kill_one(demo)
        await freeze_one(demo)
        await demo.until(demo.all_settled)
        demo.screen.log("every job is settled, except the one whose task no worker has", "bold")
        failed = await asyncio.to_thread(demo.workers.stop)
    finally:
        watching.cancel()
    demo.problems += [f"{name} did not stop cleanly; see {demo.folder / name}.log" for name in failed]
    demo.screen.log("the workers got SIGTERM and have stopped")


async def show_next_commands(demo: DemoState, *, keep: bool) -> None:
    """Commands to try next."""
    demo.screen.title("try next")
    here = Path(__file__).parent
    if not keep:
        lines = [f"{_shortest(sys.executable)} {_shortest(str(here / 'demo.py'))} --keep"]
    else:
        command = "mainstay" if shutil.which("mainstay") else _shortest(str(Path(sys.executable).with_name("mainstay")))
        job = await demo.job(KILLED)
        lines = [
            f"export MAINSTAY_STORE={demo.store.url}",
            f"{command} stats",
            f"{command} jobs list --status quarantined",
            f"{command} jobs explain {job.id}",
            f"{command} check",
            f"{command} check -s sqlite:///{demo.folder / 'forged.db'}",
            f"PYTHONPATH={_shortest(str(here))} {command} worker demo_tasks:app",
        ]
    for line in lines:
        demo.screen.console.print(Text("  " + line, style="cyan"), soft_wrap=True)
    last = f"remove it all with: rm -r {demo.folder}" if keep else "runs it again, and keeps the database to inspect"
    demo.screen.console.print(Text(last, style="dim"), soft_wrap=True)


def _shortest(path: str) -> str:
    return min(path, os.path.relpath(path), key=len)


async def submit(demo: DemoState) -> None:
    """Submit all jobs but the one of the frozen worker, duplicates included."""
    await demo.control.operations.pause(NIGHT, reason="closed at night")
    calls = calls_to_submit()
    began = time.perf_counter()
    handles = await tasks.app.submit_many(calls)
    took_ms = (time.perf_counter() - began) * 1000
    made = sum(handle.created for handle in handles)
    demo.screen.log(f"{made} jobs submitted, in one durable commit of {took_ms:.0f} ms")
    demo.screen.log(f"{len(calls) - made} more were repeats (by key, or unique), which return the first job")
    await submit_specials(demo)


async def submit_specials(demo: DemoState) -> None:
    """Jobs that depend on others, and jobs that fit no task of this program."""
    await tasks.import_orders.options(tags=[KILLED]).submit(parts=PARTS)
    members = [tasks.square.options(tags=["member"]).job(n) for n in GROUP]
    await tasks.app.group(members, then=tasks.total.options(tags=["callback"]).job())
    demo.screen.log(f"a group of {len(members)}, and one job that runs when all of them are done")
    hopeless = await demo.jobs("hopeless")
    for job in hopeless[:2]:
        await tasks.send_receipt.options(tags=["orphan"], after=[job.id]).submit(0)
    await demo.control.jobs.submit("invoice.print", {"order": 7}, tags=[UNKNOWN])
    await demo.control.jobs.submit("card.charge", {"number": 7}, tags=["misfit"])


async def start(demo: DemoState) -> None:
    """Start two workers, as an operator would."""
    names = [demo.workers.start() for _ in range(2)]
    demo.screen.log(f"{' and '.join(names)} start: mainstay worker {tasks.__name__}:app")
    await _until_up(demo)


async def cancel(demo: DemoState) -> None:
    """Cancel waiting and running jobs."""
    ids = [job.id for job in await demo.jobs(WAITING)]
    answers = await demo.control.operations.cancel_many(ids, actor="you", reason="changed my mind")
    demo.screen.log(f"{sum(answer.ok for answer in answers)} waiting jobs cancelled at once")

    async def all_run() -> bool:
        return all(job.status == "running" and job.started_ms for job in await demo.jobs(ENDLESS))

    await demo.until(all_run)
    ids = [job.id for job in await demo.jobs(ENDLESS)]
    began = time.perf_counter()
    await demo.control.operations.cancel_many(ids, actor="you", reason="enough")
    for job_id in ids:
        await demo.control.jobs.wait(job_id)
    took_ms = (time.perf_counter() - began) * 1000
    demo.screen.log(f"{len(ids)} running jobs asked to stop: they did, in {took_ms:.0f} ms")


async def kill_one(demo: DemoState) -> None:
    """Kill a worker in the middle of its jobs, and wait until they run again."""

    async def half_way() -> bool:
        job = await demo.job(KILLED)
        return job.checkpoint is not None and decoded(job.checkpoint) == PARTS // 2

    await demo.until(half_way)
    job = await demo.job(KILLED)
    assert job.session is not None
    name = await demo.worker_of(job)
    held = {each.id for each in await _held_by(demo, job.session)}
    killed_ms = demo.store.clock.now_ms()
    pid = demo.workers.kill(name)
    held |= {each.id for each in await _held_by(demo, job.session)}
    demo.screen.log(f"{name} (pid {pid}) killed with SIGKILL, half-way through {job.name}", "bold red")
    demo.screen.log(f"{demo.workers.start()} starts in its place")

    async def over() -> bool:
        return (await demo.job(KILLED)).status == "succeeded"

    await demo.until(over)
    waits_s = sorted([wait_s for job_id in held if (wait_s := await _ran_again(demo, job_id, killed_ms)) is not None])
    if not waits_s:
        demo.problems.append("no worker took over the jobs of the killed one")
        return
    first, last = (duration_text(round(wait_s, 1)) for wait_s in (waits_s[0], waits_s[-1]))
    when = last if first == last else f"{first} to {last}"
    count = f"{len(waits_s)} {'job' if len(waits_s) == 1 else 'jobs'}"
    demo.screen.log(f"the system freed its lock: the {count} it held ran again, {when} later", "green")


async def _held_by(demo: DemoState, session: str) -> list[Job]:
    return (await demo.control.store.find(Query(session=session), limit=_MOST)).jobs


async def _ran_again(demo: DemoState, job_id: str, killed_ms: int) -> float | None:
    """How long after the kill a job ran again; None if the kill did not affect it."""
    taken_back = False
    for event in await demo.control.jobs.events(job_id):
        if event.at_ms < killed_ms:
            continue
        taken_back |= event.actor == "sweeper" and event.source == "running"
        if taken_back and event.to == "running":
            return (event.at_ms - killed_ms) / 1000
    return None


async def freeze_one(demo: DemoState) -> None:
    """Freeze a worker for longer than its lease, and let it come back with a stale claim."""
    await _until_up(demo)
    flag = demo.folder / "let-the-first-attempt-finish"
    handle = await tasks.render_report.options(tags=[FROZEN]).submit(str(flag))

    async def begun() -> bool:
        return (await demo.job(FROZEN)).started_ms is not None

    await demo.until(begun)
    job = await demo.job(FROZEN)
    name = await demo.worker_of(job)
    await _freeze(demo, name)
    demo.screen.log(f"{name} frozen with SIGSTOP in {job.name}: alive, but without a heartbeat", "bold yellow")
    settled = await handle.wait()
    flag.touch()
    demo.workers.thaw(name)
    demo.screen.log(f"its lease ran out; another worker ran the job, which has {settled.status}", "green")

    async def refused() -> bool:
        return bool(await demo.store.refusals(handle.id))

    await demo.until(refused)
    demo.screen.log(f"{name} continues and writes its own result: refused, its token is old", "green")


async def _freeze(demo: DemoState, name: str) -> None:
    """Freeze a worker that does not write: SQLite has one writer at a time, and a frozen one would block the others."""
    while True:
        demo.workers.freeze(name)
        while not demo.workers.is_frozen(name):
            await asyncio.sleep(0.01)
        probe = asyncio.ensure_future(demo.control.operations.pause(NIGHT, reason="closed at night"))
        done, _ = await asyncio.wait([probe], timeout=_FREE_S)
        if done:
            return
        demo.workers.thaw(name)
        await probe


async def _until_up(demo: DemoState) -> None:
    """Wait until every worker has its session."""

    async def all_up() -> bool:
        await demo.refresh()
        return set(demo.workers.alive) <= {
            session.worker for session in await demo.store.sessions() if not session.dead
        }

    await demo.until(all_up)
