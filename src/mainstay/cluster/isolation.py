"""When a node has to stop its work because no manager hears it.

A manager closes a node that was silent for `closed_s`, and its work begins elsewhere. So a node that got no answer to
its heartbeats for `isolation_s` stops by its own clock, before that. The time counts from *sending* the last heartbeat
that was answered: the managers may have heard none since. Only managers whose word reaches the leader answer
(`membership.answers_beats`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .liveness_settings import LivenessSettings

#: parts of the time between isolation and closing: the jobs may clean up for the first, the rest is killed after the
#: second
_GRACE, _KILL = 0.4, 0.7


class Isolation:
    """`heard` puts it off; `stop` is called with the grace and the time to kill, and `resume` when a manager answers
    again. Begins to count when it is made."""

    def __init__(
        self, settings: LivenessSettings, *, stop: Callable[[float, float], None], resume: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._resume = resume
        self._heard_s = asyncio.get_running_loop().time()
        self.isolated = False
        self._timer = self._set_timer()

    def heard(self, sent_s: float) -> None:
        """A manager has answered a heartbeat that was sent at this time of the loop."""
        self._heard_s = max(self._heard_s, sent_s)
        if self._ends_s <= asyncio.get_running_loop().time():
            return  # an answer from before a pause of this process
        self._timer.cancel()
        self._timer = self._set_timer()
        if self.isolated:
            self.isolated = False
            self._resume()

    def close(self) -> None:
        """Count no longer."""
        self._timer.cancel()

    @property
    def _ends_s(self) -> float:
        return self._heard_s + self._settings.isolation_s

    def _set_timer(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_at(self._ends_s, self._isolate)

    def _isolate(self) -> None:
        if self.isolated:
            return
        self.isolated = True
        left_s = self._settings.closed_s - self._settings.isolation_s
        self._stop(left_s * _GRACE, left_s * _KILL)


__all__ = ["Isolation"]
