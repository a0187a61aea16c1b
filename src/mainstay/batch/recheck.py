"""Late outputs: the leader checks partial batches again, and moves those that have become complete."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from ..control import Duty
from ..errors import MainstayError
from ..model import Job, Leadership
from ..outputs import Manifest, OutputStore
from ..stores import Query
from .service import BatchService
from .spec import KIND
from .validation_result import OutputStatus

log = logging.getLogger("mainstay.batch")

_ACTOR = "leader"
#: partial batches per round
_MOST = 1000
#: a batch that has been partial for long is checked less often: after this share of its age
_SHARE = 0.1


class Rechecker:
    """Checks the missing outputs, and validates everything only when they have arrived."""

    def __init__(self, service: BatchService, every_s: float) -> None:
        self._service = service
        self._every_ms = round(every_s * 1000)
        self._checked_ms: dict[str, int] = {}

    async def look(self) -> list[str]:
        """Check all partial batches. Returns the ids of those that are complete now."""
        control = self._service.control
        rows = (await control.store.find(Query(status=("partial",)), limit=_MOST)).jobs
        rows = [row for row in rows if row.kind == KIND]
        self._checked_ms = {row.id: self._checked_ms.get(row.id, row.settled_ms or 0) for row in rows}
        complete = []
        for row in rows:
            now_ms = control.store.clock.now_ms()
            age_ms = now_ms - (row.settled_ms or now_ms)
            if now_ms - self._checked_ms[row.id] < max(self._every_ms, _SHARE * age_ms):
                continue
            self._checked_ms[row.id] = now_ms
            try:
                if await self._has_arrived(row):
                    validation = await self._service.validate(row.id, actor=_ACTOR)
                    log.info("validated again job_id=%s: %s", row.id, validation.summary)
                    if validation.verdict == "succeeded":
                        complete.append(row.id)
            except MainstayError as error:
                # the output store does not answer, or the batch was just resumed: the next round tries again
                log.warning("cannot validate again job_id=%s: %s", row.id, error)
        return complete

    async def _has_arrived(self, row: Job) -> bool:
        store, manifest = await self._service.store(row.id), await self._service.manifest(row.id)
        page = 0
        while lacking := await self._service.lacking(row.id, page=page):
            if not await _all_present(store, manifest, lacking):
                return False
            page += 1
        return True


async def _all_present(store: OutputStore, manifest: Manifest, lacking: Iterable[OutputStatus]) -> bool:
    """Whether all are present, by size alone: the validation that follows compares contents."""
    groups: dict[int, dict[int, None]] = {}
    for one in lacking:
        groups.setdefault(one.group, {})[one.index] = None
    for number, places in groups.items():
        group = manifest.groups[number]
        lacking_units = msgspec.structs.replace(group, pairs=[group.pairs[place] for place in places])
        if not all(findings.whole for findings in await store.look(list(lacking_units.units()), group.outputs)):
            return False
    return True


def recheck_duty(service: BatchService, every_s: float) -> Duty:
    """The duty of the leader."""
    rechecker = Rechecker(service, every_s)

    async def look(_: Leadership) -> object:
        return await rechecker.look()

    return Duty("recheck", every_s, look, first_s=every_s)
