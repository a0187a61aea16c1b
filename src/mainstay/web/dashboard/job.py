"""One job's story: where it is and why, what happened to it, what it made, and what can be done about it."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import RedirectResponse, Response

from ...batch.desk import RESUMABLE, Output
from ...batch.spec import KIND as BATCH
from ...control.explain.attempts import read
from ...control.json_view import PRIVATE
from ...errors import JobNotFound, MainstayError
from ...lifecycle import Event, State, table_of
from ...model import Job, Session, check_id
from ..api.text_mask import explained, masked_output, shown_job, text_mask_of
from ..api.views import etag_of, size_of, value_view
from ..threads import in_thread
from .page import PageView
from .state_diagram import drawn
from .tree import Node, tree_of

#: events that are shown: the newest
_EVENTS = 200
_OUTPUTS = 60


class AllowedActions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may do to a job as it stands."""

    retry: bool = False
    cancel: bool = False
    priority: bool = False
    force: bool = False
    resume: bool = False
    validate: bool = False


class HolderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who works on it."""

    session: str
    known: Session | None
    silent_ms: int = 0


async def job(view: PageView) -> Response:
    job_id = check_id(view.path("id"))
    control, store = view.place.control, view.place.store
    told = await explained(store, job_id, view.masker)
    try:
        found = await control.jobs.get(job_id)
    except JobNotFound:
        return view.page("gone.html", title="Deleted job", told=told, status=410)
    if found.kind == "load" and found.parent is None and "raw" not in view.request.query_params:
        return RedirectResponse(view.url(f"/loads/{job_id}"), 303)
    table = table_of(found.parent)
    raw = await control.jobs.events(job_id, after=max(found.trimmed_seq, found.version - _EVENTS))
    veil = await text_mask_of(store, found, view.masker)
    events = veil.events(raw)
    shown = await shown_job(store, found, view.masker)
    data = await in_thread(lambda: _data(view, found), size_of(found))
    counts = {} if found.is_unit else await control.jobs.unit_counts(job_id)
    return view.page(
        "job.html",
        title=found.name,
        job=shown,
        etag=etag_of(found),
        state=table.get(found.status),
        can=can_of(found, table.get(found.status)),
        told=told,
        events=list(reversed(events)),
        trimmed=events[0].seq - 1 if events else 0,
        attempts=list(reversed(read(events, table).attempts)),
        drawing=drawn(table, events, found.status),
        holder=await _holder(view, found),
        awaited=await control.jobs.awaited(job_id) if found.options.after_when else [],
        refusals=await control.jobs.refusals(job_id),
        counts=counts,
        outputs=await _outputs(view, found),
        data=data,
        metadata=view.masker.mask(found.options.metadata),
        force_to=others(found),
        details=_details,
    )


def can_of(job: Job, state: State | None) -> AllowedActions:
    """By the flags of its state: what the API would refuse is not offered."""
    if state is None or state.final:
        is_batch = job.kind == BATCH and job.parent is None and job.status == "succeeded"
        return AllowedActions(resume=is_batch, validate=is_batch)
    retry = (state.settled or state.waiting) and not job.awaits
    batch = job.kind == BATCH and job.parent is None
    return AllowedActions(
        retry=retry and not batch,
        cancel=not job.is_unit or not state.settled,
        priority=not state.settled,
        force=True,
        resume=batch and job.status in RESUMABLE,
        validate=batch and state.settled,
    )


def others(job: Job) -> list[str]:
    """The states that it could be forced to: not where it is, and none that needs an owner, which force cannot give."""
    return [name for name, state in table_of(job.parent).states.items() if name != job.status and not state.holds]


async def _holder(view: PageView, job: Job) -> HolderInfo | None:
    if job.session is None:
        return None
    store = view.place.store
    lease_ms = store.clock.lease_ms()
    found = next((each for each in await store.sessions() if each.id == job.session), None)
    silent_ms = 0 if found is None else max(0, lease_ms - found.beat_ms)
    return HolderInfo(session=job.session, known=found, silent_ms=silent_ms)


async def _outputs(view: PageView, job: Job) -> dict[str, Any] | None:
    """What is there of a batch's outputs, the first of them."""
    if job.kind != BATCH or job.parent is not None:
        return None
    try:
        found, more = await view.place.desk.outputs(job.id, limit=_OUTPUTS)
        status = await view.place.desk.status(job.id)
    except MainstayError as error:
        return {"error": str(error), "list": [], "more": None, "status": None}
    lacking_first = sorted((masked_output(each, view.masker) for each in found), key=_lacks)
    return {"error": "", "list": lacking_first, "more": more, "status": status}


def _lacks(output: Output) -> tuple[bool, int, int]:
    return output.state == "present", output.group, output.index


def _data(view: PageView, job: Job) -> list[tuple[str, Node]]:
    """Payload, result and checkpoint, as far as they may be shown."""
    if not view.masker.shows:
        return []
    found = [name for name in PRIVATE if getattr(job, name)]
    return [(name.capitalize(), tree_of(value_view(job, name, view.masker))) for name in found]


def _details(event: Event) -> Node:
    return tree_of(event.data)


__all__ = ["AllowedActions", "can_of", "job", "others"]
