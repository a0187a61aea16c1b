"""The session cookie of the dashboard: it names the token that was entered, is signed, and expires.

The cookie does not contain the token. The signing key is made when the server starts, and is not stored: a key beside
the tokens would let any reader of that file sign in, which the digests of tokens do not. So a restart signs out all
users, and servers that share their users need a common key, MAINSTAY_SESSION_KEY. Ended sessions are then stored beside
the tokens (`ended_sessions`).
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

#: the lifetime of a session, whether it is used or not
LASTS_S = 12 * 3600.0
#: longer cookies are not read
_LONGEST = 1024


class LoginSession(msgspec.Struct, frozen=True, kw_only=True):
    """One sign-in."""

    id: str
    """random, and new at every sign-in, so that an attacker cannot plant a session of their own"""
    token_id: str
    expires_ms: int


class LoginSessions:
    """Creates and verifies session cookies.

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
        """session -> when it would have expired"""
        self._ended_elsewhere = ended or EndedSessions()

    def begin(self, token_id: str) -> str:
        """Begin a session; the value of its cookie."""
        expires_ms = self._clock.now_ms() + round(LASTS_S * 1000)
        session = LoginSession(id=secrets.token_urlsafe(16), token_id=token_id, expires_ms=expires_ms)
        body = base64.urlsafe_b64encode(msgspec.json.encode(session)).decode()
        return f"{body}.{self._sign('session', body)}"

    def read(self, cookie: str) -> LoginSession | None:
        """The session of a cookie; None if the signature is wrong, or the session has expired or was ended."""
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
        """Sign out: every copy of the cookie is invalid from now on."""
        now_ms = self._clock.now_ms()
        self._ended = {key: expires_ms for key, expires_ms in self._ended.items() if expires_ms > now_ms}
        self._ended[session.id] = session.expires_ms
        self._ended_elsewhere.add(session.id, session.expires_ms, now_ms=now_ms)

    def csrf_token(self, session: LoginSession) -> str:
        """The token that a page of this session sends with each change; other sites cannot know it."""
        return self._sign("csrf", session.id)

    def is_csrf_token(self, session: LoginSession, given: str) -> bool:
        return hmac.compare_digest(_bytes(self.csrf_token(session)), _bytes(given))

    def _sign(self, purpose: str, text: str) -> str:
        # with its purpose, so that a signature for one purpose is not valid for another
        return hmac.new(self._key, _bytes(f"{purpose}:{text}"), "sha256").hexdigest()


def given_key(environ: Mapping[str, str]) -> bytes | None:
    """The key that several servers share; None: each server makes its own.

    >>> given_key({"MAINSTAY_SESSION_KEY": "hunter2"})
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: MAINSTAY_SESSION_KEY: needs 32 random characters or more: ...
    """
    text = environ.get(ENVIRON)
    if not text:
        return None
    if len(text) < _LEAST:
        raise InvalidInput(ENVIRON, f"needs {_LEAST} random characters or more: openssl rand -hex 32")
    return hashlib.sha256(text.encode()).digest()


def _bytes(text: str) -> bytes:
    """The bytes of a header, which may not be text: `compare_digest` takes only ASCII text."""
    return text.encode("utf-8", "surrogatepass")


__all__ = ["LASTS_S", "LoginSession", "LoginSessions", "given_key"]
