"""What the dashboard's sign-in leaves in a browser: a cookie that says which token was shown, signed, and that ends.

The token itself is not in it. The key that signs is made when the server starts and kept nowhere: kept beside the
tokens, it would let whoever reads that file sign in, which their digests do not. So a restart signs everybody out, and
several servers that share their visitors need one key: MAINSTAY_SESSION_KEY. Who has signed out is then kept beside the
tokens (`ended`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping

import msgspec

from ...clock import Clock, SystemClock
from ...errors import InvalidInput
from .ended_sessions import EndedSessions

ENVIRON = "MAINSTAY_SESSION_KEY"
_LEAST = 32

#: how long one lasts, whatever is done in it
LASTS_S = 12 * 3600.0
#: nothing longer is looked at
_LONGEST = 1024


class LoginSession(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's sign-in."""

    id: str
    """chance; new at every sign-in, so nobody can be made to go on in a session that somebody else began"""
    token_id: str
    expires_ms: int


class LoginSessions:
    """Signs them and knows them again.

    >>> sessions = LoginSessions(key=b"k" * 32)
    >>> cookie = sessions.begin("ab12")
    >>> sessions.read(cookie).token_id, sessions.read(cookie + "x")
    ('ab12', None)
    """

    def __init__(
        self, *, key: bytes | None = None, clock: Clock | None = None, ended: EndedSessions | None = None
    ) -> None:
        self._key = key or secrets.token_bytes(32)
        self._clock = clock or SystemClock()
        self._ended: dict[str, int] = {}
        """session -> when it would have ended by itself"""
        self._ended_elsewhere = ended or EndedSessions()

    def begin(self, token_id: str) -> str:
        """A new session, as the cookie's value."""
        expires_ms = self._clock.now_ms() + round(LASTS_S * 1000)
        session = LoginSession(id=secrets.token_urlsafe(16), token_id=token_id, expires_ms=expires_ms)
        body = base64.urlsafe_b64encode(msgspec.json.encode(session)).decode()
        return f"{body}.{self._sign('session', body)}"

    def read(self, cookie: str) -> LoginSession | None:
        """The session of a cookie; None if it was not made here, is over, or was ended."""
        body, dot, signature = cookie.partition(".")
        if not dot or len(cookie) > _LONGEST:
            return None
        if not hmac.compare_digest(_bytes(self._sign("session", body)), _bytes(signature)):
            return None
        try:
            session = msgspec.json.decode(base64.urlsafe_b64decode(body), type=LoginSession)
        except (msgspec.MsgspecError, binascii.Error, ValueError):
            return None
        if self._clock.now_ms() >= session.expires_ms or session.id in self._ended:
            return None
        if session.id in self._ended_elsewhere:
            return None
        return session

    def end(self, session: LoginSession) -> None:
        """Sign out: a copy of the cookie that somebody kept is worth nothing from now on."""
        now_ms = self._clock.now_ms()
        self._ended = {key: expires_ms for key, expires_ms in self._ended.items() if expires_ms > now_ms}
        self._ended[session.id] = session.expires_ms
        self._ended_elsewhere.add(session.id, session.expires_ms, now_ms=now_ms)

    def csrf_token(self, session: LoginSession) -> str:
        """What a page of this session has to say with each change; no other site can know it."""
        return self._sign("csrf", session.id)

    def is_csrf_token(self, session: LoginSession, given: str) -> bool:
        return hmac.compare_digest(_bytes(self.csrf_token(session)), _bytes(given))

    def _sign(self, purpose: str, text: str) -> str:
        # with its purpose, so that what was signed for one is worth nothing for the other
        return hmac.new(self._key, _bytes(f"{purpose}:{text}"), "sha256").hexdigest()


def given_key(environ: Mapping[str, str]) -> bytes | None:
    """The key that several servers share; None: each makes its own.

    >>> given_key({"MAINSTAY_SESSION_KEY": "hunter2"})
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: MAINSTAY_SESSION_KEY: needs 32 characters or more, made by chance: ...
    """
    text = environ.get(ENVIRON)
    if not text:
        return None
    if len(text) < _LEAST:
        raise InvalidInput(ENVIRON, f"needs {_LEAST} characters or more, made by chance: openssl rand -hex 32")
    return hashlib.sha256(text.encode()).digest()


def _bytes(text: str) -> bytes:
    """Whatever a header has, also what is no text: `compare_digest` takes only ASCII as text."""
    return text.encode("utf-8", "surrogatepass")


__all__ = ["LASTS_S", "LoginSession", "LoginSessions", "given_key"]
