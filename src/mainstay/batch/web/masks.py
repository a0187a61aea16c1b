"""Masks for batches: names of units and paths of outputs contain parameters, which may be secret."""

from __future__ import annotations

from typing import Any

import msgspec

from ...model import Job
from ...web import SMALL_BYTES
from ...web.api import Masker, Secrets, secrets_of, with_masked_texts
from ..report.model import BatchReport, batch_report
from ..service import BatchService, UnitToRun
from ..validation_result import OutputStatus


def masked_value(name: str, value: Any, masker: Masker) -> Any:
    """A value of a batch job: its result is a validation."""
    return masked_validation(value, masker) if name == "result" else value


async def shown_report(service: BatchService, job_id: str, masker: Masker) -> BatchReport:
    """The report of a batch with masked parameters."""
    report = await batch_report(
        service, job_id, shown=lambda unit: with_masked_texts(unit, masker, _secrets_of_unit(masker, unit))
    )
    return msgspec.structs.replace(
        report,
        outcomes=[msgspec.structs.replace(one, params=masker.params(one.params)) for one in report.outcomes],
        lacking=[
            msgspec.structs.replace(one, unit=masker.unit(one.unit), path=masker.unit(one.path))
            for one in report.lacking
        ],
    )


def masked_validation(validation: Any, masker: Masker) -> Any:
    """A validation as data, with masked names of its first defects. Other values are returned as they are."""
    if not isinstance(validation, dict) or not isinstance(validation.get("first"), list | tuple):
        return validation
    return {**validation, "first": [_masked_name(one, masker) for one in validation["first"]]}


def masked_output(output: OutputStatus, masker: Masker) -> OutputStatus:
    """One expected output of a batch."""
    return msgspec.structs.replace(output, unit=masker.unit(output.unit), path=masker.unit(output.path))


def masked_unit(unit: UnitToRun, masker: Masker) -> UnitToRun:
    """A unit that a resume would run."""
    return msgspec.structs.replace(unit, unit=masker.unit(unit.unit))


def _masked_name(lacking: Any, masker: Masker) -> Any:
    named = lacking.keys() & {"unit", "path"} if isinstance(lacking, dict) else ()
    return {**lacking, **{name: masker.unit(str(lacking[name])) for name in named}} if named else lacking


def _secrets_of_unit(masker: Masker, unit: Job) -> Secrets:
    """The secrets of a unit. Runs on the event loop for many units, so large payloads are not searched."""
    return secrets_of(masker, unit) if len(unit.payload) <= SMALL_BYTES else None


__all__ = ["masked_output", "masked_unit", "masked_validation", "masked_value", "shown_report"]
