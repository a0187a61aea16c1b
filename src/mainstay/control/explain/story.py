"""The explanation itself: a pure function of the row, its events and the facts around it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...clock import duration_text
from ...kinds import is_kind, kind_named, part
from ...lifecycle import Event, State, table_of
from ...model import Job, is_reserved
from ...words import SessionNames, counted, moment, sentence, span
from .attempts import Attempt, read_attempts
from .facts import Advice, Facts, Obstacle, is_alive
from .node_words import closing, heard, while_away
from .obstacles import obstacles

#: attempts and moves that are listed; earlier ones are counted
_LISTED = 15


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Sentences that answer one question."""

    title: str
    sentences: tuple[str, ...]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A job's story in sentences."""

    id: str
    name: str
    status: str | None
    """None: it was deleted"""
    sections: tuple[Section, ...]
    advice: tuple[Advice, ...]


def explain(job_id: str, job: Job | None, events: Sequence[Event], facts: Facts) -> Explanation:
    """Say where a job is and why, what it waits for, what happened, and what comes next.

    >>> from mainstay.testing import a_job
    >>> found = explain("x", a_job("pending", queue="mail"), [], Facts(now_ms=60_000, lease_ms=0))
    >>> print(*found.sections[0].sentences)
    It is pending and has been ready to be claimed from queue mail for 1m.
    """
    if job is None:
        return _deleted(job_id, events, facts)
    story = _Story(job, events, facts)
    sections = (
        ("now", story.now()),
        ("waits for", [obstacle.text for obstacle in story.obstacles]),
        ("history", story.history()),
        ("refused", story.refused()),
        ("next", story.next()),
    )
    return Explanation(
        id=job.id,
        name=job.name,
        status=job.status,
        sections=tuple(Section(title=title, sentences=tuple(lines)) for title, lines in sections if lines),
        advice=tuple(story.advice()),
    )


def _deleted(job_id: str, events: Sequence[Event], facts: Facts) -> Explanation:
    lines = ["It was deleted; only its tombstone is left."]
    name = ""
    for event in events[-1:]:
        name = str(event.data.get("name", ""))
        why = f": {event.reason}" if event.reason else ""
        when = f"{moment(event.at_ms)}, {span(facts.now_ms - event.at_ms)} ago"
        deleted = sentence(f"It was deleted by {event.actor} at {when}, when it was {event.to}{why}")
        lines = [deleted, "Only this tombstone is left."]
    return Explanation(
        id=job_id, name=name, status=None, sections=(Section(title="now", sentences=tuple(lines)),), advice=()
    )


