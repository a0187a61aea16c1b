"""The queue and options of a task for a submit by name, from the offers of live workers.

A server, or a command with only a store, does not have the program and does not know the task's own options. Without
them, its jobs would wait in the queue `default`, where perhaps no worker listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..stores import JobStore

#: offers are read again after this time
_FRESH_S = 1.0

Options = Mapping[str, Any]


def with_task_defaults(given: Options, defaults: Options) -> dict[str, Any]:
    """The options of a submit, filled up with those of its task. Tags and metadata are added to those of the task.

    >>> with_task_defaults({"retries": 1, "tags": ["b"]}, {"queue": "mail", "retries": 5, "tags": ["a"]})
    {'retries': 1, 'tags': ['a', 'b'], 'queue': 'mail'}
    """
    options = dict(given)
    for name, value in defaults.items():
        own = given.get(name)
        if own is None:
            if not _is_ruled_out(name, given):
                options[name] = value
        elif name == "tags":
            options[name] = [*value, *own]
        elif name == "metadata":
            options[name] = {**value, **own}
    return options


def _is_ruled_out(name: str, given: Options) -> bool:
    """Whether an option of the task conflicts with the options of the submit."""
    return (name == "on_clash" and given.get("unique") is False) or (
        name == "on_stall" and given.get("stall_timeout") == "off"
    )


class TaskDefaults:
    """The options of the tasks of one store, as the worker that started last offers them. They are remembered, so that
    a job that is submitted while all workers are down waits where they will listen."""

    def __init__(self, store: JobStore, now_s: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._now_s = now_s
        self._known: dict[str, Options] = {}
        self._read_s: float | None = None

    async def of(self, names: Collection[str]) -> Mapping[str, Options]:
        """The options by task; without tasks that no worker has offered."""
        fresh = self._read_s is not None and self._now_s() - self._read_s < _FRESH_S
        if not fresh or any(name not in self._known for name in names):
            self._read_s = self._now_s()
            for session in sorted(await self._store.sessions(), key=lambda each: each.started_ms):
                if session.offer is not None and not session.dead:
                    self._known.update(session.offer.tasks)
        return self._known


__all__ = ["TaskDefaults", "with_task_defaults"]
