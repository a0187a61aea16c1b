"""Outputs that come late: the leader looks again at partial batches, and moves those on that have become whole."""

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
from .validation_result import OutputDefect

log = logging.getLogger("mainstay.batch")

_ACTOR = "leader"
#: partial batches that are looked at in one round
_MOST = 1000
#: one that has been partial for long is looked at less often: after this part of its age
_PART = 0.1


class Rechecker:
    """Looks at what was lacking, and at everything only when that has come."""

    def __init__(self, service: BatchService, every_s: float) -> None:
        self._service = service
        self._every_ms = round(every_s * 1000)
        self._looked: dict[str, int] = {}

    async def look(self) -> list[str]:
        """The ids of those that are whole now."""
        control = self._service.control
        rows = (await control.store.find(Query(status=("partial",)), limit=_MOST)).jobs
        rows = [row for row in rows if row.kind == KIND]
        self._looked = {row.id: self._looked.get(row.id, row.settled_ms or 0) for row in rows}
        found = []
        for row in rows:
            now_ms = control.store.clock.now_ms()
            age_ms = now_ms - (row.settled_ms or now_ms)
            if now_ms - self._looked[row.id] < max(self._every_ms, _PART * age_ms):
                continue
            self._looked[row.id] = now_ms
            try:
                if await self._has_come(row):
                    validation = await self._service.validate(row.id, actor=_ACTOR)
                    log.info("looked again job_id=%s: %s", row.id, validation.told)
                    if validation.verdict == "succeeded":
                        found.append(row.id)
            except MainstayError as error:
                # its outputs cannot be reached, or it was resumed just now: the next round comes
                log.warning("cannot look again job_id=%s: %s", row.id, error)
        return found

    async def _has_come(self, row: Job) -> bool:
        store, manifest = await self._service.store(row.id), await self._service.manifest(row.id)
        page = 0
        while lacking := await self._service.lacking(row.id, page=page):
            if not await _all_there(store, manifest, lacking):
                return False
            page += 1
        return True


async def _all_there(store: OutputStore, manifest: Manifest, lacking: Iterable[OutputDefect]) -> bool:
    """By the sizes alone: whoever asks looks closer if so."""
    groups: dict[int, dict[int, None]] = {}
    for one in lacking:
        groups.setdefault(one.group, {})[one.index] = None
    for number, places in groups.items():
        group = manifest.groups[number]
        some = msgspec.structs.replace(group, pairs=[group.pairs[place] for place in places])
        if not all(seen.whole for seen in await store.look(list(some.units()), group.outputs)):
            return False
    return True


def recheck_duty(service: BatchService, every_s: float) -> Duty:
    """For the leader of a worker fleet."""
    rechecker = Rechecker(service, every_s)

    async def look(_: Leadership) -> object:
        return await rechecker.look()

    return Duty("recheck", every_s, look, first_s=every_s)
