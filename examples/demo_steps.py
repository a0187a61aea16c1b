"""What the demo does, step by step."""

from __future__ import annotations

import asyncio
import time

import demo_tasks as tasks
from demo_jobs import ENDLESS, FROZEN, GROUP, KILLED, NIGHT, PARTS, UNKNOWN, WAITING, calls_to_submit
from demo_state import DemoState

from mainstay.clock import duration_text
from mainstay.control import decoded
from mainstay.model import Job
from mainstay.stores import Query

_MOST = 500
#: a write that waits longer than this waits for a frozen worker
_FREE_S = 0.5


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
        await demo.look()
        return set(demo.workers.alive) <= {
            session.worker for session in await demo.store.sessions() if not session.dead
        }

    await demo.until(all_up)
