"""The actions of operators: cancel, retry, force, change the priority, delete; queues, limits, workers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ..errors import Conflict, InvalidInput, InvalidTransition, JobNotFound, VersionChanged
from ..lifecycle import Move, table_of
from ..model import PLACE_MS, Job, QueueSettings, Session, Settings, check_id, rank_of
from ..stores import Deletion, JobStore, is_left_to_its_units, urgent_reads
from .drivers import Drivers, driver_id
from .options import LARGEST_NUMBER, check_priority, check_queue, check_text
from .rules import cancellation
from .worker_drain import drain
from .writer import Decision, MoveRequest, Moves, Outcome, Writer, at_version

log = logging.getLogger("mainstay.control")

#: a row that moved this often between reading and deleting is being worked on
_ROUNDS = 8


class Operations:
    """The actions of operators. Each names its actor and its reason."""

    def __init__(self, store: JobStore, writer: Writer, settings: Settings, drivers: Drivers, actor: str) -> None:
        self._drivers = drivers
        self._actor = actor
        self._store = store
        self._writer = writer
        self._boost_ms = round(settings.priority_boost_s * 1000)

    async def cancel(
        self, job_id: str, *, actor: str, reason: str = "cancelled on request", version: int | None = None
    ) -> Job:
        """Cancel: at once if no worker holds the job, else through `cancelling` with its grace. Cancelling twice is the
        same as once; raises `InvalidTransition` if the job has ended otherwise. With a `version`, here and below, the
        job must be at that version; else `VersionChanged` is raised."""
        _who_and_why(actor, reason)
        with urgent_reads():
            job = await self._writer.one(check_id(job_id), at_version(version, _cancel(reason)), actor=actor)
            await self._drivers.nudge(job)
        return job

    async def cancel_many(
        self, ids: Sequence[str], *, actor: str, reason: str = "cancelled on request"
    ) -> list[Outcome]:
        """Cancel many jobs, each by itself."""
        _who_and_why(actor, reason)
        with urgent_reads():
            outcomes = await self._many(ids, _cancel(reason), actor)
            for outcome in outcomes:
                if outcome.job is not None:
                    await self._drivers.nudge(outcome.job)
        return outcomes

    async def withdraw_many(
        self, ids: Sequence[str], *, actor: str, reason: str = "withdrawn on request"
    ) -> list[Outcome]:
        """Cancel the waiting ones of many jobs; a job that a worker has claimed since is refused and continues."""
        _who_and_why(actor, reason)
        return await self._many(ids, _withdraw(reason), actor)

    async def retry(
        self, job_id: str, *, actor: str, reason: str = "retried on request", version: int | None = None
    ) -> Job:
        """Send a job that settled without success, or waits for its retry, back to the queue now."""
        _who_and_why(actor, reason)
        return await self._writer.one(check_id(job_id), at_version(version, _retry(reason)), actor=actor)

    async def retry_many(self, ids: Sequence[str], *, actor: str, reason: str = "retried on request") -> list[Outcome]:
        """Send many jobs back to the queue, each by itself."""
        _who_and_why(actor, reason)
        return await self._many(ids, _retry(reason), actor)

    async def force(self, job_id: str, to: str, *, actor: str, reason: str, version: int | None = None) -> Job:
        """Move a job against the table. Audited as forced; nothing leaves a final state."""
        _who_and_why(actor, reason)

        def decide(job: Job, now_ms: int) -> Moves:
            # a forced job no longer waits for other jobs or for cores
            fields = {"due_ms": now_ms, "extra_ms": 0} if to == "pending" or job.due_ms >= PLACE_MS else {}
            return (Move(to=to, reason=reason, fields=fields, flag="forced"),)

        job = await self._writer.one(check_id(job_id), at_version(version, decide), actor=actor)
        log.warning("forced job_id=%s to=%s actor=%s reason=%s", job_id, to, actor, reason)
        return job

    async def set_priority(self, job_id: str, priority: int, *, actor: str, version: int | None = None) -> Job:
        """Change the priority of a job."""
        check_text(actor, field="actor")
        check_priority(priority)

        def decide(job: Job, _: int) -> Moves:
            if job.priority == priority:
                return ()
            state = table_of(job.parent).get(job.status)
            if state is None or state.final:
                raise InvalidInput("priority", f"job {job.id} is {job.status}; its priority no longer matters")
            # the wait for cores has no due time, so the one it had before is taken from its rank
            due_ms = job.rank + job.priority * self._boost_ms if job.awaits_cores else job.due_ms
            rank = rank_of(due_ms, priority, self._boost_ms)
            why = f"priority changed from {job.priority} to {priority}"
            return (Move(to=job.status, reason=why, fields={"priority": priority, "rank": rank}, flag="note"),)

        return await self._writer.one(check_id(job_id), at_version(version, decide), actor=actor)

    async def delete(self, job_id: str, *, actor: str, reason: str, version: int | None = None) -> None:
        """Delete one job that no worker holds; its tombstone stays."""
        versions = None if version is None else {job_id: version}
        answer = (await self.delete_many([job_id], actor=actor, reason=reason, versions=versions))[0]
        if answer == "changed" and version is not None:
            (row,) = await self._store.get([job_id])
            if row is not None:
                raise VersionChanged(job_id, version, now=row.version)
        if answer in ("missing", "changed"):
            raise JobNotFound(job_id)
        if answer == "held":
            raise Conflict(f"job {job_id} is being worked on; cancel it first, then delete it")

    async def delete_many(
        self, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None = None
    ) -> list[Deletion]:
        """Delete many jobs. A job that a worker holds is not deleted and answered with `held`; so is a job that its
        units advance, and its driver. A job that is not at the given version is not deleted and answered with
        `changed`."""
        _who_and_why(actor, reason)
        meant = versions or {}
        answers: dict[int, Deletion] = {}
        todo = {place: check_id(job_id) for place, job_id in enumerate(ids)}
        for _ in range(_ROUNDS):
            answers |= zip(todo, await self._delete(list(todo.values()), meant, actor, reason), strict=True)
            todo = {place: each for place, each in todo.items() if answers[place] == "changed" and each not in meant}
            if not todo:
                break
        # the rest kept moving: workers are busy with them
        answers |= dict.fromkeys(todo, "held")
        return [answers[place] for place in range(len(ids))]

    # workers, queues, limits --------------------------------------------------------------------------

    async def drain(self, worker: str, *, actor: str) -> list[Session]:
        """Ask a worker, by its name or by the id of one of its sessions, to drain as a signal would: it takes no more
        jobs, has its grace to finish the running ones, and exits. It learns of it with its next heartbeat. All its
        processes are asked, and returned; the first actor who asked stays on record. Raises `WorkerNotFound`."""
        return await drain(self._store, worker, by=actor)

    async def pause(self, queue: str, *, reason: str | None = None, actor: str | None = None) -> None:
        """Hand out no more jobs of a queue; running jobs continue. Actor, time and reason are kept until the next
        change; without an `actor`, the actor of this control applies."""
        if reason is not None:
            check_text(reason, field="reason", limit=1000)
        await self._set_queue(queue, actor, paused=True, reason=reason)

    async def resume(self, queue: str, *, actor: str | None = None) -> None:
        """Hand out jobs of a queue again."""
        await self._set_queue(queue, actor, paused=False, reason=None)

    async def set_limit(self, concurrency_key: str, most: int | None) -> None:
        """Run at most this many jobs of a concurrency key at a time; None lifts the limit."""
        check_text(concurrency_key, field="concurrency_key")
        if most is not None and (
            not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= LARGEST_NUMBER
        ):
            raise InvalidInput(
                "limit", f"{most!r} is not a whole number from 1 to {LARGEST_NUMBER}; pause the queue to stop it"
            )
        await self._store.set_limit(concurrency_key, most)

    async def _set_queue(self, queue: str, actor: str | None, *, paused: bool, reason: str | None) -> None:
        set_by = check_text(actor if actor is not None else self._actor, field="actor")
        await self._store.set_queue(
            QueueSettings(
                name=check_queue(queue), paused=paused, reason=reason, set_by=set_by, set_ms=self._store.clock.now_ms()
            )
        )

    async def _delete(self, ids: Sequence[str], meant: Mapping[str, int], actor: str, reason: str) -> list[Deletion]:
        rows = [row for row in await self._store.get(ids) if row is not None]
        # whether units advance a job was read with the row, so the row is deleted only at that version
        versions = {row.id: row.version for row in rows} | dict(meant)
        held = await self._left_to_units([row for row in rows if row.version == versions[row.id]])
        going = [each for each in ids if each not in held]
        rest = iter(await self._store.delete(going, actor=actor, reason=reason, versions=versions))
        return ["held" if each in held else next(rest) for each in ids]

    async def _left_to_units(self, found: Sequence[Job]) -> set[str]:
        rows = [row for row in found if row.settled_ms is None]
        parents = await self._store.get(sorted({row.parent for row in rows if row.parent is not None}))
        drivers = {driver_id(row) for row in parents if row is not None and is_left_to_its_units(row)}
        return {row.id for row in rows if row.id in drivers or is_left_to_its_units(row)}

    async def _many(self, ids: Sequence[str], decide: Decision, actor: str) -> list[Outcome]:
        jobs = await self._store.get([check_id(job_id) for job_id in ids])
        outcomes = iter(await self._writer.write([MoveRequest(job, decide, actor) for job in jobs if job is not None]))
        return [
            next(outcomes) if job is not None else Outcome("missing", None, JobNotFound(job_id))
            for job_id, job in zip(ids, jobs, strict=True)
        ]


def _cancel(reason: str) -> Decision:
    return lambda job, now_ms: cancellation.cancel(job, reason, now_ms=now_ms)


def _withdraw(reason: str) -> Decision:
    def decide(job: Job, now_ms: int) -> Moves:
        state = table_of(job.parent).get(job.status)
        if state is not None and (state.holds or state.settled) and job.status != "cancelled":
            why = "it no longer waits"
            raise InvalidTransition(job.id, job.status, "cancelled", allowed=state.next, why=why)
        return cancellation.cancel(job, reason, now_ms=now_ms)

    return decide


def _retry(reason: str) -> Decision:
    def decide(job: Job, now_ms: int) -> Moves:
        state = table_of(job.parent).get(job.status)
        if state is not None and state.holds:
            why = "a worker runs it; wait for it, or cancel it"
            raise InvalidTransition(job.id, job.status, "pending", allowed=state.next, why=why)
        if job.awaits_cores:
            why = "it waits for cores of nodes; wait for them, or start a node"
            raise InvalidTransition(job.id, job.status, "pending", allowed=state.next if state else (), why=why)
        if state is not None and state.waiting and job.awaits:
            why = "it waits for other jobs; wait for them, or force it to run before them"
            raise InvalidTransition(job.id, job.status, "pending", allowed=state.next, why=why)
        return (Move(to="pending", reason=reason, fields={"due_ms": now_ms, "extra_ms": 0}),)

    return decide


def _who_and_why(actor: str, reason: str) -> None:
    check_text(actor, field="actor")
    check_text(reason, field="reason", limit=1000)
