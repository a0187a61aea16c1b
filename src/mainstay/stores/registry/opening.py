"""From a URL to a job registry."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlencode

from ...clock import Clock
from ...lifecycle import Chain
from ...storage.options import duration_of, is_on
from ...storage.urls import shown_url, split_url
from ..port import JobStore
from ..versioned import open_versioned
from .log import no_registry
from .store import PART_BYTES, JobRegistry

_OWN = ("poll", "create")
#: an item of DynamoDB holds 400 KB
_SMALL_PARTS = {"dynamodb": 256 * 1024}


async def open_registry(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore:
    """Open `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `dynamodb://table/prefix` or
    `file:///folder`.

    Options: `poll` (how often a process that waits looks for what others did, 1s), `create` (yes; no: a registry that
    is not there is an error). All others are those of the versioned store.
    """
    poll_s = duration_of(options, "poll", "1s")
    create = is_on(options, "create", default="yes")
    scheme, _, path, *_ = split_url(url)
    if scheme == "file" and not create and not (Path(unquote(path)) / ".mainstay").exists():
        raise no_registry(shown_url(url))
    rest = urlencode({name: value for name, value in options.items() if name not in _OWN})
    # put together by hand: from its parts, `file:jobs` would become `file:///jobs`
    below = url.partition("?")[0] + (f"?{rest}" if rest else "")
    return await JobRegistry.open(
        lambda: open_versioned(below),
        url=shown_url(url),
        clock=clock,
        chain=chain,
        poll_s=poll_s,
        create=create,
        part_bytes=_SMALL_PARTS.get(scheme, PART_BYTES),
    )
