"""The parts of batches on the page of a job: their outputs, and the actions resume and validate."""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import MainstayError
from ...lifecycle import State
from ...model import Job
from ...web.dashboard import AllowedActions, OwnAction, PageView, Panel
from ..advice import RESUMABLE
from ..validation_result import OutputStatus
from .masks import masked_output
from .services import service_at

#: units whose outputs are shown
_OUTPUTS = 60
_RESUME = OwnAction(dialog="resume", label="Resume…")
_VALIDATE = OwnAction(dialog="validate", label="Validate…")


def actions(job: Job, state: State | None, can: AllowedActions) -> AllowedActions:
    """A batch is resumed instead of retried: only units with missing or corrupt outputs run again."""
    if state is None or state.final:
        whole = (_RESUME, _VALIDATE) if job.status == "succeeded" else ()
        return msgspec.structs.replace(can, retry=False, own=whole)
    resume = (_RESUME,) if job.status in RESUMABLE else ()
    return msgspec.structs.replace(can, retry=False, own=(*resume, *((_VALIDATE,) if state.settled else ())))


async def outputs(view: PageView, job: Job) -> Panel:
    """The first outputs of a batch."""
    service = service_at(view.served)
    data: dict[str, Any]
    try:
        found, more = await service.outputs(job.id, limit=_OUTPUTS)
        status = await service.status(job.id)
    except MainstayError as error:
        data = {"error": str(error), "list": [], "more": None, "status": None}
    else:
        lacking_first = sorted((masked_output(each, view.masker) for each in found), key=_lacks)
        data = {"error": "", "list": lacking_first, "more": more, "status": status}
    return Panel(template="batch/outputs_panel.html", data=data)


def _lacks(output: OutputStatus) -> tuple[bool, int, int]:
    return output.state == "present", output.group, output.index


PANELS = (outputs,)

__all__ = ["PANELS", "actions", "outputs"]
