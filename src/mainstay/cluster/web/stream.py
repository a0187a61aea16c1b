"""The live stream of a cluster.

Each message has an id, such as `3f0c9a1b2c3d-17-1763490000000`: the start of the server, the number of the last entry
of the journal, and its time. A client that reconnects to the same server gets the entries after it, each once. At
another server, or after a restart, it gets the entries since that time; those of the last seconds may come again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from ...errors import InvalidInput, MainstayError
from ...web.api import ApiRequest, Masker, NoParameters
from ...web.live import TroubleMessage, event, event_of, stream_operation, stream_response
from ..status import ClusterStatus, JournalEntry
from .views import masked_change, masked_cores, masked_status, watch_of
from .watch import ClusterWatch

_MARK = re.compile(r"([0-9a-f]{12})-(0|[1-9][0-9]{0,11})-(0|[1-9][0-9]{0,14})")
#: entries of managers arrive within this time
_LATE_MS = 5_000
#: entries that are sent to a client that comes back after long
_MOST = 1000


class StreamMark(NamedTuple):
    """Where a client is in the stream."""

    run_id: str
    number: int
    at_ms: int


async def stream_cluster(ask: ApiRequest[NoParameters, None]) -> Response:
    watch = watch_of(ask.site.cluster)
    return stream_response(ask, _messages(watch, ask.site.masker, _last(ask.request.headers.get("last-event-id", ""))))


def _last(given: str) -> StreamMark | None:
    if not given.strip():
        return None
    match = _MARK.fullmatch(given.strip())
    if match is None:
        raise InvalidInput("Last-Event-ID", f"{given[:100]!r} is not an id of this stream")
    return StreamMark(match[1], int(match[2]), int(match[3]))


async def _messages(watch: ClusterWatch, masker: Masker, last: StreamMark | None) -> AsyncGenerator[bytes, None]:
    """The state, then each change. The next message is made when the client has taken the last one: a slow client gets
    the newest state, and all entries of the journal as long as the server keeps them."""
    with watch.watching():
        if watch.status is None and not watch.error:
            await watch.changed.wait()
        number, at_ms = watch.number, watch.entries[-1].entry.at_ms if watch.entries else 0
        if last is not None and last.run_id == watch.run_id:
            number, at_ms = min(last.number, number), last.at_ms
        elif last is not None:
            for entry in await _since(watch, last.at_ms - _LATE_MS):
                yield event("journal", entry, f"{watch.run_id}-{number}-{max(at_ms, entry.at_ms)}")
        sent = sent_cores = 0
        trouble = ""
        while True:
            changed = watch.changed
            for each in [each for each in watch.entries if each.number > number]:
                if each.number > number + 1:
                    skipped = each.number - number - 1
                    detail = f"{skipped} entries of the journal were skipped; read them: GET /api/v1/cluster/journal"
                    yield event("trouble", TroubleMessage(detail=detail))
                # before it is sent: if the client disconnects now, it counts as sent
                number, at_ms = each.number, each.entry.at_ms
                yield event("journal", each.entry, f"{watch.run_id}-{number}-{at_ms}")
            # that of the versions: a client may have taken its time for the entries
            status = watch.status
            if watch.error and watch.error != trouble:
                yield event("trouble", TroubleMessage(detail=watch.error))
            elif status is not None and not watch.error and (watch.versions.version != sent or trouble):
                mark = f"{watch.run_id}-{number}-{at_ms or status.at_ms}"
                yield _state(watch, status, masker, mark, since=0 if trouble else sent)
                sent = watch.versions.version
            if watch.cores is not None and watch.cores_version != sent_cores:
                sent_cores = watch.cores_version
                yield event("cores", masked_cores(watch.cores, masker))
            trouble = watch.error
            if watch.changed is changed:
                await changed.wait()


def _state(watch: ClusterWatch, status: ClusterStatus, masker: Masker, mark: str, *, since: int) -> bytes:
    """What is new to a client that has the state of this version; the whole state if that is not known."""
    change = watch.versions.since(since, status)
    if change is not None:
        return event("change", masked_change(change, masker), mark)
    shown = masked_status(status, masker)
    data = watch.encoded(status) if shown is status else msgspec.json.encode(shown)
    return event_of("cluster", data, mark)


async def _since(watch: ClusterWatch, from_ms: int) -> list[JournalEntry]:
    with contextlib.suppress(MainstayError):
        newest = watch.number
        entries = await watch.reader.journal(from_ms=max(0, from_ms), most=_MOST)
        later = [each.entry for each in watch.entries if each.number > newest]
        return [entry for entry in entries if entry not in later]
    return []


OPERATIONS = (
    stream_operation(
        "/cluster/stream",
        stream_cluster,
        "Watch the cluster",
        "`event: cluster` with the state now, and then `event: change` with what differs since, at most once a "
        "second; `event: cores` with the cores of the nodes, whenever they differ; `event: journal` for each entry of "
        "the journal from now on: a client that reconnects with `Last-Event-ID` gets those after it. `event: trouble` "
        "if no manager answers.",
        tag="cluster",
        refusals=(404,),
        in_store=False,
    ),
)

__all__ = ["OPERATIONS"]
