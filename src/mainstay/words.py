"""Spans, moments, counts and names of sessions as text for people: the same in every command, page and report."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .clock import duration_text
from .lifecycle import time_text
from .model import Session

#: a session's id: the name of its worker, then chance
_SESSION = re.compile(r"(?P<worker>[A-Za-z0-9._-]{1,64})\.(?P<chance>[0-9a-f]{8})[0-9a-f]{24}")
_UNNAMED = "session"


class SessionNames:
    """Sessions by the name of their worker: it says more than the random digits of their ids."""

    def __init__(self, sessions: Iterable[Session]) -> None:
        self._sessions = {session.id: session for session in sessions}

    def __getitem__(self, session_id: str) -> str:
        session = self._sessions.get(session_id)
        if session is not None and session.worker:
            return session.worker
        found = _SESSION.fullmatch(session_id)
        if found is None:
            return session_id
        worker = found["worker"]
        return f"session {found['chance']}" if worker == _UNNAMED else worker

    def full(self, session_id: str) -> str:
        """With where it runs, as far as that is known."""
        session = self._sessions.get(session_id)
        if session is None:
            return self[session_id]
        where = " ".join(
            filter(None, (f"pid {session.pid}" if session.pid else "", f"on {session.host}" if session.host else ""))
        )
        return f"{self[session_id]} ({where})" if where else self[session_id]

    def within(self, text: str) -> str:
        """The same text, sessions by name."""
        return _SESSION.sub(lambda found: self[found[0]], text)


def moment(at_ms: int) -> str:
    """A time, to the second.

    >>> moment(1_700_000_000_123)
    '2023-11-14 22:13:20Z'
    """
    text = time_text(at_ms)
    return f"{text[:-5]}Z" if text.endswith("Z") else text


def span(ms: float) -> str:
    """How long, no more exact than it is read.

    >>> span(250), span(4_321), span(61_900), span(-3), span(93_784_000)
    ('250ms', '4.3s', '1m1s', '0s', '1d2h')
    """
    seconds = max(0.0, ms) / 1000
    if seconds < 0.001:
        return "0s"
    return duration_text(round(seconds, 3 if seconds < 1 else 1) if seconds < 60 else seconds // 1)


def counted(n: int, one: str, many: str = "") -> str:
    """A count and what is counted.

    >>> counted(1, "job"), counted(1200, "job"), counted(2, "entry", "entries")
    ('1 job', '1,200 jobs', '2 entries')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def short_session(name: str) -> str:
    """A session's id with enough of its random digits to tell it from others; any other name as it is.

    >>> short_session("web:ann"), short_session("plant.c3ef02fd476cb699e6266acbc7a93ba9")
    ('web:ann', 'plant.c3ef02fd…')
    """
    found = _SESSION.fullmatch(name)
    return name if found is None else f"{found['worker']}.{found['chance']}…"


def sentence(text: str) -> str:
    """Ends where a sentence ends.

    >>> sentence("it failed"), sentence("why?")
    ('it failed.', 'why?')
    """
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
