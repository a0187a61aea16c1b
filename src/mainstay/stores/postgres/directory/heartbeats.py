"""Heartbeats and reports of holders: that the work began, how far it is, and its checkpoint.

A report must not delay a beat. A row that another transaction has locked (one that is still open awaits the job) is
skipped; its report is kept here and sent with the next beat. A report has facts that must not be lost, such as the
start of the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ....lifecycle import JOB, UNIT
from ...port import ClaimReport, Pulse
from ...row_codec import json_text
from ..connection.engine import PostgresEngine
from ..rows.codec import is_id, read_text

_BEAT = "SELECT * FROM mainstay.beat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
_REPORT = "SELECT id, session, token FROM mainstay.report($1, $2, $3, $4, $5, $6, $7, $8, $9)"
_REPORT_AT_ONCE = (
    "SELECT id, session, token, passed_over FROM mainstay.report_at_once($1, $2, $3, $4, $5, $6, $7, $8, $9)"
)
_STOPPING_JOBS, _STOPPING_UNITS = list(JOB.named("stopping")), list(UNIT.named("stopping"))
_STOPPING = sorted({*_STOPPING_JOBS, *_STOPPING_UNITS})
_ASSIGNED = ["dispatched"]

_Claim = tuple[str, str, int]
_Reports = dict[_Claim, ClaimReport]


class Heartbeats:
    """The beats and reports of one open store."""

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self._kept: _Reports = {}
        """reports that could not be stored yet"""

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport]) -> list[Pulse]:
        """Keep sessions alive and record their reports, in one round trip."""
        by_claim = _combined([*self._kept.values(), *reports])
        rows = await self._engine.call(
            _BEAT,
            list(sessions),
            _STOPPING,
            _ASSIGNED,
            *self._arguments(by_claim.values()),
            self._engine.given_lease_ms,
            lasting=False,
            vital=True,
        )
        passed_over = {job_id for row in rows if row[0] is None for job_id in row[2]}
        for claim, report in by_claim.items():
            self._kept.pop(claim, None)
            if report.job_id in passed_over:
                self._kept[claim] = report
        return [
            Pulse(
                session=row[0],
                known=row[1],
                cancelling=tuple(row[2]),
                draining_by=read_text(row[3]),
                assigned=tuple(row[4]),
            )
            for row in rows
            if row[0] is not None
        ]

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        """Record reports; False for those whose claim is no longer held. Kept reports of the same claims are older, and
        go with them.

        A locked row delays no other. Progress is kept for the next beat. A start and a checkpoint must be stored before
        anything else happens, so for these the call waits for the row."""
        older = [kept for claim in map(_claim, reports) if (kept := self._kept.pop(claim, None))]
        try:
            held = await self._report(_combined([*older, *reports]))
        except BaseException:
            for report in older:
                self._kept.setdefault(_claim(report), report)
            raise
        return [_claim(report) in held for report in reports]

    async def _report(self, by_claim: _Reports) -> set[_Claim]:
        """The claims that are held."""
        if not by_claim:
            return set()
        rows = await self._engine.call(_REPORT_AT_ONCE, *self._arguments(by_claim.values()))
        held: set[_Claim] = {(row[0], row[1], row[2]) for row in rows}
        locked = {(row[0], row[1], row[2]) for row in rows if row[3]}
        urgent = [
            report
            for report in map(by_claim.__getitem__, locked)
            if report.started_ms is not None or report.checkpoint is not None
        ]
        if urgent:
            written = set(map(tuple, await self._engine.call(_REPORT, *self._arguments(urgent))))
            lost = {_claim(report) for report in urgent} - written
            held -= lost
        self._kept |= {claim: by_claim[claim] for claim in locked if by_claim[claim] not in urgent}
        return held

    def _arguments(self, reports: Iterable[ClaimReport]) -> list[Any]:
        storable = [report for report in reports if is_id(report.job_id)]
        return [
            [report.job_id for report in storable],
            [report.session for report in storable],
            [report.token for report in storable],
            [report.started_ms for report in storable],
            [json_text(report.progress) for report in storable],
            [report.checkpoint for report in storable],
            _STOPPING_JOBS,
            _STOPPING_UNITS,
            self._engine.given_ms,
        ]


def _combined(reports: Iterable[ClaimReport]) -> _Reports:
    """One report for each claim: a statement writes a row once."""
    by_claim: _Reports = {}
    for report in reports:
        earlier = by_claim.get(_claim(report))
        by_claim[_claim(report)] = report if earlier is None else _merged(earlier, report)
    return by_claim


def _merged(earlier: ClaimReport, later: ClaimReport) -> ClaimReport:
    """The start of the earlier report counts, and otherwise the later one."""
    return msgspec.structs.replace(
        later,
        started_ms=later.started_ms if earlier.started_ms is None else earlier.started_ms,
        progress=earlier.progress if later.progress is None else later.progress,
        checkpoint=earlier.checkpoint if later.checkpoint is None else later.checkpoint,
    )


def _claim(report: ClaimReport) -> _Claim:
    return report.job_id, report.session, report.token
