"""The time of a run on nodes: the run timeout of its job, counted from the start of its first load. Managers that lead
the run one after the other count on; a claim of its own begins nothing again."""

from __future__ import annotations

import asyncio
import logging
import math

from ...clock import Clock, duration_text
from ...errors import StaleClaim
from ...worker import Context, LetGo, OutOfTime

log = logging.getLogger("mainstay.load")

#: before the end of its time, a run asks for more; it looks so often
_ASKS_S, _LOOK_S = 10.0, 1.0


class RunTime:
    """How much of its time a run has left. `began_ms` and `extra_s` are saved with the run, for the next leader."""

    def __init__(self, here: Context, clock: Clock, *, began_ms: int, extra_s: float) -> None:
        """`clock` is that of the store."""
        self.began_ms = began_ms
        """when its first load began; 0: it has not"""
        self.extra_s = extra_s
        """what it is known to have earned beyond its run timeout"""
        self._here = here
        self._clock = clock

    async def is_over(self) -> None:
        """Wait until the run has no time left, and earns none. Raises `LetGo` once its claim is lost."""
        while (left_s := await self._left_s()) > 0:  # noqa: ASYNC110 - it waits for time, which may become more
            await asyncio.sleep(min(left_s, _LOOK_S))

    def error(self, elapsed_s: float) -> OutOfTime:
        """The end of a run that was stopped after so long, in words."""
        limit = f"run timeout {duration_text(self._here.job.options.run_timeout_s or 0.0)}"
        more = f", and {duration_text(self.extra_s)} that its progress had earned" if self.extra_s else ""
        return OutOfTime(f"still running {duration_text(elapsed_s)} after its load began ({limit}{more})")

    async def _left_s(self) -> float:
        """More is asked for shortly before the end: a run that makes progress earns it, and the answer also has what
        leaders before this one have earned."""
        left_s = self._known_s()
        if left_s > _ASKS_S:
            return left_s
        try:
            async with asyncio.timeout(max(left_s, _LOOK_S)):
                extension = await self._here.extend()
        except StaleClaim as error:
            raise LetGo(str(error)) from None
        except TimeoutError:
            # the store is away; the load is not
            return self._known_s()
        if extension.granted:
            log.info("job=%s has earned %g s more", self._here.id, extension.granted_s)
        self.extra_s = extension.total_s
        return self._known_s()

    def _known_s(self) -> float:
        limit_s = self._here.job.options.run_timeout_s
        if limit_s is None or not self.began_ms:
            return math.inf
        return limit_s + self.extra_s - (self._clock.now_ms() - self.began_ms) / 1000


__all__ = ["RunTime"]
