"""From a URL to a job registry."""

from __future__ import annotations

from urllib.parse import urlencode

from ...clock import Clock
from ...lifecycle import Chain
from ...storage import duration_of, folder_in, is_on, options_in, shown_url, split_url
from ..audit_key import admit_fingerprint
from ..port import JobStore
from ..versioned import open_versioned, prepare_versioned
from ..versioned.file import MARKER
from .log import Log, LogHead, no_registry
from .store import PART_BYTES, JobRegistry

_OWN = ("poll", "create")
#: an item of DynamoDB holds 400 KB
_SMALL_PARTS = {"dynamodb": 256 * 1024}


async def prepare_registry(url: str, *, clock: Clock, chain: Chain) -> list[str]:
    """Create the registry of a URL, and the folder, bucket, container or table for it, if they do not exist. Returns
    what was done."""
    below = _below(url, options_in(url))
    steps = await prepare_versioned(below)
    log = Log(await open_versioned(below))
    try:
        existed = await log.head() is not None
        seen = await log.begin(LogHead(audit=chain.fingerprint, made_ms=clock.now_ms()))
        admit_fingerprint(seen.head.audit, chain.fingerprint, log.store.place)
    finally:
        await log.store.close()
    return steps if existed else [*steps, "created the job registry"]


async def open_registry(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore:
    """Open `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `dynamodb://table/prefix` or
    `file:///folder`.

    Options: `poll` (how often a waiting process looks for commits of others, 1s), `create` (yes; no: a missing registry
    is an error). All others are those of the versioned store.
    """
    poll_s = duration_of(options, "poll", "1s")
    create = is_on(options, "create", default="yes")
    scheme = split_url(url).scheme
    if scheme == "file" and not create and not (folder_in(url, field="store", example="jobs") / MARKER).exists():
        raise no_registry(shown_url(url))
    below = _below(url, options)
    return await JobRegistry.open(
        lambda: open_versioned(below),
        url=shown_url(url),
        clock=clock,
        chain=chain,
        poll_s=poll_s,
        create=create,
        part_bytes=_SMALL_PARTS.get(scheme, PART_BYTES),
    )


def _below(url: str, options: dict[str, str]) -> str:
    """The URL of the versioned store, without the options of the registry."""
    rest = urlencode({name: value for name, value in options.items() if name not in _OWN})
    # joined by hand: urlunsplit would turn `file:jobs` into `file:///jobs`
    return url.partition("?")[0] + (f"?{rest}" if rest else "")
