"""What became of every job: nothing is taken from counters, each row and its events are read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec

from mainstay.control.check import check
from mainstay.stores import Audited, JobStore

_PAGE = 500
_EXAMPLES = 5

Progress = Callable[[int], None]


class Account(msgspec.Struct, kw_only=True):
    """All jobs of a store, held against what was acknowledged."""

    jobs: int = 0
    succeeded: int = 0
    lost: int = 0
    """acknowledged, and not there or not succeeded"""
    doubled: int = 0
    """completed more than once by the events"""
    unexpected: int = 0
    """there, though nobody was told"""
    claims: int = 0
    """how often a job was taken"""
    again: int = 0
    """of these, how often it had been taken before"""
    crashes: int = 0
    """runs that ended with their process"""
    released: int = 0
    """claims given back before the job had begun"""
    violations: int = 0
    """what `mainstay check` found"""
    check_s: float = 0.0
    examples: list[str] = []

    @property
    def right(self) -> bool:
        return not (self.lost or self.doubled or self.unexpected or self.violations)


async def taken(store: JobStore, acknowledged: set[str], progress: Progress) -> Account:
    """Walk over the whole store, then check it."""
    account = Account()
    missing = set(acknowledged)
    after = ""
    while page := await store.audit(after=after, limit=_PAGE):
        after = page[-1].job.id
        for found in page:
            _count(account, found, found.job.id in acknowledged)
            missing.discard(found.job.id)
        progress(account.jobs)
        await asyncio.sleep(0)
    account.lost += len(missing)
    account.examples += [f"{job_id} is gone" for job_id in list(missing)[:_EXAMPLES]]
    report = await check(store, progress=lambda done, _total: progress(done))
    account.violations = len(report.violations)
    account.check_s = round(report.seconds, 1)
    account.examples += [f"{each.code}: {each.message}" for each in report.violations[:_EXAMPLES]]
    return account


def _count(account: Account, found: Audited, known: bool) -> None:
    job = found.job
    moves = Counter(event.to for event in found.events)
    account.jobs += 1
    account.succeeded += job.status == "succeeded"
    account.claims += job.token
    account.again += max(0, job.token - 1)
    account.crashes += job.crashes
    account.released += job.releases
    account.unexpected += not known
    account.doubled += moves["succeeded"] > 1
    account.lost += known and job.status != "succeeded"
    right = known and job.status == "succeeded" and moves["succeeded"] == 1
    if not right and len(account.examples) < _EXAMPLES:
        account.examples.append(f"{job.id} is {job.status}, by its events {dict(moves)}")
