"""Invariants of the position of a row: its holder, lane, parent and time of settling."""

from __future__ import annotations

from collections.abc import Iterator

from ...clock import MAX_MS
from ...model import PLACE_QUEUE, Job, Lane
from ..events import time_text
from .content import PRIORITIES, SKEW_MS, default_rank, fits, submit_changed
from .view import Flaw, View

_CLAIM = ("session", "claimed_ms", "started_ms")
_LANES = {lane.value: lane.name for lane in Lane}


def stray_claim(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is None or state.holds:
        return
    held = [name for name in _CLAIM if getattr(job, name) is not None]
    if held:
        holder = f"session {job.session}" if job.session is not None else "no session"
        yield Flaw(f"it is {job.status}, but claimed by {holder} ({', '.join(held)})", dict.fromkeys(held))


def dead_claim(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is None or not state.holds or view.open_units or _is_led(job):
        return
    if job.session is None:
        if not _waits_for_owner(view):
            yield Flaw(f"it is {job.status}, but no session holds it and it has no unsettled unit")
    elif job.session not in view.live_sessions and job.session not in view.silent_sessions:
        yield Flaw(f"it is {job.status}, but its session {job.session} is gone")


def silent_holder(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is not None and state.holds and job.session in view.silent_sessions:
        yield Flaw(f"its session {job.session} fell silent; the next sweep of any worker takes the job back")


def ownerless(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is None or not state.holds or job.session is not None or view.open_units or _is_led(job):
        return
    if _waits_for_owner(view):
        yield Flaw(f"its owner was lost while it was {job.status}; another may take over in place")


def _is_led(job: Job) -> bool:
    """The placement leader advances the jobs in its queue: between two units, one has no holder and no open unit."""
    return job.queue == PLACE_QUEUE and job.session is None and not job.is_unit


def _waits_for_owner(view: View) -> bool:
    """A phase after the work is neither released nor ended when its owner dies: it waits for the next owner."""
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
    elif state.settled and view.settled_at_ms is not None:
        yield from _settled_as_recorded(view, view.settled_at_ms)
    elif not state.settled and job.settled_ms is not None:
        yield Flaw(f"it is {job.status}, but has a time of settling", {"settled_ms": None})


def _settled_as_recorded(view: View, at_ms: int) -> Iterator[Flaw]:
    job, keep_s = view.job, view.job.options.keep_s
    if job.settled_ms != at_ms:
        when = time_text(job.settled_ms) if job.settled_ms is not None else "never"
        yield Flaw(f"it settled {when}, but its event is of {time_text(at_ms)}", {"settled_ms": at_ms})
    ends_ms = None if keep_s is None else at_ms + int(keep_s * 1000)
    if job.expires_ms != ends_ms:
        yield Flaw(f"its retention ends at {job.expires_ms}, but was to end at {ends_ms}", {"expires_ms": ends_ms})


def created_time(view: View) -> Iterator[Flaw]:
    first = view.events[0] if view.events else None
    if first is None or view.broken or first.seq != 1 or first.source is not None:
        return
    if view.job.created_ms != first.at_ms and 0 <= first.at_ms <= MAX_MS:
        message = f"it was created {time_text(view.job.created_ms)}, but its first event is of {time_text(first.at_ms)}"
        yield Flaw(message, {"created_ms": first.at_ms})


def due_changed(view: View) -> Iterator[Flaw]:
    job, state, due_ms = view.job, view.state, view.due_ms
    if state is None or state.settled or due_ms is None or job.due_ms == due_ms or not 0 <= due_ms <= MAX_MS:
        return
    fix = {"due_ms": due_ms}
    if job.priority in PRIORITIES and not fits(job.rank, due_ms, job.priority, since_ms=job.created_ms):
        fix["rank"] = default_rank(due_ms, job.priority)
    yield Flaw(f"it is due {time_text(job.due_ms)}, but the trail says {time_text(due_ms)}", fix)


def wrong_lane(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    if state is None:
        return
    if state.claimable:
        fits = [Lane.READY, Lane.DUE, Lane.ROUTED, *([Lane.BLOCKED] if job.concurrency_key is not None else [])]
    else:
        fits = [Lane.DUE if state.waiting else Lane.NONE]
    if job.lane not in fits:
        lane = _LANES.get(job.lane, str(job.lane))
        yield Flaw(f"it is {job.status}, but in the lane {lane}", {"lane": fits[0]})


def wrong_rank(view: View) -> Iterator[Flaw]:
    job, trail_ms = view.job, view.due_ms
    if job.priority not in PRIORITIES or not 0 <= job.due_ms <= MAX_MS:
        return  # reported and repaired elsewhere
    due_ms = job.due_ms if trail_ms is None or not 0 <= trail_ms <= MAX_MS else trail_ms
    fix = {}
    if trail_ms is None and job.lane == Lane.READY and due_ms > view.now_ms + SKEW_MS:
        # it became ready because it was due; the time far ahead was written later
        due_ms = fix["due_ms"] = min(view.last_ms, view.now_ms)
    wrong = not fits(job.rank, due_ms, job.priority, since_ms=job.created_ms)
    if wrong and not any(
        "priority" in flaw.fix for flaw in submit_changed(view)
    ):  # otherwise repaired with the priority
        message = f"rank is {job.rank}, which does not fit priority {job.priority} and due time {due_ms}"
        yield Flaw(message, {**fix, "rank": default_rank(due_ms, job.priority)})
    elif fix:
        yield Flaw(f"it is ready, but due {time_text(job.due_ms)}", fix)


def orphan_unit(view: View) -> Iterator[Flaw]:
    if view.job.parent is not None and not view.parent_exists:
        yield Flaw(f"it is a unit of job {view.job.parent}, which does not exist")
