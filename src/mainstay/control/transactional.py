"""Submit within an open transaction of the user: a rollback also takes back the jobs.

The rules are those of `submit`; only the writer differs. The store need not be open: the time and the state of the
schema are read through the user's connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from ..errors import AlreadySubmitted, Conflict, InvalidInput
from ..lifecycle import Chain
from ..stores import Durability, InsertResult, NewJob, strongest
from .group import SubmittedGroup, group_jobs, in_group, known_group
from .job_factory import JobFactory, JobRequest, in_requests
from .options import Plan

if TYPE_CHECKING:
    from ..stores.postgres.enqueue import Steps, TransactionalEnqueue


class Enqueuer:
    """Creates jobs and stores them in the user's transaction. Its methods return steps, to be run on the connection of
    that transaction."""

    def __init__(self, enqueue: TransactionalEnqueue, factory: JobFactory, chain: Chain) -> None:
        self._enqueue = enqueue
        self._factory = factory
        self._chain = chain

    def submit_many(self, requests: Iterable[JobRequest]) -> Steps[list[InsertResult]]:
        """Submit all or none."""
        now_ms = yield from self._enqueue.arrive(self._chain.fingerprint)
        prepared = self._factory.make(requests, now_ms=now_ms, chain=self._chain)
        for index, (new, plan) in enumerate(prepared):
            if plan.on_clash == "replace" and new.job.unique_key is not None:
                raise InvalidInput(
                    f"requests[{index}].on_clash" if len(prepared) > 1 else "on_clash",
                    "'replace' needs its own transaction; submit without the connection",
                )
        if not prepared:
            return []
        jobs = [new for new, _ in prepared]
        try:
            return (yield from self._insert(jobs, strongest(plan.durability for _, plan in prepared)))
        except (Conflict, InvalidInput) as error:
            raise in_requests(error, len(jobs)) from error.__cause__

    def submit_group(
        self,
        members: Iterable[JobRequest],
        then: JobRequest,
        *,
        when: Literal["succeeded", "settled"],
        failed: Literal["skip", "fail"],
    ) -> Steps[SubmittedGroup]:
        """Members and callback, all or none."""
        now_ms = yield from self._enqueue.arrive(self._chain.fingerprint)
        factory = self._factory
        new_jobs = partial(factory.together, now_ms=now_ms, chain=self._chain)
        jobs, durability = group_jobs(
            members, then, when=when, failed=failed, plan=self._factory.plan, new_jobs=new_jobs
        )
        try:
            stored = yield from self._insert(jobs, durability)
        except AlreadySubmitted as known:
            return known_group(known.job_id, jobs, (yield from self._enqueue.awaited(known.job_id)))
        except (Conflict, InvalidInput) as error:
            raise in_group(error, len(jobs) - 1) from error.__cause__
        return SubmittedGroup(stored[-1], stored[:-1])

    def _insert(self, jobs: Sequence[NewJob], durability: Durability | None) -> Steps[list[InsertResult]]:
        for index, new in enumerate(jobs):
            if new.job.parent is not None:
                raise InvalidInput(f"jobs[{index}].parent", "a unit is submitted with its job, not in a transaction")
        results, text = yield from self._enqueue.insert(jobs, chain=self._chain, durability=durability)
        for result in results:
            result.durability = text
        return results


def _level(plans: Iterable[Plan]) -> Durability | None:
    return strongest(plan.durability for plan in plans)
