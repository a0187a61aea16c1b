"""Routing: sessions offer tasks, and a claim skips jobs whose task its session does not have.

Claims go by queue. If programs with different tasks share a queue, a claim meets jobs that its session cannot run. Such
a row moves from the ready index to `Lane.ROUTED`, where it waits under its route (`model.route_of`). Every claim first
brings back rows whose route its session offers. So a job starts as soon as a session with its task claims, whichever
other sessions listen on the queue. A job whose task no live session has waits until one joins. A change of lane is not
a move: no event is written and nothing is counted.

While a live session has no offer (it is of an older version), no row is routed: that session may have the task, and
would never see the row. The worker that claimed the job postpones it instead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import msgspec

from ..model import Job, Offer, Session, route_of

log = logging.getLogger("mainstay.worker")

#: the most rows that one claim routes: a write must stay short
MOST_ROUTED = 1000
#: the most claims that one call makes while all their rows have to be routed
MOST_CLAIMS = 20
#: more than there are subscribers: the store does not know which of them have a task, so all are woken
EVERYBODY = 1000
#: an unknown task is logged again after this time
_AGAIN_S = 60.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Offer).decode


def offer_text(offer: Offer | None) -> str | None:
    """An offer in its stored form."""
    return None if offer is None else _encode(offer).decode()


def offer_from(text: str | bytes | None) -> Offer | None:
    """A stored offer; None if it is damaged."""
    if not text:
        return None
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return None


class Offers:
    """The offers of the sessions that this process opened, and its warnings about tasks that they do not have."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._known: dict[str, Mapping[str, object]] = {}
        self._logged_s: dict[tuple[str, str], float] = {}
        self._now_s = now_s

    def opened(self, session: Session) -> None:
        if session.offer is None:
            self._known.pop(session.id, None)
        else:
            self._known[session.id] = session.offer.tasks

    def closed(self, session: str) -> None:
        self._known.pop(session, None)

    def tasks_of(self, session: str) -> Mapping[str, object] | None:
        """The routes that it offers; None: all of them."""
        return self._known.get(session)

    def warn(self, job: Job) -> None:
        """Log that jobs of a task wait for another worker, at most once a minute for each task."""
        place = (job.queue, route_of(job.kind, job.name))
        now_s, last_s = self._now_s(), self._logged_s.get(place)
        if last_s is not None and now_s - last_s < _AGAIN_S:
            return
        self._logged_s[place] = now_s
        warn_unknown(job)


def warn_unknown(job: Job) -> None:
    """Log that a worker does not have the task of a job, and what to do."""
    log.warning(
        "unknown %s name=%s queue=%s job_id=%s: this worker does not have it, so its jobs wait for a worker that does; "
        "import the module that defines it before the worker starts, or give the programs that share the queue queues "
        "of their own",
        job.kind,
        job.name,
        job.queue,
        job.id,
    )
