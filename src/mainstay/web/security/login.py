"""Sign-in and sign-out of the dashboard: the user enters a token once, and a cookie represents it from then on."""

from __future__ import annotations

import html
from collections.abc import Mapping
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ..problems import Problem
from ..services import WebServices
from .guard import cookie_name, scheme_of
from .login_sessions import LASTS_S

#: the field of the CSRF token in the form that signs out
CSRF_FIELD = "csrf_token"
STYLESHEET = "/static/login.css"

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Sign in · Mainstay</title>
<link rel="stylesheet" href="{stylesheet}">
</head>
<body class="sign-in">
<main>
<h1>Mainstay</h1>
<form method="post" action="/login">
<input name="username" type="text" autocomplete="username" value="mainstay" hidden>
{error}<label for="token">API token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus
 spellcheck="false" aria-describedby="hint"{invalid}>
<input type="hidden" name="next" value="{after}">
<button type="submit">Sign in</button>
<p id="hint">Ask the administrator of this server for a token, made with
<code>mainstay tokens add NAME --scope operate</code></p>
</form>
</main>
</body>
</html>
"""

_RELOAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0;url={url}">
<title>Mainstay</title>
</head>
<body><a href="{url}">Continue</a></body>
</html>
"""


def sign_in_url(request: Request) -> str:
    """The address of the sign-in page, which leads back to this request.

    A page catches the `Problem` with status 401 and answers with a redirect to this.
    """
    query = request.scope.get("query_string", b"").decode("latin-1")
    path = quote(request.scope["path"])
    return _login_url(f"{path}?{query}" if query else path)


def routes(site: WebServices) -> list[BaseRoute]:
    """`/login` and `/logout`."""
    guard = site.guard

    async def show(request: Request) -> Response:
        after = safe_path(request.query_params.get("next", "/"))
        if not guard.asks or guard.session(request) is not None:
            return RedirectResponse(after, 303)
        if request.headers.get("sec-fetch-site") == "cross-site":
            # a user who follows a link from a chat or a mail may be signed in: for such a request, and its redirects,
            # browsers hold back a strict cookie; they send it when one of our own pages requests the next one
            return HTMLResponse(_RELOAD.format(url=html.escape(_login_url(after), quote=True)))
        return page(after)

    async def sign_in(request: Request) -> Response:
        form = await read_form(request)
        after = safe_path(form.get("next", "/"))
        if not guard.asks:
            return RedirectResponse(after, 303)
        try:
            cookie = guard.sign_in(request, form.get("token", ""))
        except Problem as problem:
            return page(after, error=problem.detail, status=problem.status, headers=problem.headers)
        if cookie is None:
            return page(after, error="This token is not valid: it is wrong, has expired or was revoked.", status=401)
        response = RedirectResponse(after, 303)
        _set_cookie(response, request, cookie)
        return response

    async def sign_out(request: Request) -> Response:
        form = await read_form(request)
        guard.sign_out(request, form.get(CSRF_FIELD, ""))
        response = RedirectResponse("/login", 303)
        response.delete_cookie(
            cookie_name(request), path="/", secure=_is_tls(request), httponly=True, samesite="strict"
        )
        return response

    return [
        Route("/login", show, methods=["GET"], include_in_schema=False),
        Route("/login", sign_in, methods=["POST"], include_in_schema=False),
        Route("/logout", sign_out, methods=["POST"], include_in_schema=False),
    ]


def safe_path(given: str) -> str:
    """The path to go to after signing in: on this server only, never at another address.

    >>> safe_path("/jobs?queue=mail"), safe_path("//evil.example"), safe_path("https://evil.example")
    ('/jobs?queue=mail', '/', '/')
    """
    fits = given.startswith("/") and given[1:2] not in ("/", "\\") and given.isascii() and given.isprintable()
    return given if fits and len(given) <= 2048 else "/"


def page(after: str, *, error: str = "", status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The sign-in page."""
    return HTMLResponse(
        _PAGE.format(
            stylesheet=STYLESHEET,
            error=f'<p class="error" role="alert">{html.escape(error)}</p>\n' if error else "",
            invalid=' aria-invalid="true"' if error else "",
            after=html.escape(after, quote=True),
        ),
        status,
        headers,
    )


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a small form. The last one of a name counts; without a form there are none."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return {}
    body = await request.body()
    try:
        fields = parse_qs(body.decode("latin-1"), max_num_fields=20, errors="replace")
    except ValueError:
        return {}
    return {name: values[-1] for name, values in fields.items()}


def _login_url(after: str) -> str:
    return f"/login?next={quote(after, safe='')}"


def _set_cookie(response: Response, request: Request, value: str) -> None:
    response.set_cookie(
        cookie_name(request),
        value,
        max_age=int(LASTS_S),
        path="/",
        secure=_is_tls(request),
        httponly=True,
        samesite="strict",
    )


def _is_tls(request: Request) -> bool:
    return scheme_of(request) == "https"


__all__ = ["CSRF_FIELD", "read_form", "routes", "safe_path", "sign_in_url"]
