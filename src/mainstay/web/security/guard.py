"""Who is let in, and to what.

Three ways in. A *token* in the `Authorization` header, for programs. A *session*, for the dashboard: a cookie, which
the browser sends by itself, so every change also needs the session's CSRF token and a page of our own to come from.
And none at all, where the server has no tokens: it listens on this machine only, everybody on it may do everything, and
what a browser sends has to come from our own pages under a name of this machine.
"""

from __future__ import annotations

import os
from pathlib import Path

from starlette.requests import Request

from ...clock import Clock
from .. import audit
from ..caller import Caller, Scope
from ..options import WebOptions
from ..problems import Problem
from .ended_sessions import EndedSessions
from .login_sessions import LoginSession, LoginSessions, given_key
from .origin import SAFE_METHODS, check_host, check_origin, place_of
from .rate_limit import RateBuckets, address_of
from .tokens import LOCAL, Token, Tokens, caller_of

#: the header that pages of the dashboard send with every change
CSRF_HEADER = "X-CSRF-Token"
#: bursts are this many seconds' worth
BURST_S = 5
#: sign-ins of one address: a handful, then one every few seconds
_SIGN_INS, _SIGN_INS_PER_S = 10, 0.2

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="mainstay"'}
_NOBODY = Caller(name=LOCAL, scopes=("admin",), how="local")


class Guard:
    """Lets callers in, or raises the `Problem` that says why not.

    A handler begins with

        caller = await site.guard.admit(request, "operate")

    and does what it does in the name of `caller.actor`.
    """

    def __init__(
        self,
        options: WebOptions,
        tokens: Tokens | None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.options = options
        key = given_key(os.environ)
        shared = key is not None and tokens is not None
        ended = EndedSessions(Path(f"{tokens.path}.ended") if tokens is not None and shared else None)
        self.sessions = LoginSessions(key=key, clock=clock, ended=ended)
        self._tokens = tokens
        self._rates = RateBuckets(options.rate, burst=options.rate * BURST_S, clock=clock)
        self._sign_ins = RateBuckets(_SIGN_INS_PER_S, burst=_SIGN_INS, clock=clock)

    @property
    def asks(self) -> bool:
        """Whether callers have to show who they are."""
        return self._tokens is not None

    async def admit(self, request: Request, scope: Scope) -> Caller:
        """Whoever asks, if they may do this; raises `Problem`: 401 who are you, 403 you may not, 429 not so often."""
        known = getattr(request.state, "caller", None)
        caller = known if isinstance(known, Caller) else self._identify(request)
        if known is None:
            self._rates.check(f"{caller.how}:{caller.name}")
            # for the access log, and for whoever asks again while this request is answered
            request.state.caller = caller
        if not caller.may(scope):
            raise Problem(
                403,
                "scope_needed",
                f"{caller.name} may {' and '.join(caller.scopes)} here; this needs the scope {scope!r}: "
                f"mainstay tokens add NAME --scope {scope}",
                needed=scope,
            )
        if self.options.read_only and scope != "read":
            raise Problem(403, "read_only", "this server only shows: it was started with --read-only")
        return caller

    def knows(self, request: Request) -> bool:
        """Whether it shows a token or a session that is good, whatever that may do."""
        if self._tokens is None:
            return False
        shown = request.headers.get("authorization")
        return self.session(request) is not None if shown is None else _verified(self._tokens, shown) is not None

    def session(self, request: Request) -> LoginSession | None:
        """The sign-in of whoever asks, if they have one and its token is still good."""
        cookie = request.cookies.get(cookie_name(request))
        session = None if cookie is None else self.sessions.read(cookie)
        if session is None or self._tokens is None or self._tokens.by_id(session.token_id) is None:
            return None
        return session

    def csrf_token(self, request: Request) -> str:
        """What pages put into a meta tag, and send as `X-CSRF-Token`; empty where there are no sessions."""
        session = self.session(request)
        return "" if session is None else self.sessions.csrf_token(session)

    def sign_in(self, request: Request, secret: str) -> str | None:
        """Begin a session with a token: the cookie's value, or None if nobody has that token."""
        check_origin(request.method, scheme_of(request), request.headers)
        address = address_of(request.scope)
        self._sign_ins.check(address, what="sign-ins")
        token = None if self._tokens is None else self._tokens.verify(secret.strip())
        if token is None:
            audit.write("refused", "sign_in", None, {"client": address})
            return None
        audit.write("did", "sign_in", caller_of(token).actor, {"client": address})
        return self.sessions.begin(token.id)

    def sign_out(self, request: Request, csrf_token: str) -> None:
        """End the session, if there is one."""
        check_origin(request.method, scheme_of(request), request.headers)
        session = self.session(request)
        if session is None:
            return
        self._check_csrf(session, csrf_token)
        self.sessions.end(session)
        token = None if self._tokens is None else self._tokens.by_id(session.token_id)
        actor = None if token is None else caller_of(token).actor
        audit.write("did", "sign_out", actor, {"client": address_of(request.scope)})

    def _identify(self, request: Request) -> Caller:
        if self._tokens is None:
            check_host(request.headers)
            check_origin(request.method, scheme_of(request), request.headers)
            return _NOBODY
        shown = request.headers.get("authorization")
        if shown is not None:
            return self._by_token(request, self._tokens, shown)
        return self._by_session(request, self._tokens)

    def _by_token(self, request: Request, tokens: Tokens, shown: str) -> Caller:
        token = _verified(tokens, shown)
        if token is None:
            self._rates.check(f"refused:{address_of(request.scope)}")
            raise Problem(
                401,
                "token_refused",
                "this token is not valid: it is wrong, has expired or was revoked; "
                "one is sent as Authorization: Bearer mst_...",
                headers=_CHALLENGE,
            )
        return caller_of(token)

    def _by_session(self, request: Request, tokens: Tokens) -> Caller:
        session = self.session(request)
        token = None if session is None else tokens.by_id(session.token_id)
        if session is None or token is None:
            self._rates.check(f"refused:{address_of(request.scope)}")
            raise Problem(
                401,
                "token_needed",
                "a token is needed: send it as Authorization: Bearer mst_..., or sign in at /login",
                headers=_CHALLENGE,
            )
        if request.method not in SAFE_METHODS:
            check_origin(request.method, scheme_of(request), request.headers)
            self._check_csrf(session, request.headers.get(CSRF_HEADER, ""))
        return caller_of(token, by_session=True)

    def _check_csrf(self, session: LoginSession, given: str) -> None:
        if not self.sessions.is_csrf_token(session, given):
            raise Problem(
                403,
                "csrf_token_needed",
                f"a change made from a page needs its CSRF token in {CSRF_HEADER}; load the page again",
            )


def _verified(tokens: Tokens, shown: str) -> Token | None:
    """Whose token a header shows."""
    kind, _, secret = shown.partition(" ")
    return tokens.verify(secret.strip()) if kind.lower() == "bearer" else None


def cookie_name(request: Request) -> str:
    """With the port: to a browser, all servers of one machine are one place for cookies.

    Under TLS, browsers keep `__Host-` for cookies that this very host has set.
    """
    if scheme_of(request) == "https":
        return "__Host-mainstay"
    place = place_of(request.headers.get("host", ""), "http")
    return f"mainstay-{80 if place is None else place[1]}"


def scheme_of(request: Request) -> str:
    """Not by way of `request.url`, which a hostile `Host` makes fail."""
    return str(request.scope.get("scheme", "http"))


__all__ = ["BURST_S", "CSRF_HEADER", "Guard", "cookie_name", "scheme_of"]
