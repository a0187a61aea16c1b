"""Valid ids of sessions, in every store.

The id is a file name in one store and part of a key in another, and is unescaped in the event of a claim.
"""

from __future__ import annotations

import re

from ..errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_RULE = "it must have 1 to 128 of the characters A-Z a-z 0-9 . _ - and must not start with a dot"


def is_session_name(session: str) -> bool:
    """
    >>> is_session_name("w1.3-a"), is_session_name("../etc"), is_session_name('a"b')
    (True, False, False)
    """
    return _NAME.fullmatch(session) is not None


def admit_session(session: str) -> None:
    """Refuse a session with an invalid id."""
    if not is_session_name(session):
        raise InvalidInput("session", f"{session!r} is not a session id; {_RULE}")
