"""Heartbeats, and what is said with them.

A report must not cost a beat: a row that somebody else has locked this moment (a transaction that is still open awaits
it) is passed over, and its report is kept here and goes with the next beat. It says what must not be lost, such as that
the work began.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ....lifecycle import JOB, UNIT
from ...port import ClaimReport, Pulse
from ..connection.engine import PostgresEngine
from ..rows.codec import read_text
from ..write import reports as reporting

_BEAT = "SELECT * FROM mainstay.beat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
_AT_ONCE = "SELECT id, session, token, passed_over FROM mainstay.report_at_once($1, $2, $3, $4, $5, $6, $7, $8, $9)"
_STOPPING = sorted({*JOB.named("stopping"), *UNIT.named("stopping")})

_Claim = tuple[str, str, int]


class Heartbeats:
    """The beats and reports of one open store."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self._kept: dict[_Claim, ClaimReport] = {}
        """what could not be stored yet"""

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport]) -> list[Pulse]:
        """Keep sessions alive and record what they report, in one round trip."""
        said = _once([*self._kept.values(), *reports])
        [several] = reporting.report_rounds(list(said.values()))
        rows = await self._engine.call(
            _BEAT,
            list(sessions),
            _STOPPING,
            *reporting.report_arguments(several, self._engine.given_ms),
            self._engine.given_lease_ms,
            lasting=False,
            vital=True,
        )
        passed_over = {job_id for row in rows if row[0] is None for job_id in row[2]}
        for claim, report in said.items():
            self._kept.pop(claim, None)
            if report.job_id in passed_over:
                self._kept[claim] = report
        return [
            Pulse(session=row[0], known=row[1], cancelling=tuple(row[2]), draining_by=read_text(row[3]))
            for row in rows
            if row[0] is not None
        ]

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        """Record what holders say, where they still hold. What was kept of the same claims goes with it: it is older,
        and must not come after it.

        One row that is locked holds up no other. Progress is kept for the next beat; for what must be stored before
        anything else happens, a start and a checkpoint, the row is waited for."""
        older = [kept for claim in {_claim(report) for report in reports} if (kept := self._kept.pop(claim, None))]
        said = _once([*older, *reports])
        try:
            held = await self._report(said)
        except BaseException:
            for report in older:
                self._kept.setdefault(_claim(report), report)
            raise
        return [_claim(report) in held for report in reports]

    async def _report(self, said: dict[_Claim, ClaimReport]) -> set[_Claim]:
        [several] = reporting.report_rounds(list(said.values()))
        if not several:
            return set()
        given_ms = self._engine.given_ms
        rows = await self._engine.call(_AT_ONCE, *reporting.report_arguments(several, given_ms))
        held: set[_Claim] = {(row[0], row[1], row[2]) for row in rows}
        locked = [said[row[0], row[1], row[2]] for row in rows if row[3]]
        urgent = [report for report in locked if report.started_ms is not None or report.checkpoint is not None]
        if urgent:
            answers = await reporting.report(self._engine, urgent)
            held -= {_claim(report) for report, answer in zip(urgent, answers, strict=True) if not answer}
        self._kept |= {_claim(report): report for report in locked if report not in urgent}
        return held


def _once(reports: Iterable[ClaimReport]) -> dict[_Claim, ClaimReport]:
    """One report for each claim that says what all of them say: a statement writes a row once."""
    said: dict[_Claim, ClaimReport] = {}
    for report in reports:
        before = said.get(_claim(report))
        said[_claim(report)] = report if before is None else _both(before, report)
    return said


def _both(before: ClaimReport, after: ClaimReport) -> ClaimReport:
    """It began when that was first said; of all else the last word counts."""
    return msgspec.structs.replace(
        after,
        started_ms=after.started_ms if before.started_ms is None else before.started_ms,
        progress=before.progress if after.progress is None else after.progress,
        checkpoint=before.checkpoint if after.checkpoint is None else after.checkpoint,
    )


def _claim(report: ClaimReport) -> _Claim:
    return report.job_id, report.session, report.token
