"""The page of one job: its state and the reason, its history, its data, and its actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.responses import RedirectResponse, Response

from ...control import PRIVATE_FIELDS
from ...control.explain import read_attempts
from ...errors import JobNotFound
from ...kinds import Kind, kind_named, part
from ...lifecycle import Event, State, table_of
from ...model import Job, Session, check_id
from ..api.text_mask import explained, shown_job, text_mask_of
from ..api.views import etag_of, size_of, value_view
from ..threads import in_thread
from .page import PageView
from .state_diagram import drawn
from .tree import TreeNode, tree_of

#: how many of the newest events are shown
_EVENTS = 200


class OwnAction(msgspec.Struct, frozen=True, kw_only=True):
    """A button that opens a dialog which the templates of a kind define."""

    dialog: str
    label: str


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the page that the kind of the job adds: a template, which gets this as `panel`."""

    template: str
    data: Any = None
    poll_s: float = 0
    """seconds between two updates of the page; 0: it is updated when the row of the job changes"""


#: makes a panel for a job, or None if there is nothing to show
PanelMaker = Callable[[PageView, Job], Awaitable[Panel | None]]


class AllowedActions(msgspec.Struct, frozen=True, kw_only=True):
    """The actions that the state of a job allows."""

    retry: bool = False
    cancel: bool = False
    priority: bool = False
    force: bool = False
    own: tuple[OwnAction, ...] = ()
    """actions of its kind"""


class HolderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The session that holds a job."""

    session: str
    known: Session | None
    silent_ms: int = 0


async def job(view: PageView) -> Response:
    job_id = check_id(view.path("id"))
    control, store = view.served.control, view.served.store
    explanation = await explained(store, job_id, view.masker, await view.site.cluster_facts(view.served))
    try:
        found = await control.jobs.get(job_id)
    except JobNotFound:
        return view.page("gone.html", title="Deleted job", explanation=explanation, status=410)
    kind = None if found.is_unit else kind_named(found.kind)
    if kind is not None and kind.job_page and "raw" not in view.request.query_params:
        return RedirectResponse(view.url(kind.job_page.replace("{id}", job_id)), 303)
    table = table_of(found.parent)
    stored_events = await control.jobs.events(job_id, after=max(found.trimmed_seq, found.version - _EVENTS))
    mask = await text_mask_of(store, found, view.masker)
    events = mask.events(stored_events)
    shown = await shown_job(store, found, view.masker)
    data = await in_thread(lambda: _data(view, found), size_of(found))
    counts = {} if found.is_unit else await control.jobs.unit_counts(job_id)
    panels = await _panels(view, found, kind)
    return view.page(
        "job.html",
        title=found.name,
        job=shown,
        etag=etag_of(found),
        state=table.get(found.status),
        can=allowed_actions(found, table.get(found.status)),
        explanation=explanation,
        events=list(reversed(events)),
        trimmed=events[0].seq - 1 if events else 0,
        attempts=list(reversed(read_attempts(events, table)[0])),
        drawing=drawn(table, events, found.status),
        holder=await _holder(view, found),
        awaited=await control.jobs.awaited(job_id) if found.options.after_when else [],
        refusals=await control.jobs.refusals(job_id),
        counts=counts,
        panels=panels,
        poll_s=min((panel.poll_s for panel in panels if panel.poll_s), default=""),
        data=data,
        metadata=view.masker.mask(found.options.metadata),
        force_to=forced_states(found),
        details=_details,
    )


def allowed_actions(job: Job, state: State | None) -> AllowedActions:
    """The actions that the API would not refuse, by the flags of the state."""
    can = AllowedActions()
    if state is not None and not state.final:
        can = AllowedActions(
            retry=(state.settled or state.waiting) and not job.awaits and not job.awaits_cores,
            cancel=not job.is_unit or not state.settled,
            priority=not state.settled,
            force=True,
        )
    kind = None if job.is_unit else kind_named(job.kind)
    if kind is None or not kind.actions:
        return can
    found: AllowedActions = part(kind.actions)(job, state, can)
    return found


def forced_states(job: Job) -> list[str]:
    """The states that it can be forced to: not its own, and none that needs a worker."""
    return [name for name, state in table_of(job.parent).states.items() if name != job.status and not state.holds]


async def _holder(view: PageView, job: Job) -> HolderInfo | None:
    if job.session is None:
        return None
    store = view.served.store
    lease_ms = store.clock.lease_ms()
    found = next((each for each in await store.sessions() if each.id == job.session), None)
    silent_ms = 0 if found is None else max(0, lease_ms - found.beat_ms)
    return HolderInfo(session=job.session, known=found, silent_ms=silent_ms)


async def _panels(view: PageView, job: Job, kind: Kind | None) -> list[Panel]:
    makers: Sequence[PanelMaker] = part(kind.panels) if kind is not None and kind.panels else ()
    return [panel for make in makers if (panel := await make(view, job)) is not None]


def _data(view: PageView, job: Job) -> list[tuple[str, TreeNode]]:
    """Masked payload, result and checkpoint; nothing if payloads are hidden."""
    if not view.masker.shows:
        return []
    found = [name for name in PRIVATE_FIELDS if getattr(job, name)]
    return [(name.capitalize(), tree_of(value_view(job, name, view.masker))) for name in found]


def _details(event: Event) -> TreeNode:
    return tree_of(event.data)


__all__ = ["AllowedActions", "OwnAction", "Panel", "PanelMaker", "allowed_actions", "forced_states", "job"]
