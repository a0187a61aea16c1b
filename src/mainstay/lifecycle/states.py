"""The two transition tables: the meaning of each state, and its next states.

This is the only place that defines which state may follow which. All other code uses the flags.

- *waiting*: becomes claimable by itself when it is due
- *claimable*: a worker may take it
- *holds*: a session owns it, with a lease and a token
- *stopping*: its owner is asked to stop
- *settled*: nothing happens until an operator or a policy moves it
- *final*: never changes again
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One state of a table, with its flags."""

    name: str
    meaning: str
    next: tuple[str, ...] = ()
    waiting: bool = False
    claimable: bool = False
    holds: bool = False
    stopping: bool = False
    settled: bool = False
    final: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        names = ("waiting", "claimable", "holds", "stopping", "settled", "final")
        return tuple(name for name in names if getattr(self, name))


class Table:
    """A named set of states. An unknown name returns `None` instead of raising: a row of a newer version must still be
    shown."""

    def __init__(self, name: str, *, start: tuple[str, ...], states: tuple[State, ...]) -> None:
        self.name = name
        self.start = start
        self.states: Mapping[str, State] = MappingProxyType({s.name: s for s in states})
        self._allowed = {s.name: frozenset(s.next) for s in states}
        for state in states:
            unknown = [n for n in (*state.next, *start) if n not in self.states]
            if unknown or (state.final and (state.next or not state.settled)):
                raise AssertionError(f"table {name}: {state.name} is declared wrongly: {unknown}")

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    def get(self, name: str) -> State | None:
        return self.states.get(name)

    def allows(self, source: str, to: str) -> bool:
        return to in self._allowed.get(source, ())

    def named(self, flag: str) -> tuple[str, ...]:
        """Names of the states with a flag, for queries."""
        return tuple(s.name for s in self.states.values() if flag in s.flags)


JOB = Table(
    "job",
    start=("pending", "scheduled"),
    states=(
        State(
            name="scheduled",
            meaning="waits for its time (delay, cron, retry backoff) or for other jobs",
            next=("pending", "failed", "timed_out", "quarantined", "cancelled", "skipped"),
            waiting=True,
        ),
        State(
            name="pending",
            meaning="ready to be claimed",
            next=("running", "scheduled", "failed", "timed_out", "quarantined", "cancelled", "skipped"),
            claimable=True,
        ),
        State(
            name="running",
            meaning="claimed; its worker or its units are working",
            next=(
                "finalizing",
                "validating",
                "succeeded",
                "failed",
                "timed_out",
                "quarantined",
                "cancelling",
                "cancelled",
                "skipped",
                "pending",
            ),
            holds=True,
        ),
        State(
            name="finalizing",
            meaning="its units are done; the job-level phase runs",
            next=("validating", "succeeded", "failed", "cancelling", "timed_out", "skipped"),
            holds=True,
        ),
        State(
            name="validating",
            meaning="expected outputs are being checked",
            next=("succeeded", "partial", "failed", "cancelling", "timed_out"),
            holds=True,
        ),
        State(
            name="cancelling",
            meaning="asked to stop; workers are confirming",
            next=("cancelled", "succeeded"),
            holds=True,
            stopping=True,
        ),
        State(
            name="failed",
            meaning="the attempt failed; retried at once if the policy allows it",
            next=("scheduled", "pending", "quarantined", "cancelled"),
            settled=True,
        ),
        State(
            name="partial",
            meaning="some outputs are missing; resumable in place",
            next=("pending", "validating", "succeeded", "cancelled"),
            settled=True,
        ),
        State(
            name="timed_out",
            meaning="deadline, queue deadline, silence or a dead worker; retried at once if the policy allows it",
            next=("scheduled", "pending", "quarantined", "cancelled"),
            settled=True,
        ),
        State(
            name="quarantined",
            meaning="given up; kept complete for an operator (the dead-letter queue)",
            next=("pending", "cancelled"),
            settled=True,
        ),
        State(name="succeeded", meaning="done, and it stays done", settled=True, final=True),
        State(name="cancelled", meaning="stopped on request", settled=True, final=True),
        State(name="skipped", meaning="not needed; left out on purpose", settled=True, final=True),
    ),
)

UNIT = Table(
    "unit",
    start=("pending",),
    states=(
        State(
            name="pending",
            meaning="ready to be claimed, from its not-before time on",
            next=("dispatched", "running", "failed", "skipped", "cancelled"),
            claimable=True,
        ),
        State(
            name="dispatched",
            meaning="sent to a worker that has not confirmed yet",
            next=("running", "pending", "cancelled", "timed_out"),
            holds=True,
        ),
        State(
            name="running",
            meaning="a worker is working",
            next=("succeeded", "failed", "timed_out", "cancelled", "skipped", "pending"),
            holds=True,
        ),
        State(name="failed", meaning="the attempt failed", next=("pending",), settled=True),
        State(name="timed_out", meaning="too late, or its worker died", next=("pending",), settled=True),
        State(
            name="succeeded",
            meaning="done; reopened only when a partial job is resumed",
            next=("pending",),
            settled=True,
        ),
        State(name="cancelled", meaning="stopped on request", settled=True, final=True),
        State(name="skipped", meaning="its output already existed, or it is not needed", settled=True, final=True),
    ),
)


def is_stopping(parent: str | None, status: str) -> bool:
    """Whether the owner of a row in this status is asked to stop."""
    state = table_of(parent).get(status)
    return state is not None and state.stopping


def table_of(parent: str | None) -> Table:
    """Units are rows with a parent; everything else is a job."""
    return JOB if parent is None else UNIT
