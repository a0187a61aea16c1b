"""The output of a job for operators: a manager finds the node that ran it, and asks that node."""

from __future__ import annotations

import msgspec

from ..bus import Bus
from ..errors import BusClosed, BusError, JobNotFound
from ..lifecycle import Event
from ..model import Job
from ..stores import JobStore
from ..worker import TAIL_BYTES
from .output_messages import AttemptQuery, JobOutput, JobOutputQuery, OutputReply

#: how long a node may take to answer
_ANSWER_S = 2.0
_EVENTS = 1000


class OutputRequests:
    """Answers for one manager."""

    def __init__(self, bus: Bus, store: JobStore) -> None:
        self._bus = bus
        self._store = store

    async def output(self, query: JobOutputQuery) -> JobOutput:
        """What is kept of the output of an attempt; raises `JobNotFound`."""
        [row] = await self._store.get([query.job])
        if row is None:
            raise JobNotFound(query.job)
        token, session = await self._attempt(row, query.token)
        node = session.rpartition(".")[0]
        found = JobOutput(job=row.id, status=row.status, settled=row.settled_ms is not None, token=token, node=node)
        if not token:
            return msgspec.structs.replace(found, missing="it has not begun")
        if not node:
            return msgspec.structs.replace(found, missing=f"its events do not say where attempt {token} ran")
        reply = await self._ask(node, AttemptQuery(job=row.id, token=token, after=query.after, follow=query.follow))
        if isinstance(reply, str):
            return msgspec.structs.replace(found, missing=reply)
        if not reply.kept:
            missing = reply.error or "it printed nothing, or its node has removed it since"
            return msgspec.structs.replace(found, missing=missing)
        return msgspec.structs.replace(found, output=reply)

    async def _attempt(self, row: Job, token: int) -> tuple[int, str]:
        """Token and session of an attempt."""
        if row.session is not None and token in (0, row.token):
            return row.token, row.session
        events = await self._store.events(row.id, after=max(0, row.version - _EVENTS), limit=_EVENTS)
        for event in reversed(events):
            if _begins(event) and token in (0, event.token):
                return event.token, event.actor
        return (token or row.token), ""

    async def _ask(self, node: str, query: AttemptQuery) -> OutputReply | str:
        """The answer of a node; or why there is none."""
        try:
            body = await self._bus.request(f"control.node.{node}.output", msgspec.msgpack.encode(query), _ANSWER_S)
            reply = msgspec.msgpack.decode(body, type=OutputReply)
        except BusClosed:
            raise
        except BusError:
            return f"{node} does not answer; what it kept is on its disk"
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return f"{node} gave an answer that cannot be read; is its version older?"
        if len(reply.data) > TAIL_BYTES or reply.end - reply.start != len(reply.data):
            return f"{node} gave an answer that is not the end of an output"
        return reply


def _begins(event: Event) -> bool:
    """Whether a session begins an attempt with this event: its actor is that session."""
    return event.to == "running" and event.source != "running" and not event.flag


__all__ = ["OutputRequests"]
