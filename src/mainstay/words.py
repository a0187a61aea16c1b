"""Spans, moments, counts and names of sessions as text for people: the same in every command, page and report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from .clock import duration_text
from .lifecycle import time_text
from .model import Session

#: a session's id: the name of its worker, then random digits
_SESSION = re.compile(r"(?P<worker>[A-Za-z0-9._-]{1,64})\.(?P<digits>[0-9a-f]{8})[0-9a-f]{24}")
_UNNAMED = "session"


class SessionNames:
    """Sessions by the name of their worker, which says more than the random digits of their ids."""

    def __init__(self, sessions: Iterable[Session]) -> None:
        self._sessions = {session.id: session for session in sessions}

    def __getitem__(self, session_id: str) -> str:
        session = self._sessions.get(session_id)
        if session is not None and session.worker:
            return session.worker
        match = _SESSION.fullmatch(session_id)
        if match is None:
            return session_id
        worker = match["worker"]
        return f"session {match['digits']}" if worker == _UNNAMED else worker

    def full(self, session_id: str) -> str:
        """The name with process and host, as far as they are known."""
        session = self._sessions.get(session_id)
        if session is None:
            return self[session_id]
        pid = f"pid {session.pid}" if session.pid else ""
        host = f"on {session.host}" if session.host else ""
        place = f"{pid} {host}".strip()
        return f"{self[session_id]} ({place})" if place else self[session_id]

    def within(self, text: str) -> str:
        """The same text with sessions by name."""
        return _SESSION.sub(lambda match: self[match[0]], text)


def moment(at_ms: int) -> str:
    """A time to the second.

    >>> moment(1_700_000_000_123)
    '2023-11-14 22:13:20Z'
    """
    text = time_text(at_ms)
    return f"{text[:-5]}Z" if text.endswith("Z") else text


def clock(at_ms: int) -> str:
    """A time to the second, for a page that says once that all times are UTC.

    >>> clock(1_700_000_000_123)
    '2023-11-14 22:13:20'
    """
    return moment(at_ms).removesuffix("Z")


def iso(at_ms: int) -> str:
    """A time for machines; 1970 for a number that is out of range.

    >>> iso(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        at = datetime.fromtimestamp(0, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_moment(at: datetime, tz: str) -> str:
    """A time on the clocks of a zone.

    >>> local_moment(datetime(2030, 1, 31, 8, 30, tzinfo=UTC), "Europe/Berlin")
    '2030-01-31 09:30 CET'
    """
    local = at.astimezone(ZoneInfo(tz))
    return f"{local:%Y-%m-%d %H:%M:%S %Z}" if local.second else f"{local:%Y-%m-%d %H:%M %Z}"


def ago(at_ms: int, now_ms: int) -> str:
    """How long ago, or in how long, in the largest unit.

    >>> ago(0, 65_000), ago(65_000, 0), ago(0, 10), ago(0, 999_999_999)
    ('1m ago', 'in 1m', 'now', '11d ago')
    """
    seconds = abs(now_ms - at_ms) / 1000
    if seconds < 1:
        return "now"
    size, unit = next(each for each in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")) if seconds >= each[0])
    length = f"{int(seconds // size)}{unit}"
    return f"{length} ago" if at_ms <= now_ms else f"in {length}"


def age(ms: float) -> str:
    """A span in whole seconds, for tables.

    >>> age(90_061_000), age(5_400), age(70), age(-5)
    ('1d1h', '5s', '0s', '0s')
    """
    return duration_text(max(0, ms) // 1000)


def span(ms: float) -> str:
    """A span, to a tenth of a second below a minute.

    >>> span(250), span(4_321), span(61_900), span(-3), span(93_784_000)
    ('250ms', '4.3s', '1m1s', '0s', '1d2h')
    """
    seconds = max(0.0, ms) / 1000
    if seconds < 0.001:
        return "0s"
    return duration_text(round(seconds, 3 if seconds < 1 else 1) if seconds < 60 else seconds // 1)


def counted(n: int, one: str, many: str = "") -> str:
    """A number with its noun; the noun can bring its verb.

    >>> counted(1, "job"), counted(1200, "job"), counted(2, "entry", "entries"), counted(2, "job is", "jobs are")
    ('1 job', '1,200 jobs', '2 entries', '2 jobs are')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def short_session(name: str) -> str:
    """A session's id with enough random digits to distinguish it; any other name as it is.

    >>> short_session("web:ann"), short_session("plant.c3ef02fd476cb699e6266acbc7a93ba9")
    ('web:ann', 'plant.c3ef02fd…')
    """
    match = _SESSION.fullmatch(name)
    return name if match is None else f"{match['worker']}.{match['digits']}…"


def sentence(text: str) -> str:
    """The text, with a full stop if it has no end mark.

    >>> sentence("it failed"), sentence("why?")
    ('it failed.', 'why?')
    """
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
