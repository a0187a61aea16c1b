"""Veil: what is masked of a job's data is kept out of the texts about it as well.

A field can be masked by its name; a text has no fields. So the values that are masked in a payload are looked for in
the errors and reasons of the same job. Where no payloads are shown, errors say their type and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...control.explain import Explanation, explain, matter
from ...control.rules.attempts import in_short
from ...lifecycle import Event, details_text
from ...model import ErrorInfo, Job
from ...stores import JobStore
from .masker import MASK, Masker
from .secret_cache import Secrets
from .secret_search import search

#: instead of a text of a job whose payload was not searched for secrets
UNSEARCHED = f"{MASK} (not shown here: the job's payload is too large to search for secrets; look at the job itself)"


class TextMask:
    """For the texts about one job. `secrets` are the hidden values of its payload; None: they are not known, so that
    no text is shown.

    >>> TextMask(Masker(("password",)), ("hush",)).text("no, hush is wrong")
    'no, *** is wrong'
    """

    def __init__(self, masker: Masker, secrets: Secrets) -> None:
        self._masker = masker
        self._secrets = secrets

    def text(self, text: str) -> str:
        """A text without them."""
        if self._secrets is None:
            return UNSEARCHED
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return self._masker.text(text)

    def error(self, error: ErrorInfo) -> ErrorInfo:
        """Why an attempt failed, as far as it may be told."""
        if not self._masker.shows:
            return msgspec.structs.replace(error, message=MASK, traceback=None)
        traceback = None if error.traceback is None or self._secrets is None else self.text(error.traceback)
        return msgspec.structs.replace(error, message=self.text(error.message), traceback=traceback)

    def reason(self, reason: str | None, error: ErrorInfo | None) -> str | None:
        """A reason. One that is an error in short is made anew: a value that was cut with it would not be found."""
        if reason is None:
            return None
        if error is not None and reason == in_short(error):
            return in_short(self.error(error))
        return self.text(reason)

    def event(self, event: Event) -> Event:
        """One line of the audit trail."""
        data = event.data
        error = _error_in(data)
        told: dict[str, Any] = self._masker.mask(data)
        if error is not None:
            told["error"] = msgspec.to_builtins(self.error(error))
        details = event.details if told == data else details_text(told)
        return msgspec.structs.replace(event, reason=self.reason(event.reason, error), details=details)

    def events(self, events: Iterable[Event]) -> list[Event]:
        return [self.event(each) for each in events]


async def text_mask_of(store: JobStore, job: Job | None, masker: Masker) -> TextMask:
    """For the texts about a job. None: a job that was deleted, of which only its tombstone is left."""
    return TextMask(masker, () if job is None else (await search(store, [job], masker))[0])


async def shown_jobs(store: JobStore, jobs: Sequence[Job], masker: Masker) -> list[Job]:
    """Jobs whose errors, reasons and names as units may be shown. Their payloads are as they were: they are masked
    apart. What is searched for secrets is limited; see `secret_search`."""
    with_texts = [job for job in jobs if _has_texts(job)]
    found = dict(zip((job.id for job in with_texts), await search(store, with_texts, masker), strict=True))
    return [with_masked_texts(job, masker, found.get(job.id, ())) for job in jobs]


async def shown_job(store: JobStore, job: Job, masker: Masker) -> Job:
    """The same for one."""
    return (await shown_jobs(store, [job], masker))[0]


def _has_texts(job: Job) -> bool:
    return job.error is not None or job.reason is not None


def with_masked_texts(job: Job, masker: Masker, secrets: Secrets) -> Job:
    """A job whose texts are without these."""
    if not _has_texts(job) and job.unit is None:
        return job
    veil = TextMask(masker, secrets)
    return msgspec.structs.replace(
        job,
        error=None if job.error is None else veil.error(job.error),
        reason=veil.reason(job.reason, job.error),
        unit=None if job.unit is None else masker.unit(job.unit),
    )


async def explained(store: JobStore, job_id: str, masker: Masker) -> Explanation:
    """A job's story in sentences; raises `JobNotFound`."""
    job, events, facts = await matter(store, job_id)
    shown = None if job is None else await shown_job(store, job, masker)
    veil = await text_mask_of(store, job, masker)
    return explain(job_id, shown, veil.events(events), facts)


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
