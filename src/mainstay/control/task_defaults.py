"""What a submit by name takes from its task: the queue and options that live workers offer for it.

A server, or a command with only a store, does not have the program, so a task's own options would be unknown there: its
jobs would wait in the queue `default`, where perhaps no worker listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..stores import JobStore

#: what was read is used for this long
_FRESH_S = 1.0

Options = Mapping[str, Any]


def filled(given: Options, defaults: Options) -> dict[str, Any]:
    """Options of a submit, with those of its task where it has none of its own (None). Tags and metadata are added to
    those of the task.

    >>> filled({"retries": 1, "tags": ["b"]}, {"queue": "mail", "retries": 5, "tags": ["a"]})
    {'retries': 1, 'tags': ['a', 'b'], 'queue': 'mail'}
    """
    made = dict(given)
    for name, value in defaults.items():
        own = given.get(name)
        if own is None:
            if not _is_ruled_out(name, given):
                made[name] = value
        elif name == "tags":
            made[name] = [*value, *own]
        elif name == "metadata":
            made[name] = {**value, **own}
    return made


def _is_ruled_out(name: str, given: Options) -> bool:
    """Whether an option of the task makes no sense with what the submit says."""
    return (name == "on_clash" and given.get("unique") is False) or (
        name == "on_stall" and given.get("stall_timeout") == "off"
    )


class TaskDefaults:
    """Of the tasks of one store: what the worker that started last offers for each. What was offered once is
    remembered, so that a job that is submitted while all workers are down waits where they will listen."""

    def __init__(self, store: JobStore, now_s: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._now_s = now_s
        self._known: dict[str, Options] = {}
        self._read_s: float | None = None

    async def of(self, names: Collection[str]) -> Mapping[str, Options]:
        """By task; one that no worker has offered is not in it."""
        fresh = self._read_s is not None and self._now_s() - self._read_s < _FRESH_S
        if not fresh or any(name not in self._known for name in names):
            self._read_s = self._now_s()
            for session in sorted(await self._store.sessions(), key=lambda each: each.started_ms):
                if session.offer is not None and not session.dead:
                    self._known.update(session.offer.tasks)
        return self._known


__all__ = ["TaskDefaults", "filled"]
