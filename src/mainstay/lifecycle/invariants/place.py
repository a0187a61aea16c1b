"""Invariants of where a row stands: who holds it, in which lane, under which job, settled when."""

from __future__ import annotations

from collections.abc import Iterator

from ...clock import MAX_MS
from ...model import Lane
from .content import PRIORITIES, SKEW_MS, default_rank
from .view import Flaw, View

_CLAIM = ("session", "claimed_ms", "started_ms")
_LANES = {lane.value: lane.name for lane in Lane}


def stray_claim(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is None or state.holds:
        return
    held = [name for name in _CLAIM if getattr(job, name) is not None]
    if held:
        who = f"session {job.session}" if job.session is not None else "nobody in particular"
        yield Flaw(f"it is {job.status}, yet claimed by {who} ({', '.join(held)})", dict.fromkeys(held))


def dead_claim(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is None or not state.holds or view.open_units:
        return
    if job.session is None:
        if not _waits_for_owner(view):
            yield Flaw(f"it is {job.status}, but nobody holds it and it has no unsettled unit")
    elif job.session not in view.live_sessions and job.session not in view.silent_sessions:
        yield Flaw(f"it is {job.status}, but its session {job.session} is gone")


def silent_holder(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is not None and state.holds and job.session in view.silent_sessions:
        yield Flaw(f"its session {job.session} fell silent; the next sweep of any worker takes the job back")


def ownerless(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is not None and state.holds and job.session is None and not view.open_units and _waits_for_owner(view):
        yield Flaw(f"its owner was lost while it was {job.status}; another may take over in place")


def _waits_for_owner(view: View) -> bool:
    """A phase after the work is not given back when its owner dies, nor ended: it waits for the next owner."""
    table, status = view.table, view.job.status
    return not table.allows(status, "pending") and not table.allows(status, "cancelled")


def settled_time(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is None:
        return
    if state.settled and job.settled_ms is None:
        moved = [event.at_ms for event in view.events if event.to == job.status and event.source != event.to]
        at_ms = moved[-1] if moved and 0 <= moved[-1] <= MAX_MS else view.last_ms
        yield Flaw(f"it is {job.status}, but has no time of settling", {"settled_ms": at_ms})
    elif not state.settled and job.settled_ms is not None:
        yield Flaw(f"it is {job.status}, but has a time of settling", {"settled_ms": None})


def wrong_lane(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is None:
        return
    if state.claimable:
        fits = [Lane.READY, Lane.DUE, *([Lane.BLOCKED] if job.concurrency_key is not None else [])]
    else:
        fits = [Lane.DUE if state.waiting else Lane.NONE]
    if job.lane not in fits:
        lane = _LANES.get(job.lane, str(job.lane))
        yield Flaw(f"it is {job.status}, but stands in the lane {lane}", {"lane": fits[0]})


def wrong_rank(view: View) -> Iterator[Flaw]:
    job = view.job
    if job.priority not in PRIORITIES or not 0 <= job.due_ms <= MAX_MS:
        return  # said elsewhere, and mended there
    ahead_ms = (job.due_ms - job.rank) * (1 if job.priority >= 0 else -1)
    # what a point of priority is worth in waiting is up to the submitter's settings, but no more than a year
    if not 0 <= ahead_ms <= abs(job.priority) * 365 * SKEW_MS:
        message = f"rank is {job.rank}, which does not fit priority {job.priority} and due time {job.due_ms}"
        yield Flaw(message, {"rank": default_rank(job.due_ms, job.priority)})


def orphan_unit(view: View) -> Iterator[Flaw]:
    if view.job.parent is not None and not view.parent_exists:
        yield Flaw(f"it is a unit of job {view.job.parent}, which does not exist")
