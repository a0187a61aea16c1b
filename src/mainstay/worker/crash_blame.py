"""Which job of a dead engine is to blame, and what becomes of all its jobs, at once.

A job that ran when the engine died by itself counts as crashed, unless it ran in a child: that one is given back, and a
loss is counted, because a child can kill its engine, too. If it ran alone there, it is a crash (see
`control.rules.blame`). When the supervisor killed the engine because one job overran, that job is timed out and the
others are given back. Jobs that had not begun are given back. Only the supervisor can tell these cases apart: a sweep
sees only that the session is dead.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from ..control import AttemptEnd, AttemptEnds, Control, has_stalled, log_end, runs_alone
from ..lifecycle import is_stopping, table_of
from ..model import ErrorInfo, Job
from ..stores import Query
from ..words import counted
from .exits import describe_exit
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


async def reap(control: Control, death: EngineDeath) -> ReapResult:
    """Settle every job that a dead engine held, and close its session. A second call finds no jobs."""
    others = sum(not entry.apart for entry in death.running) - 1
    beside = f" and {counted(others, 'other job')}" if others > 0 else ""
    error = ErrorInfo(
        type="WorkerCrashed",
        code="worker_crashed",
        message=f"its engine {describe_exit(death.status)} while it ran this{beside}",
    )
    rows = await _held(control, death)
    fates = [fate for row in rows if (fate := _fate(control.attempts.ends, row, death, error)) is not None]
    outcomes = await control.attempts.write([end for _, end in fates])
    await control.claims.close_session(death.session)
    counts: Counter[str] = Counter()
    for (field, end), outcome in zip(fates, outcomes, strict=True):
        counts[field if outcome.ok else "left"] += 1
        if end.kind == "failure":
            log_end(outcome)
    return ReapResult(**counts)


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


def _fate(ends: AttemptEnds, row: Job, death: EngineDeath, error: ErrorInfo) -> tuple[str, AttemptEnd] | None:
    """The field of `ReapResult` that counts it, and the end of its attempt."""
    # if the supervisor killed the engine, no job is to blame but those it killed it for
    on_purpose = death.kill_reason is not None or bool(death.blamed)
    claim = (row.id, row.token)
    running = next((entry for entry in death.running if (entry.job_id, entry.token) == claim), None)
    if any((entry.job_id, entry.token) == claim for entry in death.blamed):
        return "timed_out", ends.timeout(row, "stall" if has_stalled(row) else "run")
    if running is None:
        return "released", ends.release(row, "its worker died before the work began", lost=not on_purpose)
    if on_purpose or (running.apart and not runs_alone(row)):
        return "released", ends.release(row, _release_reason(death), lost=not on_purpose)
    if is_stopping(row.parent, row.status) or table_of(row.parent).allows(row.status, "pending"):
        return "crashed", ends.failure(row, error, crashed=True)
    return None  # a phase that can only be taken over in place is left to the sweep


def _release_reason(death: EngineDeath) -> str:
    if death.kill_reason is not None:
        return death.kill_reason
    if death.blamed:
        return "its engine was killed because another job overran"
    return f"its engine {describe_exit(death.status)}; this ran in a process of its own and is not blamed"
