"""Veil: what is masked of a job's data is kept out of the texts about it as well.

A field can be masked by its name; a text has no fields. So the values that are masked in a payload are looked for in
the errors and reasons of the same job. Where no payloads are shown, errors say their type and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...batch.desk import Desk, Output, ToRun
from ...control.data import readable_value
from ...control.explain import Explanation, explain, matter
from ...control.rules.attempts import in_short
from ...lifecycle import Event, details_text
from ...model import ErrorInfo, Job
from ...report.batch import BatchReport, batch_report
from ...stores import JobStore
from .masking import MASK, Masker


class Veil:
    """For the texts about one job.

    >>> from mainstay.testing import a_job
    >>> job = a_job("failed", payload=msgspec.msgpack.encode({"password": "hush"}), reason="no, hush is wrong")
    >>> Veil(Masker(("password",)), job).text(job.reason)
    'no, *** is wrong'
    """

    def __init__(self, masker: Masker, job: Job | None) -> None:
        self._masker = masker
        self._secrets = () if job is None else _secrets(masker, job)

    def text(self, text: str) -> str:
        """A text without them."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def error(self, error: ErrorInfo) -> ErrorInfo:
        """Why an attempt failed, as far as it may be told."""
        if not self._masker.shows:
            return msgspec.structs.replace(error, message=MASK, traceback=None)
        traceback = None if error.traceback is None else self.text(error.traceback)
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


def veiled(job: Job, masker: Masker) -> Job:
    """A job whose error, reason and name as a unit may be shown. Its payload is as it was: that is masked apart."""
    if job.error is None and job.reason is None and job.unit is None:
        return job
    veil = Veil(masker, job) if job.error is not None or job.reason is not None else Veil(masker, None)
    return msgspec.structs.replace(
        job,
        error=None if job.error is None else veil.error(job.error),
        reason=veil.reason(job.reason, job.error),
        unit=None if job.unit is None else masker.unit(job.unit),
    )


async def explained(store: JobStore, job_id: str, masker: Masker) -> Explanation:
    """A job's story in sentences; raises `JobNotFound`."""
    job, events, facts = await matter(store, job_id)
    shown = None if job is None else veiled(job, masker)
    return explain(job_id, shown, Veil(masker, job).events(events), facts)


async def shown_report(desk: Desk, job_id: str, masker: Masker) -> BatchReport:
    """The report of a batch, by parameters that may be shown."""
    report = await batch_report(desk, job_id, told=lambda unit: veiled(unit, masker))
    return msgspec.structs.replace(
        report,
        outcomes=[msgspec.structs.replace(one, params=masker.params(one.params)) for one in report.outcomes],
        lacking=[
            msgspec.structs.replace(one, unit=masker.unit(one.unit), path=masker.unit(one.path))
            for one in report.lacking
        ],
    )


def veiled_validation(validation: Any, masker: Masker) -> Any:
    """What a look at all outputs came to, as data; it names the first that lack. Anything else as it is."""
    if not isinstance(validation, dict) or not isinstance(validation.get("first"), list | tuple):
        return validation
    return {**validation, "first": [_veiled_name(one, masker) for one in validation["first"]]}


def veiled_output(output: Output, masker: Masker) -> Output:
    """One expected output of a batch."""
    return msgspec.structs.replace(output, unit=masker.unit(output.unit), path=masker.unit(output.path))


def veiled_to_run(unit: ToRun, masker: Masker) -> ToRun:
    """One unit that would be run."""
    return msgspec.structs.replace(unit, unit=masker.unit(unit.unit))


def _veiled_name(lacking: Any, masker: Masker) -> Any:
    named = lacking.keys() & {"unit", "path"} if isinstance(lacking, dict) else ()
    return {**lacking, **{name: masker.unit(str(lacking[name])) for name in named}} if named else lacking


def _secrets(masker: Masker, job: Job) -> tuple[str, ...]:
    if not job.payload:
        return masker.secrets(job.options.metadata)
    try:
        payload = readable_value(job.payload)
    except ValueError:
        # of one that cannot be read nobody knows what to look for
        payload = None
    return masker.secrets([payload, job.options.metadata])


def _error_in(data: dict[str, Any]) -> ErrorInfo | None:
    try:
        return msgspec.convert(data.get("error"), ErrorInfo | None)
    except msgspec.ValidationError:  # written by another version
        return None


__all__ = ["Veil", "explained", "shown_report", "veiled", "veiled_output", "veiled_to_run", "veiled_validation"]
