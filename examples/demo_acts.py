"""What happens in the demo, act by act."""

from __future__ import annotations

import asyncio
import time

import demo_tasks as tasks
from demo_fates import ENDLESS, GROUP, HAUNTED, NIGHT, PARTS, UNKNOWN, VICTIM, WAITING, crowd
from demo_stage import Stage

from mainstay.clock import duration_text
from mainstay.control import decoded
from mainstay.model import Job
from mainstay.stores import Query

_MOST = 500
#: a write that waits longer than this waits for somebody who is frozen
_FREE_S = 0.5


async def submit(stage: Stage) -> None:
    """Submit everybody but the haunted one, duplicates included."""
    await stage.control.operations.pause(NIGHT, reason="nobody works at night")
    calls = crowd()
    began = time.perf_counter()
    handles = await tasks.app.submit_many(calls)
    took_ms = (time.perf_counter() - began) * 1000
    made = sum(handle.created for handle in handles)
    stage.screen.tell(f"{made} jobs submitted, in one durable commit of {took_ms:.0f} ms")
    stage.screen.tell(f"{len(calls) - made} more were repeats (by key, or unique), answered with the first job")
    await submit_specials(stage)


async def submit_specials(stage: Stage) -> None:
    """Those that depend on others, and those that no task of this program fits."""
    await tasks.import_orders.options(tags=[VICTIM]).submit(parts=PARTS)
    members = [tasks.square.options(tags=["member"]).job(n) for n in GROUP]
    await tasks.app.group(members, then=tasks.total.options(tags=["callback"]).job())
    stage.screen.tell(f"a group of {len(members)}, and one job that runs when all of them are done")
    hopeless = await stage.jobs("hopeless")
    for job in hopeless[:2]:
        await tasks.send_receipt.options(tags=["orphan"], after=[job.id]).submit(0)
    await stage.control.jobs.submit("invoice.print", {"order": 7}, tags=[UNKNOWN])
    await stage.control.jobs.submit("card.charge", {"number": 7}, tags=["misfit"])


async def start(stage: Stage) -> None:
    """Start two workers, as an operator would."""
    names = [stage.workers.start() for _ in range(2)]
    stage.screen.tell(f"{' and '.join(names)} start: mainstay worker {tasks.__name__}:app")
    await _until_up(stage)


async def cancel(stage: Stage) -> None:
    """Cancel what waits, and what runs."""
    ids = [job.id for job in await stage.jobs(WAITING)]
    answers = await stage.control.operations.cancel_many(ids, actor="you", reason="changed my mind")
    stage.screen.tell(f"{sum(answer.ok for answer in answers)} waiting jobs cancelled at once")

    async def all_run() -> bool:
        return all(job.status == "running" and job.started_ms for job in await stage.jobs(ENDLESS))

    await stage.until(all_run)
    ids = [job.id for job in await stage.jobs(ENDLESS)]
    began = time.perf_counter()
    await stage.control.operations.cancel_many(ids, actor="you", reason="enough")
    for job_id in ids:
        await stage.control.jobs.wait(job_id)
    took_ms = (time.perf_counter() - began) * 1000
    stage.screen.tell(f"{len(ids)} running jobs asked to stop: they did, in {took_ms:.0f} ms")


async def kill_one(stage: Stage) -> None:
    """Kill a worker in the middle of its jobs, and see them run again."""

    async def half_way() -> bool:
        job = await stage.job(VICTIM)
        return job.checkpoint is not None and decoded(job.checkpoint) == PARTS // 2

    await stage.until(half_way)
    victim = await stage.job(VICTIM)
    assert victim.session is not None
    name = await stage.worker_of(victim)
    held = {job.id for job in await _held_by(stage, victim.session)}
    killed_ms = stage.store.clock.now_ms()
    pid = stage.workers.kill(name)
    held |= {job.id for job in await _held_by(stage, victim.session)}
    stage.screen.tell(f"{name} (pid {pid}) killed with SIGKILL, half-way through {victim.name}", "bold red")
    stage.screen.tell(f"{stage.workers.start()} is started in its place")

    async def over() -> bool:
        return (await stage.job(VICTIM)).status == "succeeded"

    await stage.until(over)
    waits_s = sorted([wait_s for job_id in held if (wait_s := await _ran_again(stage, job_id, killed_ms)) is not None])
    if not waits_s:
        stage.wrong.append("nobody took over the jobs of the killed worker")
        return
    first, last = (duration_text(round(wait_s, 1)) for wait_s in (waits_s[0], waits_s[-1]))
    when = last if first == last else f"{first} to {last}"
    count = f"{len(waits_s)} {'job' if len(waits_s) == 1 else 'jobs'}"
    stage.screen.tell(f"the system freed its lock: the {count} it held ran again, {when} later", "green")


async def _held_by(stage: Stage, session: str) -> list[Job]:
    return (await stage.control.store.find(Query(session=session), limit=_MOST)).jobs


async def _ran_again(stage: Stage, job_id: str, killed_ms: int) -> float | None:
    """How long after the kill a job was taken up again; None if the kill did not touch it."""
    taken_back = False
    for event in await stage.control.jobs.events(job_id):
        if event.at_ms < killed_ms:
            continue
        taken_back |= event.actor == "sweeper" and event.source == "running"
        if taken_back and event.to == "running":
            return (event.at_ms - killed_ms) / 1000
    return None


async def freeze_one(stage: Stage) -> None:
    """Freeze a worker for longer than its lease, and let it come back as a ghost."""
    await _until_up(stage)
    flag = stage.folder / "let-the-ghost-finish"
    handle = await tasks.render_report.options(tags=[HAUNTED]).submit(str(flag))

    async def begun() -> bool:
        return (await stage.job(HAUNTED)).started_ms is not None

    await stage.until(begun)
    job = await stage.job(HAUNTED)
    name = await stage.worker_of(job)
    await _freeze(stage, name)
    stage.screen.tell(f"{name} frozen with SIGSTOP in {job.name}: alive, but not a beat from it", "bold yellow")
    settled = await handle.wait()
    flag.touch()
    stage.workers.thaw(name)
    stage.screen.tell(f"its lease ran out; the job was run elsewhere and has {settled.status}", "green")

    async def refused() -> bool:
        return bool(await stage.store.refusals(handle.id))

    await stage.until(refused)
    stage.screen.tell(f"{name} goes on, with a result of its own: refused, its token is old", "green")


async def _freeze(stage: Stage, name: str) -> None:
    """SQLite has one writer at a time. Who freezes while it writes holds up everybody; that is another story."""
    while True:
        stage.workers.freeze(name)
        probe = asyncio.ensure_future(stage.control.operations.pause(NIGHT, reason="nobody works at night"))
        done, _ = await asyncio.wait([probe], timeout=_FREE_S)
        if done:
            return
        stage.workers.thaw(name)
        await probe


async def _until_up(stage: Stage) -> None:
    """Wait until every worker has its session."""

    async def all_up() -> bool:
        await stage.look()
        return set(stage.workers.alive) <= {
            session.worker for session in await stage.store.sessions() if not session.dead
        }

    await stage.until(all_up)
