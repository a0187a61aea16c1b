"""What holders say of their jobs between moves: that they began, how far they are, where to go on from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ....lifecycle import JOB, UNIT
from ....model import Progress
from ...port import ClaimReport
from ..connection.engine import PostgresEngine, PostgresTx
from ..rows.codec import is_id

_REPORT = "SELECT id, session, token FROM mainstay.report($1, $2, $3, $4, $5, $6, $7, $8, $9)"
_STOPPING = (list(JOB.named("stopping")), list(UNIT.named("stopping")))
_encode = msgspec.json.Encoder().encode


async def report(engine: PostgresEngine, reports: Sequence[ClaimReport]) -> list[bool]:
    """Record what holders say, where they still hold."""
    if not reports:
        return []
    [first, *others] = report_rounds(reports)
    if not others:
        return _heard(reports, await engine.call(_REPORT, *report_arguments(first, engine.given_ms)))
    return await engine.transact(lambda tx: report_within(tx, reports))


async def report_within(tx: PostgresTx, reports: Sequence[ClaimReport]) -> list[bool]:
    """As `report`, as part of a transaction."""
    held: list[Any] = []
    for several in report_rounds(reports):
        held += await tx.db.fetch(_REPORT, *report_arguments(several, tx.now_ms))
    return _heard(reports, held)


def _heard(reports: Sequence[ClaimReport], rows: Sequence[Any]) -> list[bool]:
    held = set(map(tuple, rows))
    return [_claim(item) in held for item in reports]


def _claim(item: ClaimReport) -> tuple[str, str, int]:
    return item.job_id, item.session, item.token


def report_rounds(reports: Sequence[ClaimReport]) -> list[list[ClaimReport]]:
    """Reports in which every claim has one: a statement writes a row once."""
    rounds: list[dict[tuple[str, str, int], ClaimReport]] = [{}]
    for item in reports:
        if not is_id(item.job_id):
            continue
        for one in rounds:
            if _claim(item) not in one:
                one[_claim(item)] = item
                break
        else:
            rounds.append({_claim(item): item})
    return [list(one.values()) for one in rounds]


def report_arguments(reports: Sequence[ClaimReport], now_ms: int | None) -> list[Any]:
    return [
        [item.job_id for item in reports],
        [item.session for item in reports],
        [item.token for item in reports],
        [item.started_ms for item in reports],
        [_progress_text(item.progress) for item in reports],
        [item.checkpoint for item in reports],
        *_STOPPING,
        now_ms,
    ]


def _progress_text(progress: Progress | None) -> str | None:
    return None if progress is None else _encode(progress).decode()