class _Story:
    """The sentences about one job."""

    def __init__(self, job: Job, events: Sequence[Event], facts: Facts) -> None:
        table = table_of(job.parent)
        self.job = job
        self.facts = facts
        self.state: State | None = table.get(job.status)
        self.obstacles: list[Obstacle] = obstacles(job, facts)
        self._events = events
        self._names = SessionNames(facts.sessions)
        self._attempts, self._others = read_attempts(events, table)
        self._holder = next((session for session in facts.sessions if session.id == job.session), None)
        self._placed = is_reserved(job.queue)
        """a leader places it; no worker claims it"""
        self._anyone = any(is_alive(session, facts.lease_ms) for session in facts.sessions)

    # where it is ------------------------------------------------------------------------------------

    def now(self) -> list[str]:
        job, state = self.job, self.state
        if state is None:
            return [f"It is {job.status!r}, a state this version does not know: a newer Mainstay wrote it."]
        if state.settled:
            return self._ended(state)
        if state.holds:
            return self._held(state)
        if state.waiting:
            lines = [f"It is {state.name}, and no worker runs it."]
        elif job.awaits_cores:
            lines = [f"It is {state.name} and waits for cores of nodes."]
        elif job.due_ms > self.facts.now_ms:
            lines = [f"It is {state.name}, and not due before {moment(job.due_ms)}."]
        else:
            since = span(self.facts.now_ms - job.due_ms)
            ready = "waiting to be placed" if self._placed else f"ready to be claimed from queue {job.queue}"
            lines = [f"It is {state.name} and has been {ready} for {since}."]
        if job.reason:
            lines.append(self._labelled("Why", job.reason))
        return lines

    def _ended(self, state: State) -> list[str]:
        job = self.job
        at_ms = job.settled_ms if job.settled_ms is not None else job.changed_ms
        # it has settled, so the part of the meaning about retries does not apply
        meaning = state.meaning.split(";")[0] if state.name == "failed" else state.meaning
        # the other states are words for a condition: it has been failed, paused, quarantined
        began = "It succeeded at" if state.name == "succeeded" else f"It has been {state.name} since"
        lines = [f"{began} {moment(at_ms)}, {span(self.facts.now_ms - at_ms)} ago: {meaning}."]
        if job.reason:
            lines.append(self._labelled("Why", job.reason + self._beyond(state)))
        if self._is_permanent() and job.error is not None:
            lines.append(
                f"It was not retried: {job.error.type} is declared as not worth another attempt "
                "(by retry_on or give_up_on of its task, or by retryable=False of the error)."
            )
        last = next((each for each in reversed(self._events) if each.to == state.name and each.flag != "note"), None)
        if last is not None and last.flag:
            lines.append(f"It was put into this state by {self._names[last.actor]} ({last.flag}).")
        elif last is not None and not any(attempt.session == last.actor for attempt in self._attempts):
            lines.append(f"It was moved to this state by {self._names[last.actor]}.")
        if job.error is not None and not state.final:
            kind = "" if job.error.code == "error" else f" ({job.error.code})"
            lines.append(self._labelled("Its last error", f"{job.error.type}: {job.error.message}{kind}"))
        if state.final and self._attempts and self._attempts[-1].held_ms is not None:
            lines.append(f"The last run took {span(self._attempts[-1].held_ms)}.")
        return lines

    def _is_permanent(self) -> bool:
        """Whether its last failure was one that is not retried, however many retries are left."""
        job = self.job
        # a job that failed because of another one also has an error, but no attempt
        return job.status == "failed" and job.error is not None and job.error.retryable is False and job.failures > 0

    def _beyond(self, state: State) -> str:
        """Why there are more attempts than its retries allow."""
        job, again = self.job, self._manual_retries()
        if state.name != "quarantined" or not again or job.failures <= job.options.retry.retries + 1:
            return ""
        times = "once" if again == 1 else f"{again} times"
        return f" (retries={job.options.retry.retries}, and retried manually {times})"

    def _manual_retries(self) -> int:
        """How often an operator sent it back; the policy does so in the transaction that ends the attempt."""
        table = table_of(self.job.parent)
        sources = (table.get(event.source or "") for event in self._others if event.to == "pending")
        return sum(source is not None and source.settled for source in sources)

    def _held(self, state: State) -> list[str]:
        job, facts = self.job, self.facts
        lines = [f"It is {state.name}: {state.meaning}."]
        if state.stopping and job.reason:
            asked = next((event for event in reversed(self._events) if event.to == state.name), None)
            by = f" by {self._names[asked.actor]}" if asked is not None else ""
            lines.append(self._labelled(f"It was asked to stop{by}", job.reason))
        if self._placed and not job.is_unit:
            lines.append("Its nodes do the work. The placement leader advances it; no worker holds it.")
        elif job.session is None:
            lines.append("No worker holds it: its owner was lost, or its units do the work.")
        else:
            since = job.claimed_ms if job.claimed_ms is not None else job.changed_ms
            lines.append(
                f"{self._names.full(job.session)} has held it for {span(facts.now_ms - since)}{self._heard()}."
            )
            if job.started_ms is None:
                lines.append("The work has not begun yet.")
            else:
                lines.append(f"The work began {span(facts.now_ms - job.started_ms)} ago.")
        if facts.open_units:
            lines.append(f"{facts.open_units:,} of its units {'is' if facts.open_units == 1 else 'are'} open.")
        lines += self._progress()
        return lines

    def _heard(self) -> str:
        """Whether the holder is alive."""
        holder, facts = self._holder, self.facts
        if holder is None:
            return ", but that session is no longer known"
        if node := heard(holder, facts):
            return node
        silent = span(facts.lease_ms - holder.beat_ms)
        if holder.dead:
            return f", but it was found dead (silent for {silent})"
        if not is_alive(holder, facts.lease_ms):
            return f", but it has been silent for {silent}, longer than its lease of {duration_text(holder.lease_s)}"
        return f"; its last heartbeat was {silent} ago"

    def _progress(self) -> list[str]:
        progress, job = self.job.progress, self.job
        if progress is None or job.progress_ms is None:
            return []
        if job.claimed_ms is not None and job.progress_ms < job.claimed_ms:
            return []  # of an earlier attempt
        done = f"{progress.done:g}"
        if progress.total:
            done += f" of {progress.total:g} ({100 * progress.done / progress.total:.0f}%)"
        message = f": {progress.message}" if progress.message else ""
        return [sentence(f"Progress is {done}, last reported {span(self.facts.now_ms - job.progress_ms)} ago{message}")]

    # what happened ----------------------------------------------------------------------------------

    def history(self) -> list[str]:
        job, events = self.job, self._events
        lines = [self._submitted()]
        if events and events[0].seq > 1:
            lines.append(f"Its events up to number {events[0].seq - 1} are left out here.")
        numbered = [(attempt.seq, self._attempt(attempt)) for attempt in self._attempts]
        numbered += [(event.seq, self._other(event)) for event in self._others if not self._is_plain(event)]
        numbered.sort()
        if len(numbered) > _LISTED:
            lines.append(f"{len(numbered) - _LISTED} earlier claims and moves are left out here.")
        lines += [line for _, line in numbered[-_LISTED:]]
        if job.failures or job.crashes or job.releases:
            retry = job.options.retry
            retried = "" if self._is_permanent() else f" ({retry.retries} may be retried)"
            lost = f" ({job.losses} of them lost with the worker)" if job.losses else ""
            lines.append(
                f"So far: {counted(job.failures, 'failure')}{retried}, {counted(job.crashes, 'crash', 'crashes')} "
                f"(the budget is {retry.crash_budget}), {counted(job.releases, 'release')}{lost}."
            )
        return lines

    def _is_plain(self, event: Event) -> bool:
        """Whether it needs no line of its own: the submit, and a move that the store makes when a job becomes due."""
        source = None if event.source is None else table_of(self.job.parent).get(event.source)
        return event.source is None or (source is not None and source.waiting and event.actor == "store")

    def _other(self, event: Event) -> str:
        who, when = self._names[event.actor], moment(event.at_ms)
        why = f": {event.reason}" if event.reason else ""
        if event.flag == "note":
            return self._names.within(sentence(f"{who} noted at {when}{why}"))
        moved = "forced" if event.flag == "forced" else "repaired" if event.flag == "repair" else "moved"
        return self._names.within(sentence(f"{who} {moved} it from {event.source} to {event.to} at {when}{why}"))

    def _submitted(self) -> str:
        first = self._events[0] if self._events and self._events[0].seq == 1 else None
        by = f" by {self._names[first.actor]}" if first else ""
        created_ms = self.job.created_ms
        return f"It was submitted{by} at {moment(created_ms)}, {span(self.facts.now_ms - created_ms)} ago."

    def _attempt(self, attempt: Attempt) -> str:
        name = self._names[attempt.session]
        at = moment(attempt.claimed_ms)
        if attempt.assigned:
            text = f"Claim {attempt.token}: it was {attempt.assigned} at {at}"
            if attempt.ended is None:
                return f"{text}, which has not confirmed it."
            why = attempt.error or attempt.reason or attempt.ended
            return self._names.within(
                sentence(f"{text}, which had not confirmed it after {span(attempt.held_ms or 0)}: {why}")
            )
        if self._placed and not self.job.is_unit:
            text = f"Start {attempt.token}: {name} started it on its nodes at {at}"
            return f"{text}." if attempt.ended is None else sentence(f"{text}; it {self._end_of_nodes(attempt)}")
        text = f"Claim {attempt.token}: {name} took it at {at}"
        if attempt.grants:
            granted = ", ".join(duration_text(round(seconds, 3)) for seconds in attempt.grants)
            text += f", was granted more time ({granted})"
        if attempt.notes:
            text += f" (noted: {'; '.join(attempt.notes)})"
        if attempt.ended is None:
            return f"{text} and still holds it." if self.job.session is not None else f"{text}."
        text += f", held it for {span(attempt.held_ms or 0)}"
        end = self._end(attempt)
        then = f" Then: {attempt.then_reason or attempt.then}" if attempt.then else ""
        then = f"{closing(attempt, self._names[attempt.session], self.facts)}{then}"
        return self._names.within(sentence(sentence(f"{text}, and {end}") + then))

    def _end_of_nodes(self, attempt: Attempt) -> str:
        """How a job ended that a leader placed on nodes."""
        why = f": {attempt.reason}" if attempt.reason else ""
        return f"{attempt.ended} after {span(attempt.held_ms or 0)}{why}"

    def _end(self, attempt: Attempt) -> str:
        """How a claim ended, from the flags of the state it left the job in."""
        state = table_of(self.job.parent).get(attempt.ended or "")
        why = f": {attempt.error or attempt.reason}" if attempt.error or attempt.reason else ""
        if state is None or state.holds:
            return f"lost it{why}" if attempt.reason else f"left it as {attempt.ended}"
        if not state.settled:
            if attempt.by != attempt.session:
                return f"lost it{why}; no failure was counted"
            return f"gave it back{why}; no failure was counted"
        if attempt.ended == "succeeded":
            return "finished it"
        if attempt.by != attempt.session:
            return f"{self._names[attempt.by]} ended it as {attempt.ended}{why}"
        return f"it ended as {attempt.ended}{why}"

    def refused(self) -> list[str]:
        return [
            f"{self._names[refusal.session]} came back at {moment(refusal.at_ms)} and reported {refusal.wanted!r} with "
            f"an old claim (token {refusal.token}): it had lost the job by then, so this was refused."
            for refusal in self.facts.refusals
        ]

    # what comes next --------------------------------------------------------------------------------

    def next(self) -> list[str]:
        state, job = self.state, self.job
        if state is None:
            return ["This version does not touch it; workers of the newer version know what to do."]
        if state.final:
            lines = ["Nothing: it never changes again."]
        elif state.settled:
            lines = ["Nothing happens until an operator acts on it."]
        elif state.holds:
            return self._while_held(state)
        else:
            return self._while_waiting()
        if job.expires_ms is not None:
            lines.append(f"It is kept until {moment(job.expires_ms)} and may be trimmed after that.")
        return lines

    def _while_held(self, state: State) -> list[str]:
        job, facts = self.job, self.facts
        if self._placed and not job.is_unit:
            return ["It goes on with the next end of a unit; if the leader dies, the next one continues."]
        if self._holder is not None and (lines := while_away(self._holder, facts)):
            return lines
        if job.session is not None and (self._holder is None or not is_alive(self._holder, facts.lease_ms)):
            if not self._anyone:
                return ["No worker is alive to sweep: the next worker that starts takes it back."]
            return [
                "The next sweep (every second, by every worker) takes it back, and it runs again if its policy allows."
            ]
        lines = []
        if job.expires_ms is not None:
            left = span(job.expires_ms - facts.now_ms)
            if state.name == "dispatched":
                lines.append(f"If it is not confirmed by {moment(job.expires_ms)} (in {left}), it is taken back.")
            elif state.stopping:
                lines.append(f"If it has not stopped by {moment(job.expires_ms)} (in {left}), a sweep ends it.")
            else:
                lines.append(f"It may run until {moment(job.expires_ms)} (in {left}){self._limits()}.")
        elif state.stopping:
            lines.append("It is cancelled when its worker confirms that the work has stopped.")
        elif job.started_ms is None and job.session is not None:
            lines.append("Its timeouts count from the moment when the work begins.")
        if not state.stopping:
            lines.append(self._if_it_fails())
        return lines

    def _limits(self) -> str:
        options = self.job.options
        parts = []
        if options.run_timeout_s is not None:
            parts.append(f"run timeout {duration_text(options.run_timeout_s)}")
        if self.job.extra_ms:
            parts.append(f"{span(self.job.extra_ms)} granted on top")
        if options.stall_timeout_s is not None:
            parts.append(f"stall timeout {duration_text(options.stall_timeout_s)}")
        parts.append(f"grace {duration_text(options.grace_s)}")
        return f": {', '.join(parts)}"

    def _if_it_fails(self) -> str:
        left = self.job.options.retry.retries - self.job.failures
        if left <= 0 and self.job.is_unit:
            return "If it fails, it is not tried again: its retries are spent."
        if left <= 0:
            return "If it fails, it is quarantined: its retries are spent."
        return f"If it fails, it is tried again: {left} of {self.job.options.retry.retries} retries are left."

    def _while_waiting(self) -> list[str]:
        job, facts = self.job, self.facts
        lines = []
        if any(obstacle.stops for obstacle in self.obstacles):
            lines.append("It stays where it is until that changes.")
        elif job.awaits:
            lines.append("It moves on in the transaction that settles the last of them.")
        elif job.awaits_cores:
            lines.append("The placement leader starts it as soon as nodes have the cores for it.")
        elif job.due_ms > facts.now_ms:
            taken = "the placement leader places it" if self._placed else "the first worker with room takes it"
            lines.append(f"At {moment(job.due_ms)} it becomes ready, and {taken}.")
        elif self._placed:
            lines.append("The placement leader places it as soon as that is possible.")
        elif not self.obstacles:
            lines.append("It is next: the first worker of its queue with room takes it.")
        else:
            lines.append("It is taken when its turn comes.")
        start_by_ms = job.options.start_by_ms
        if start_by_ms is not None and job.starts == 0:
            left = span(start_by_ms - facts.now_ms)
            lines.append(f"If no worker has started it by {moment(start_by_ms)} (in {left}), it times out for good.")
        return lines

    # what to do -------------------------------------------------------------------------------------

    def advice(self) -> list[Advice]:
        job, state = self.job, self.state
        if state is None:
            return [Advice(why="see which versions run; upgrade this one", command="mainstay --version")]
        if state.final:
            return []
        if state.settled:
            return self._repair_advice()
        own = list(dict.fromkeys(advice for obstacle in self.obstacles for advice in obstacle.advice))
        if not state.holds:
            return own or [Advice(why="follow it", command=f"mainstay jobs watch {job.id}")]
        lines = [*own, Advice(why="follow it", command=f"mainstay jobs watch {job.id}")]
        if job.session is not None and not self._anyone:
            lines = [Advice(why="start a worker: it takes the job back", command="mainstay worker MODULE:APP")]
        if not state.stopping:
            lines.append(Advice(why="stop it", command=f"mainstay jobs cancel {job.id}"))
        return lines

    def _repair_advice(self) -> list[Advice]:
        job = self.job
        table = table_of(job.parent)
        lines = []
        if job.error is not None:
            lines.append(Advice(why="read the error with its traceback", command=f"mainstay jobs show {job.id}"))
        kind = kind_named(job.kind) if is_kind(job.kind) else None
        advice = "" if kind is None else kind.unit_advice if job.is_unit else kind.advice
        if advice:
            lines += part(advice)(job)
        elif table.allows(job.status, "pending"):
            again = "the cause is fixed: run it again"
            if job.failures > job.options.retry.retries:
                again += " (one attempt; its retries are spent)"
            lines.append(Advice(why=again, command=f"mainstay jobs retry {job.id}"))
        if table.allows(job.status, "cancelled"):
            lines.append(Advice(why="it is no longer needed: close it", command=f"mainstay jobs cancel {job.id}"))
        return lines

    def _labelled(self, label: str, text: str) -> str:
        return sentence(f"{label}: {self._names.within(text)}")
