"""The bundles of runs that have not ended: a node may still need their code, for a slice that waits or moves."""

from __future__ import annotations

import msgspec

from ...control import UNSETTLED_JOBS
from ...model import LEAD_QUEUE
from ...stores import JobStore, Query, all_rows
from ..kind import KIND
from .placed_rows import VALUE_BYTES, whole_payload


class CodeNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of the payload of a run."""

    code: str = ""


async def needed_bundles(store: JobStore) -> dict[str, str]:
    """The digests of these bundles, each with one of the runs in words. Names a part of the kind, `Kind.bundles`."""
    query = Query(kind=KIND.name, queue=LEAD_QUEUE, status=UNSETTLED_JOBS, value_bytes=VALUE_BYTES)
    found: dict[str, str] = {}
    async for job in all_rows(store, query):
        try:
            code = msgspec.msgpack.decode(await whole_payload(store, job), type=CodeNeeds).code
        except msgspec.DecodeError:
            continue  # its leader fails it
        if code:
            found.setdefault(code, f"job {job.id} needs it")
    return found


__all__ = ["needed_bundles"]
