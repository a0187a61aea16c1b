"""Authentication and authorization of requests.

A caller is authenticated in one of three ways. By a *token* in the `Authorization` header, for programs. By a
*session*, for the dashboard: a cookie, which the browser sends by itself, so every change also needs the session's CSRF
token and must come from one of our pages. Or not at all, if the server has no tokens: then it listens on this machine
only, every local user may do everything, and a request of a browser must come from our pages under a name of this
machine.
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
from .origin import SAFE_METHODS, check_host, check_origin, host_and_port
from .rate_limit import RateBuckets, address_of
from .tokens import LOCAL, Token, Tokens, caller_of

#: the header that pages of the dashboard send with every change
CSRF_HEADER = "X-CSRF-Token"
#: a burst has the requests of this many seconds
BURST_S = 5
#: sign-ins of one address: first a few at once, then one every few seconds
_SIGN_INS, _SIGN_INS_PER_S = 10, 0.2

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="mainstay"'}
_LOCAL_CALLER = Caller(name=LOCAL, scopes=("admin", "code"), how="local")


class Guard:
    """Admits callers, or raises a `Problem` with the reason.

    A handler begins with

        caller = await site.guard.admit(request, "operate")

    and acts in the name of `caller.actor`.
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
        """Whether callers must authenticate."""
        return self._tokens is not None

    async def admit(self, request: Request, scope: Scope, *, limited: bool = True) -> Caller:
        """The caller, if it has the scope; raises `Problem`: 401 not authenticated, 403 not allowed, 429 too often.
        With `limited=False` the request does not count for the rate of its caller."""
        known = getattr(request.state, "caller", None)
        caller = known if isinstance(known, Caller) else self._identify(request)
        if known is None:
            if limited:
                self._rates.check(f"{caller.how}:{caller.name}")
            # for the access log, and for further checks of this request
            request.state.caller = caller
        if not caller.may(scope):
            raise Problem(
                403,
                "scope_needed",
                f"{caller.name} has the scope {' and '.join(caller.scopes)}; this needs {scope!r}: "
                f"mainstay tokens add NAME --scope {scope}",
                needed=scope,
            )
        if self.options.read_only and scope != "read":
            raise Problem(403, "read_only", "this server is read-only: it was started with --read-only")
        return caller

    def knows(self, request: Request) -> bool:
        """Whether the request has a valid token or session, whatever its scopes."""
        if self._tokens is None:
            return False
        header = request.headers.get("authorization")
        return self.session(request) is not None if header is None else _verified(self._tokens, header) is not None

    def session(self, request: Request) -> LoginSession | None:
        """The session of the caller, if it has one and the token is still valid."""
        cookie = request.cookies.get(cookie_name(request))
        session = None if cookie is None else self.sessions.read(cookie)
        if session is None or self._tokens is None or self._tokens.by_id(session.token_id) is None:
            return None
        return session

    def csrf_token(self, request: Request) -> str:
        """The token that pages put into a meta tag and send as `X-CSRF-Token`; empty without a session."""
        session = self.session(request)
        return "" if session is None else self.sessions.csrf_token(session)

    def sign_in(self, request: Request, secret: str) -> str | None:
        """Begin a session with a token. Returns the value of the cookie; None if the token is not valid."""
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
            return _LOCAL_CALLER
        header = request.headers.get("authorization")
        if header is not None:
            return self._by_token(request, self._tokens, header)
        return self._by_session(request, self._tokens)

    def _by_token(self, request: Request, tokens: Tokens, header: str) -> Caller:
        token = _verified(tokens, header)
        if token is None:
            self._rates.check(f"refused:{address_of(request.scope)}")
            raise Problem(
                401,
                "token_refused",
                "this token is not valid: it is wrong, has expired or was revoked; "
                "send a valid one as Authorization: Bearer mst_...",
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


def _verified(tokens: Tokens, header: str) -> Token | None:
    """The token of an `Authorization` header, if it is valid."""
    kind, _, secret = header.partition(" ")
    return tokens.verify(secret.strip()) if kind.lower() == "bearer" else None


def cookie_name(request: Request) -> str:
    """The name of the session cookie. It contains the port, since servers on one machine share the cookies of a
    browser.

    Under TLS, the prefix `__Host-` ensures that this host has set the cookie.
    """
    if scheme_of(request) == "https":
        return "__Host-mainstay"
    address = host_and_port(request.headers.get("host", ""), "http")
    return f"mainstay-{80 if address is None else address[1]}"


def scheme_of(request: Request) -> str:
    """The scheme of a request. `request.url` fails for a malformed `Host`."""
    return str(request.scope.get("scheme", "http"))


__all__ = ["BURST_S", "CSRF_HEADER", "Guard", "cookie_name", "scheme_of"]
