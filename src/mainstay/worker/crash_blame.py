"""What is done about the jobs of an engine that died: at once, and each by what it had to do with it.

A job that ran when the engine died by itself is counted as a crash, unless it ran apart, in a child: that one is given
back, and the loss is counted, for a child can kill its engine, too. If it ran alone there, it is a crash (see
`control.rules.blame`). When the supervisor killed the engine because one job overran, that one is timed out and the
others are given back. What had not begun is given back. Only the supervisor can tell these cases apart: a sweep sees
only that the session is dead.
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


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine came to its end."""

    session: str
    status: int
    """a code, or minus the signal that killed it"""
    running: tuple[Running, ...]
    """what its recorder held"""
    blamed: tuple[Running, ...] = ()
    """jobs for whose sake the supervisor killed it"""
    wish: str | None = None
    """why the supervisor killed it, when no job is to blame"""


class Buried(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs of a dead engine."""

    crashed: int = 0
    timed_out: int = 0
    released: int = 0
    left: int = 0
    """could not be dealt with: the next sweep finds them"""

    @property
    def total(self) -> int:
        return self.crashed + self.timed_out + self.released + self.left

    def __str__(self) -> str:
        return " ".join(f"{name}={count}" for name, count in msgspec.structs.asdict(self).items() if count) or "none"


class _Fates(msgspec.Struct):
    """The rows, by what is to be done about them."""

    crashed: list[Job]
    overran: list[Job]
    stalled: list[Job]
    stopped: list[Job]
    unbegun: list[Job]


async def bury(control: Control, death: Death) -> Buried:
    """Deal with everything a dead engine held, and close its session. Doing it twice does no harm: what has been dealt
    with is no longer held."""
    fates = _sorted(await _held(control, death), death)
    others = sum(not entry.apart for entry in death.running) - 1
    beside = f" and {counted(others, 'other job')}" if others > 0 else ""
    error = ErrorInfo(
        type="WorkerCrashed",
        code="worker_crashed",
        message=f"its engine {in_words(death.status)} while it ran this{beside}",
    )
    # killed for another's sake, what had not begun is above suspicion
    on_purpose = death.wish is not None or bool(death.blamed)
    # asked for together, they are one commit
    outcomes = await asyncio.gather(
        control.attempts.fail([Failure(job, error, crashed=True) for job in fates.crashed]),
        control.attempts.time_out(fates.overran, cause="run"),
        control.attempts.time_out(fates.stalled, cause="stall"),
        control.attempts.release(fates.stopped, reason=_not_its_doing(death), lost=not on_purpose),
        control.attempts.release(fates.unbegun, reason="its worker died before the work began", lost=not on_purpose),
    )
    await control.claims.close_session(death.session)
    for outcome in (*outcomes[0], *outcomes[1], *outcomes[2]):
        log_end(outcome)
    crashed, overran, stalled, stopped, unbegun = [sum(outcome.ok for outcome in part) for part in outcomes]
    return Buried(
        crashed=crashed,
        timed_out=overran + stalled,
        released=stopped + unbegun,
        left=sum(not outcome.ok for part in outcomes for outcome in part),
    )


async def _held(control: Control, death: Death) -> list[Job]:
    """The rows the session still holds, jobs and units."""
    found: list[Job] = []
    cursor = None
    while True:
        page = await control.store.find(Query(session=death.session), cursor=cursor, limit=_PAGE)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return found


def _sorted(rows: Sequence[Job], death: Death) -> _Fates:
    begun = {(entry.job_id, entry.token) for entry in death.running}
    apart = {(entry.job_id, entry.token) for entry in death.running if entry.apart}
    blamed = {(entry.job_id, entry.token) for entry in death.blamed}
    on_purpose = death.wish is not None or bool(blamed)
    fates = _Fates([], [], [], [], [])
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
        # a phase that can only be taken over in place is left to the sweep, which knows how
    return fates


def _not_its_doing(death: Death) -> str:
    if death.wish is not None:
        return death.wish
    if death.blamed:
        return "its engine was killed because another job overran"
    return f"its engine {in_words(death.status)}; this ran in a process of its own and is not blamed"
