"""How times, sessions and numbers are said."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...clock import duration_text
from ...lifecycle import time_text
from ...model import Session

#: a session's id: the name of its worker, then chance
_SESSION = re.compile(r"(?P<worker>[A-Za-z0-9._-]{1,64})\.(?P<chance>[0-9a-f]{8})[0-9a-f]{24}")
_UNNAMED = "session"


class Names:
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
    """How long, as exactly as it matters.

    >>> span(250), span(4_321), span(61_900), span(-3)
    ('250ms', '4.3s', '1m1s', '0s')
    """
    seconds = max(0.0, ms) / 1000
    if seconds < 1:
        return duration_text(seconds)
    return duration_text(round(seconds, 1) if seconds < 60 else seconds // 1)


def count(n: int, what: str) -> str:
    """A number of things.

    >>> count(1, "job"), count(1200, "job")
    ('1 job', '1,200 jobs')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def sentence(text: str) -> str:
    """Ends where a sentence ends.

    >>> sentence("it failed"), sentence("why?")
    ('it failed.', 'why?')
    """
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
