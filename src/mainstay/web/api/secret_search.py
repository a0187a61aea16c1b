"""Search for secrets in payloads: values that must not be shown in texts about a job.

A payload may be as large as the store allows, and a page shows many jobs. So a payload is searched once and the result
is cached; one page searches a limited number of bytes, beside the event loop; and a payload is decoded only if its
bytes contain the name of a secret. Texts about a job whose payload was not searched are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...control import readable_value
from ...model import Job
from ...stores import JobStore, size_left_out
from ..threads import in_thread
from .masker import MOST_SECRETS, Masker
from .secret_cache import Secrets

#: bytes of payloads that one page reads and searches
PAGE_BYTES = 8 * 1024 * 1024
#: bytes that one page decodes
_DECODED_BYTES = 2 * 1024 * 1024
#: bytes of payloads that are read at a time
_AT_A_TIME_BYTES = 2 * 1024 * 1024
#: the most lists and maps in one payload; more take too long in one call of the decoder. See `parts_at_most`
MOST_PARTS = 200_000
#: all bytes that begin a list or a map in MessagePack
_BEGINNINGS = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))


def parts_at_most(stored: bytes) -> int:
    """The most lists and maps that this MessagePack can contain, judged by its bytes. Decoding a megabyte of empty maps
    takes 200 ms, in which nothing else runs; a megabyte of numbers takes a few."""
    return len(stored) - len(stored.translate(None, _BEGINNINGS))


def secrets_of(masker: Masker, job: Job) -> Secrets:
    """The secrets of one job whose row has its payload."""
    return _search_one(masker, job)[0]


def _search_one(masker: Masker, job: Job) -> tuple[Secrets, int]:
    """Its secrets, and the number of decoded bytes."""
    payload, decoded = None, 0
    if size_left_out(job.payload) is not None:
        return None, 0
    if job.payload and masker.may_hide(job.payload):
        if parts_at_most(job.payload) > MOST_PARTS:
            return None, 0
        decoded = len(job.payload)
        try:
            payload = readable_value(job.payload)
        except ValueError:
            # an encrypted or damaged payload cannot be searched, and cannot be shown either
            payload = None
    found = masker.secrets([payload, job.options.metadata])
    return (None if len(found) > MOST_SECRETS else found), decoded


async def search(store: JobStore, jobs: Sequence[Job], masker: Masker) -> list[Secrets]:
    """The secrets of each job. Payloads that the rows lack are read, within the budget of a page."""
    known = masker.searched
    fresh = [job for job in jobs if job not in known]
    at_hand = [job for job in fresh if size_left_out(job.payload) is None]
    await _searched(at_hand, masker)
    budget, decoded = PAGE_BYTES, _DECODED_BYTES
    waiting = [(size_left_out(job.payload) or 0, job) for job in fresh if size_left_out(job.payload) is not None]
    while waiting and decoded > 0:
        some: list[tuple[int, Job]] = []
        while waiting and (not some or sum(size for size, _ in some) + waiting[0][0] <= _AT_A_TIME_BYTES):
            some.append(waiting.pop(0))
        some = [(size, job) for size, job in some if size <= budget]
        budget -= sum(size for size, _ in some)
        whole = [row for row in await store.get([job.id for _, job in some]) if row is not None] if some else []
        decoded -= await _searched(whole, masker)
    return [known.get(job) if job in known else None for job in jobs]


async def _searched(jobs: Sequence[Job], masker: Masker) -> int:
    """Search these jobs and cache the results; the number of decoded bytes."""
    if not jobs:
        return 0
    size = sum(len(job.payload) for job in jobs)
    found = await in_thread(lambda: [_search_one(masker, job) for job in jobs], size)
    for job, (secrets, _) in zip(jobs, found, strict=True):
        masker.searched.keep(job, secrets)
    return sum(decoded for _, decoded in found)


__all__ = ["MOST_PARTS", "PAGE_BYTES", "Secrets", "parts_at_most", "search", "secrets_of"]
