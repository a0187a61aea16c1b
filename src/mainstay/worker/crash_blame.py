"""Which job of a dead engine is to blame, and what becomes of all its jobs, at once.

A job that ran when the engine died by itself counts as crashed, unless it ran in a child: that one is given back, and a
loss is counted, because a child can kill its engine, too. If it ran alone there, it is a crash (see
`control.rules.blame`). When the supervisor killed the engine because one job overran, that job is timed out and the
others are given back. Jobs that had not begun are given back. Only the supervisor can tell these cases apart: a sweep
sees only that the session is dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ..control import Control, Failure
from ..control.ended_log import log_end
from ..control.rules.blame import runs_alone
from ..control.rules.overdue import has_stalled
from ..lifecycle import is_stopping, table_of
from ..model import ErrorInfo, Job
from ..stores import Query
from ..words import counted
from .exits import in_words
from .recorder import Running

_PAGE = 500


class EngineDeath(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine ended."""

    session: str
    status: int
    """a code, or minus the signal that killed it"""
    running: tuple[Running, ...]
    """the jobs in its recorder"""
    blamed: tuple[Running, ...] = ()
    """the jobs because of which the supervisor killed it"""
    kill_reason: str | None = None
    """why the supervisor killed it, if no job is to blame"""


class ReapResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs of a dead engine."""

    crashed: int = 0
    timed_out: int = 0
    released: int = 0
    left: int = 0
    """not settled here: the next sweep finds them"""

    @property
    def total(self) -> int:
        return self.crashed + self.timed_out + self.released + self.left

    def __str__(self) -> str:
        return " ".join(f"{name}={count}" for name, count in msgspec.structs.asdict(self).items() if count) or "none"


class _JobsByFate(msgspec.Struct):
    """The rows, by what becomes of them."""

    crashed: list[Job]
    overran: list[Job]
    stalled: list[Job]
    stopped: list[Job]
    unbegun: list[Job]


async def reap(control: Control, death: EngineDeath) -> ReapResult:
    """Settle every job that a dead engine held, and close its session. A second call finds no jobs."""
    fates = _sorted(await _held(control, death), death)
    others = sum(not entry.apart for entry in death.running) - 1
    beside = f" and {counted(others, 'other job')}" if others > 0 else ""
    error = ErrorInfo(
        type="WorkerCrashed",
        code="worker_crashed",
        message=f"its engine {in_words(death.status)} while it ran this{beside}",
    )
    # the supervisor killed it: a job that had not begun is not to blame
    on_purpose = death.kill_reason is not None or bool(death.blamed)
    # requested together, they are one commit
    outcomes = await asyncio.gather(
        control.attempts.fail([Failure(job, error, crashed=True) for job in fates.crashed]),
        control.attempts.time_out(fates.overran, cause="run"),
        control.attempts.time_out(fates.stalled, cause="stall"),
        control.attempts.release(fates.stopped, reason=_release_reason(death), lost=not on_purpose),
        control.attempts.release(fates.unbegun, reason="its worker died before the work began", lost=not on_purpose),
    )
    await control.claims.close_session(death.session)
    for outcome in (*outcomes[0], *outcomes[1], *outcomes[2]):
        log_end(outcome)
    crashed, overran, stalled, stopped, unbegun = [sum(outcome.ok for outcome in part) for part in outcomes]
    return ReapResult(
        crashed=crashed,
        timed_out=overran + stalled,
        released=stopped + unbegun,
        left=sum(not outcome.ok for part in outcomes for outcome in part),
    )


async def _held(control: Control, death: EngineDeath) -> list[Job]:
    """The rows that the session still holds, jobs and units."""
    rows: list[Job] = []
    cursor = None
    while True:
        page = await control.store.find(Query(session=death.session), cursor=cursor, limit=_PAGE)
        rows += page.jobs
        cursor = page.cursor
        if cursor is None:
            return rows


def _sorted(rows: Sequence[Job], death: EngineDeath) -> _JobsByFate:
    begun = {(entry.job_id, entry.token) for entry in death.running}
    apart = {(entry.job_id, entry.token) for entry in death.running if entry.apart}
    blamed = {(entry.job_id, entry.token) for entry in death.blamed}
    on_purpose = death.kill_reason is not None or bool(blamed)
    fates = _JobsByFate([], [], [], [], [])
    for row in rows:
        claim = (row.id, row.token)
        if claim in blamed:
            (fates.stalled if has_stalled(row) else fates.overran).append(row)
        elif claim not in begun:
            fates.unbegun.append(row)
        elif on_purpose or (claim in apart and not runs_alone(row)):
            fates.stopped.append(row)
        elif is_stopping(row.parent, row.status) or table_of(row.parent).allows(row.status, "pending"):
            fates.crashed.append(row)
        # a phase that can only be taken over in place is left to the sweep
    return fates


def _release_reason(death: EngineDeath) -> str:
    if death.kill_reason is not None:
        return death.kill_reason
    if death.blamed:
        return "its engine was killed because another job overran"
    return f"its engine {in_words(death.status)}; this ran in a process of its own and is not blamed"
