"""Invariants of the values of a row: columns, payload, options, numbers and times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from ...clock import MAX_MS
from ...model import Job, Settings, expiry, id_time_ms, rank_of
from ..events import Event, time_text
from ..seals import SUBMITTED, digest_text, form_of, job_seal, result_seal
from .view import Flaw, Mend, View, payload_sha256

#: A time further in the future than this is wrong; clocks of different machines differ by less.
SKEW_MS = 86_400_000
PRIORITIES = range(-100, 101)

#: The identity of a job. Any other value can be replaced by what the trail proves, or be left empty.
_IDENTITY = ("id", "kind", "name", "queue", "parent", "unit", "options", "unique_key", "priority", "due_ms", "payload")
#: times in the past when they are written, unlike `due_ms` and `expires_ms`
_PAST = ("created_ms", "changed_ms", "claimed_ms", "started_ms", "settled_ms", "progress_ms")


def unreadable(view: View) -> Iterator[Flaw]:
    for column, what in sorted(view.damaged.items()):
        mend = Mend.HOLD if column in _IDENTITY else Mend.FIX
        yield Flaw(f"the column {column} cannot be read: {what}", mend=mend)


def bad_payload(view: View) -> Iterator[Flaw]:
    payload = view.job.payload
    try:
        msgspec.msgpack.decode(payload)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        yield Flaw(f"the payload (sha256 {payload_sha256(payload)}) cannot be decoded: {error}")


def payload_changed(view: View) -> Iterator[Flaw]:
    for event in reversed(view.events):
        if "payload_sha256" not in (event.details or "") or not (event.source is None or event.flag == "repair"):
            continue
        wanted = event.data.get("payload_sha256")
        if wanted is None:
            continue
        found = payload_sha256(view.job.payload)
        if wanted != found:
            yield Flaw(f"the payload (sha256 {found}) is not the one sealed in event {event.seq} (sha256 {wanted})")
        return


def submit_changed(view: View) -> Iterator[Flaw]:
    job = view.job
    if not view.damaged.keys().isdisjoint((*SUBMITTED, "options")):
        return  # reported elsewhere
    for at in range(len(view.events) - 1, -1, -1):
        event = view.events[at]
        if "job_sha256" not in (event.details or ""):
            continue
        wanted = event.data.get("job_sha256")
        form = form_of(wanted)
        if form is None or wanted == job_seal(job, form):
            return
        right = _sealed_priority(job, str(wanted), form)
        if right is not None and _reprioritized(view.events[at + 1 :]):
            return
        if right is not None:
            message = f"priority is {job.priority}, but event {event.seq} seals {right}"
            rank = job.rank if fits(job.rank, job.due_ms, right) else default_rank(job.due_ms, right)
            yield Flaw(message, {"priority": right, "rank": rank}, Mend.FIX)
            return
        yield Flaw(
            f"it is not what was submitted: its name ({job.name!r}), queue ({job.queue!r}), priority ({job.priority}), "
            f"keys or options are not those sealed in event {event.seq}"
        )
        return


def _sealed_priority(job: Job, wanted: str, form: int) -> int | None:
    """The priority that matches the seal."""
    replace = msgspec.structs.replace
    return next((each for each in PRIORITIES if job_seal(replace(job, priority=each), form) == wanted), None)


def _reprioritized(events: Sequence[Event]) -> bool:
    """Whether a program of an earlier version changed the priority, which it recorded only as text."""
    return any(event.flag == "note" and (event.reason or "").startswith("priority ") for event in events)


def bad_result(view: View) -> Iterator[Flaw]:
    result = view.job.result
    if result is None:
        return
    try:
        msgspec.msgpack.decode(result)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        yield Flaw(f"the result (sha256 {digest_text(result)}) cannot be decoded: {error}")


def result_changed(view: View) -> Iterator[Flaw]:
    for event in reversed(view.events):
        if "result_sha256" in (event.details or ""):
            wanted, found = event.data.get("result_sha256"), result_seal(view.job.result)
            if wanted != found:
                yield Flaw(f"the result (sha256 {found}) is not the one sealed in event {event.seq} (sha256 {wanted})")
            return
        if event.flag != "repair":
            return  # an earlier version wrote it, and may have set another result


def bad_options(view: View) -> Iterator[Flaw]:
    options = view.job.options
    numbers = {
        "retry.retries": options.retry.retries,
        "retry.base_s": options.retry.base_s,
        "retry.cap_s": options.retry.cap_s,
        "retry.crash_budget": options.retry.crash_budget,
        "run_timeout_s": options.run_timeout_s,
        "stall_timeout_s": options.stall_timeout_s,
        "grace_s": options.grace_s,
        "keep_s": options.keep_s,
        "start_by_ms": options.start_by_ms,
    }
    for name, value in numbers.items():
        if value is not None and not (math.isfinite(value) and 0 <= value <= MAX_MS):
            yield Flaw(f"options.{name} is {value}")


def bad_number(view: View) -> Iterator[Flaw]:
    job = view.job
    if job.priority not in PRIORITIES and not any("priority" in flaw.fix for flaw in submit_changed(view)):
        bounded = min(max(job.priority, PRIORITIES[0]), PRIORITIES[-1])
        yield Flaw(f"priority is {job.priority}", {"priority": bounded, "rank": default_rank(job.due_ms, bounded)})
    if not 0 <= job.extra_ms <= MAX_MS:
        yield Flaw(f"extra_ms is {job.extra_ms}", {"extra_ms": 0})


def bad_time(view: View) -> Iterator[Flaw]:
    job, state = view.job, view.state
    latest = max([view.now_ms, *(event.at_ms for event in view.events if not view.broken)]) + SKEW_MS
    for name in _PAST:
        value = getattr(job, name)
        if value is not None and not 0 <= value <= min(latest, MAX_MS):
            right = view.last_ms
            if name == "created_ms":
                right = _created(view)
            elif name == "settled_ms" and view.settled_at_ms is not None:
                right = view.settled_at_ms
            yield Flaw(f"{name} is {time_text(value)}", {name: right})
    if job.expires_ms is not None and not 0 <= job.expires_ms <= MAX_MS:
        yield Flaw(f"expires_ms is {time_text(job.expires_ms)}", {"expires_ms": _watched(view)})
    if not 0 <= job.due_ms <= MAX_MS:
        due_ms = view.last_ms
        fix = {"due_ms": due_ms, "rank": default_rank(due_ms, job.priority)}
        # it is not safe to run a job before its time, and that time is lost
        mend = Mend.HOLD if state is None or state.waiting else Mend.FIX
        yield Flaw(f"due_ms is {time_text(job.due_ms)}", fix, mend)


def default_rank(due_ms: int, priority: int) -> int:
    """The rank with the default value of a point of priority; the value at the submit is not stored."""
    return rank_of(due_ms, priority, int(Settings().priority_boost_s * 1000))


def fits(rank: int, due_ms: int, priority: int, *, since_ms: int | None = None) -> bool:
    """Whether a rank is possible for a job: a point of priority is worth at most a year of waiting, depending on the
    settings of the submit. `since_ms`: when it was created; a job that was put off may keep the rank of an earlier due
    time."""
    earliest_ms = due_ms if since_ms is None else min(since_ms, due_ms)
    most_ms = abs(priority) * 365 * SKEW_MS
    if priority >= 0:
        return earliest_ms - most_ms <= rank <= due_ms
    return earliest_ms <= rank <= due_ms + most_ms


def _created(view: View) -> int:
    first = view.events[0] if view.events else None
    if first is not None and first.seq == 1 and 0 <= first.at_ms <= MAX_MS:
        return first.at_ms
    try:
        return min(id_time_ms(view.job.id), view.now_ms)
    except ValueError:
        return view.now_ms


def _watched(view: View) -> int | None:
    job, state = view.job, view.state
    if state is None or state.settled:
        return None
    if state.holds:
        sane = job.started_ms is None or 0 <= job.started_ms <= view.now_ms + SKEW_MS
        started_ms = job.started_ms if sane else view.now_ms
        extra_ms = min(max(job.extra_ms, 0), MAX_MS)
        return expiry(msgspec.structs.replace(job, started_ms=started_ms, extra_ms=extra_ms))
    return job.options.start_by_ms if job.starts == 0 else None
