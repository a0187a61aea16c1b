"""Masking of secrets in texts about a job.

A field is masked by its name; a text has no fields. So the masked values of a payload are searched for in the errors
and reasons of the same job. Where payloads are hidden, only the type of an error is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...control import error_line
from ...control.explain import ClusterFacts, Explanation, explain, matter
from ...lifecycle import Event, details_text
from ...model import ErrorInfo, Job
from ...stores import JobStore
from .masker import MASK, Masker
from .secret_cache import Secrets
from .secret_search import search

#: replaces the texts of a job whose payload was not searched for secrets
UNSEARCHED = f"{MASK} (not shown here: the job's payload is too large to search for secrets; look at the job itself)"


class TextMask:
    """Masks the texts about one job. `secrets` are the masked values of its payload; None: they are unknown, so no text
    is shown.

    >>> TextMask(Masker(("password",)), ("hush",)).text("no, hush is wrong")
    'no, *** is wrong'
    """

    def __init__(self, masker: Masker, secrets: Secrets) -> None:
        self._masker = masker
        self._secrets = secrets

    def text(self, text: str) -> str:
        """A text without the secrets."""
        if self._secrets is None:
            return UNSEARCHED
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return self._masker.text(text)

    def error(self, error: ErrorInfo) -> ErrorInfo:
        """An error with masked texts."""
        if not self._masker.shows:
            return msgspec.structs.replace(error, message=MASK, traceback=None)
        traceback = None if error.traceback is None or self._secrets is None else self.text(error.traceback)
        return msgspec.structs.replace(error, message=self.text(error.message), traceback=traceback)

    def reason(self, reason: str | None, error: ErrorInfo | None) -> str | None:
        """A masked reason. If it is a shortened error, it is made from the masked error: a secret that was cut off
        would not be found."""
        if reason is None:
            return None
        if error is not None and reason == error_line(error):
            return error_line(self.error(error))
        return self.text(reason)

    def event(self, event: Event) -> Event:
        """A masked event of the audit trail."""
        data = event.data
        error = _error_in(data)
        masked: dict[str, Any] = self._masker.mask(data)
        if error is not None:
            masked["error"] = msgspec.to_builtins(self.error(error))
        details = event.details if masked == data else details_text(masked)
        return msgspec.structs.replace(event, reason=self.reason(event.reason, error), details=details)

    def events(self, events: Iterable[Event]) -> list[Event]:
        return [self.event(each) for each in events]


async def text_mask_of(store: JobStore, job: Job | None, masker: Masker) -> TextMask:
    """The mask for the texts about a job. None: the job was deleted, and only its tombstone is left."""
    return TextMask(masker, () if job is None else (await search(store, [job], masker))[0])


async def shown_jobs(store: JobStore, jobs: Sequence[Job], masker: Masker) -> list[Job]:
    """Jobs with masked errors, reasons and unit names. Their payloads are unchanged; they are masked separately. The
    search for secrets is limited; see `secret_search`."""
    with_texts = [job for job in jobs if _has_texts(job)]
    secrets = dict(zip((job.id for job in with_texts), await search(store, with_texts, masker), strict=True))
    return [with_masked_texts(job, masker, secrets.get(job.id, ())) for job in jobs]


async def shown_job(store: JobStore, job: Job, masker: Masker) -> Job:
    """The same for one job."""
    return (await shown_jobs(store, [job], masker))[0]


def _has_texts(job: Job) -> bool:
    return job.error is not None or job.reason is not None


def with_masked_texts(job: Job, masker: Masker, secrets: Secrets) -> Job:
    """A job whose texts are masked with these secrets."""
    if not _has_texts(job) and job.unit is None:
        return job
    mask = TextMask(masker, secrets)
    return msgspec.structs.replace(
        job,
        error=None if job.error is None else mask.error(job.error),
        reason=mask.reason(job.reason, job.error),
        unit=None if job.unit is None else masker.unit(job.unit),
    )


async def explained(store: JobStore, job_id: str, masker: Masker, cluster: ClusterFacts | None = None) -> Explanation:
    """A job, explained in masked sentences; raises `JobNotFound`."""
    job, events, facts = await matter(store, job_id, cluster)
    shown = None if job is None else await shown_job(store, job, masker)
    mask = await text_mask_of(store, job, masker)
    return explain(job_id, shown, mask.events(events), facts)


def _error_in(data: dict[str, Any]) -> ErrorInfo | None:
    try:
        return msgspec.convert(data.get("error"), ErrorInfo | None)
    except msgspec.ValidationError:  # written by another version
        return None


__all__ = [
    "UNSEARCHED",
    "TextMask",
    "explained",
    "shown_job",
    "shown_jobs",
    "text_mask_of",
    "with_masked_texts",
]
