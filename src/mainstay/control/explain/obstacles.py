"""Why no worker has taken a waiting job: each obstacle in a sentence, with what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from ...lifecycle import table_of
from ...model import Job, Lane, Session
from ...words import SessionNames, counted, moment, sentence, span
from .facts import Advice, Awaited, Facts, Obstacle, is_alive
from .node_obstacles import awaited_nodes, unknown_leader

#: jobs and workers that are named; the rest is counted
_NAMED = 5


def obstacles(job: Job, facts: Facts) -> list[Obstacle]:
    """All obstacles of a job, the hardest first. Without one, a worker takes it as soon as it has room."""
    state = table_of(job.parent).get(job.status)
    if state is None or state.settled:
        return []
    if state.holds:
        return list(facts.own or ())
    if job.lane == Lane.ASIDE:
        return [_aside()]
    if job.awaits:
        return [*_others(job, facts), *_pause(job, facts)]
    found: list[Obstacle] = []
    if job.awaits_cores and facts.own is None:
        return [Obstacle(text="It waits for cores of nodes.", stops=False)]
    if job.due_ms > facts.now_ms and not job.awaits_cores:
        found.append(_time(job, facts))
    if facts.own is not None:
        return [*found, *facts.own, *unknown_leader(facts)]
    found += _pause(job, facts)
    found += _slot(job, facts)
    found += awaited_nodes(job, facts) or _no_worker(job, facts) or _unserved(job, facts)
    if found:
        return found
    if not _all_announce(facts):
        found += _elsewhere(job, facts)
    if facts.ahead:
        found.append(_line(job, facts))
    return found


def _aside() -> Obstacle:
    text = "Its stored row cannot be read and was set aside: no worker will take it."
    return Obstacle(text=text, advice=(Advice(why="see what is wrong with the row", command="mainstay check"),))


def _time(job: Job, facts: Facts) -> Obstacle:
    text = f"It waits until it is due: {moment(job.due_ms)}, in {span(job.due_ms - facts.now_ms)}."
    advice = Advice(why="do not wait: send it to its queue now", command=f"mainstay jobs retry {job.id}")
    # a unit waits in its claimable state; there is nothing to send back
    return Obstacle(text=text, advice=() if job.is_unit else (advice,), stops=False)


def _others(job: Job, facts: Facts) -> Iterator[Obstacle]:
    wanted = "succeeded" if job.options.after_when == "succeeded" else "settled"
    left = [other for other in facts.awaited if not other.settled]
    over = len(facts.awaited) - len(left)
    if not facts.awaited or not left:
        text = "It waits for other jobs, but all of them have settled or are gone."
        yield Obstacle(text=text, advice=(Advice(why="find and repair this", command="mainstay check"),))
        return
    named = ", ".join(_other(other) for other in left[:_NAMED])
    more = f" and {counted(len(left) - _NAMED, 'more job')}" if len(left) > _NAMED else ""
    done = f" ({over} of {len(facts.awaited)} settled)" if over else ""
    advice = Advice(why=f"see what {left[0].id} waits for", command=f"mainstay jobs explain {left[0].id}")
    text = f"It waits until {_which(len(facts.awaited))} {wanted}{done}. Still open: {named}{more}."
    yield Obstacle(text=text, advice=(advice,), stops=False)
    if job.options.after_failed is not None and wanted == "succeeded":
        end = "skipped" if job.options.after_failed == "skip" else "failed"
        yield Obstacle(text=f"If one of them does not succeed, it is {end}.", stops=False)


def _which(n: int) -> str:
    return "another job has" if n == 1 else f"{n} other jobs have all"


def _other(other: Awaited) -> str:
    return f"{other.id} ({other.name}, {other.status})"


def _pause(job: Job, facts: Facts) -> list[Obstacle]:
    if facts.queue is None or not facts.queue.paused:
        return []
    who = f" by {facts.queue.set_by}" if facts.queue.set_by else ""
    paused = f"is paused{who}"
    if facts.queue.set_ms is not None:
        paused = f"has been paused{who} since {moment(facts.queue.set_ms)}"
    why = f": {facts.queue.reason}" if facts.queue.reason else " (no reason was given)"
    text = f"{sentence(f'Queue {job.queue} {paused}{why}')} Its jobs are not handed out until it is resumed."
    advice = Advice(why="hand out its jobs again", command=f"mainstay queues resume {shlex.quote(job.queue)}")
    return [Obstacle(text=text, advice=(advice,))]


def _slot(job: Job, facts: Facts) -> list[Obstacle]:
    key = job.concurrency_key
    if key is None or facts.limit is None:
        return []
    holders = [held for held in facts.held if held.concurrency_key == key and held.id != job.id]
    if job.lane != Lane.BLOCKED and len(holders) < facts.limit:
        return []
    names = SessionNames(facts.sessions)
    named = ", ".join(f"{held.id} ({held.name}, held by {names[held.session or '']})" for held in holders[:_NAMED])
    more = f" and {counted(len(holders) - _NAMED, 'more job')}" if len(holders) > _NAMED else ""
    by = f", by {named}{more}" if named else ""
    text = f"Its concurrency key {key!r} is at its limit: {len(holders)} of {facts.limit} slots are taken{by}."
    advice = [Advice(why="see when a slot becomes free", command=f"mainstay jobs explain {holders[0].id}")]
    return [Obstacle(text=text, advice=tuple(advice if holders else ()), stops=False)]


def _no_worker(job: Job, facts: Facts) -> list[Obstacle]:
    if any(is_alive(session, facts.lease_ms) for session in facts.sessions):
        return []
    text = "No worker is alive on this store: no session is open."
    if facts.sessions:
        last = max(facts.sessions, key=lambda session: session.beat_ms)
        who, silent = SessionNames(facts.sessions).full(last.id), span(facts.lease_ms - last.beat_ms)
        text = f"No worker is alive on this store: {who}, the last one seen, has been silent for {silent}."
    command = f"mainstay worker MODULE:APP --queues {shlex.quote(job.queue)}"
    start = Advice(why=f"start a worker that listens on queue {job.queue}", command=command)
    return [Obstacle(text=text, advice=(start,))]


def _serving(facts: Facts) -> list[Session]:
    """The sessions that take jobs."""
    return [each for each in facts.sessions if is_alive(each, facts.lease_ms) and not each.is_draining]


def _all_announce(facts: Facts) -> bool:
    """Whether every session announces what it serves."""
    return all(session.offer is not None for session in _serving(facts))


def _unserved(job: Job, facts: Facts) -> list[Obstacle]:
    live = _serving(facts)
    if not live or not _all_announce(facts):
        return []
    queue, what = job.queue, job.name if job.kind == "task" else f"{job.kind} {job.name}"
    command = f"mainstay worker MODULE:APP --queues {shlex.quote(queue)}"
    here = [session for session in live if session.serves(queue)]
    if not here:
        others = sorted({name for session in live if session.offer for name in session.offer.queues})
        text = f"No live worker listens on queue {queue}. The live workers listen on {_listed(others)}."
        return [Obstacle(text=text, advice=(Advice(why=f"start a worker that listens on {queue}", command=command),))]
    if any(session.knows(job.kind, job.name) for session in here):
        return []
    names = SessionNames(facts.sessions)
    text = f"No live worker of queue {queue} knows {what} ({_listed(names[each.id] for each in here)})."
    if elsewhere := [session for session in live if session.knows(job.kind, job.name)]:
        text += f" Workers that know it do not listen on the queue: {_listed(names[each.id] for each in elsewhere)}."
    why = f"start a worker whose program has {what}: import the module that defines it"
    return [Obstacle(text=text, advice=(Advice(why=why, command=command),))]


def _listed(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - _NAMED} more" if len(distinct) > _NAMED else ""
    return ", ".join(distinct[:_NAMED]) + more


def _elsewhere(job: Job, facts: Facts) -> list[Obstacle]:
    """A session may not announce its queues; then the jobs that it holds are a hint."""
    alive = {session.id for session in facts.sessions if is_alive(session, facts.lease_ms)}
    if any(held.queue == job.queue and held.session in alive for held in facts.held):
        return []
    if len(alive) == 1:
        text = f"1 session is at work, but it holds no job of queue {job.queue} now."
    else:
        text = f"{len(alive)} sessions are at work, but none of them holds a job of queue {job.queue} now."
    look = Advice(why=f"see the live workers; does one of them listen on {job.queue}?", command="mainstay workers list")
    return [Obstacle(text=text, advice=(look,), stops=False)]


def _line(job: Job, facts: Facts) -> Obstacle:
    least = "" if facts.ahead_counted else "at least "
    go = "goes" if facts.ahead == 1 else "go"
    text = (
        f"{least}{counted(facts.ahead, 'ready job')} of queue {job.queue} {go} before it: due earlier, or of higher "
        f"priority than its {job.priority}."
    )
    return Obstacle(text=text[0].upper() + text[1:], stops=False)
