"""The cookies of one virtual user.

The jar of the standard library costs about 60 us per request (it needs request objects and matches old policies); this
one only checks a dict if there is nothing to send, and caches headers. Domain, path, Secure, Max-Age and Expires are
honoured. There is no list of public suffixes: a server may set a cookie for its own host and for parent domains that
contain a dot.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from ...prepared import URLParts

_SECONDS = re.compile(r"-?[0-9]+")
#: seconds that a cookie is kept at most, as in browsers: 400 days
_LONGEST = 400 * 86400.0


class Cookie:
    __slots__ = ("domain", "expires", "name", "only_host", "path", "secure", "value")

    def __init__(self, name: str, value: str, *, domain: str, path: str) -> None:
        self.name = name
        self.value = value
        self.domain = domain
        self.only_host = True
        self.path = path
        self.secure = False
        self.expires: float | None = None

    def goes_to(self, parts: URLParts) -> bool:
        if self.secure and not parts.secure:
            return False
        if parts.host != self.domain and (self.only_host or not parts.host.endswith(f".{self.domain}")):
            return False
        at = self.path
        return parts.path == at or (parts.path.startswith(at) and (at.endswith("/") or parts.path[len(at)] == "/"))


class Jar:
    """Cookies by domain, path and name."""

    __slots__ = ("_cookies", "_now", "changes")

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._cookies: dict[tuple[str, str, str], Cookie] = {}
        self._now = now
        self.changes = 0
        """grows with each change, so that cached headers can be invalidated"""

    def __len__(self) -> int:
        return len(self._cookies)

    def store(self, lines: list[str], parts: URLParts) -> None:
        """Take the Set-Cookie lines of a response."""
        for line in lines:
            cookie = _parsed(line, parts, self._now())
            if cookie is None:
                continue
            key = (cookie.domain, cookie.path, cookie.name)
            known = self._cookies.get(key)
            if cookie.expires is not None and cookie.expires <= self._now():
                if self._cookies.pop(key, None) is not None:
                    self.changes += 1
                continue
            self._cookies[key] = cookie
            if known is None or known.value != cookie.value or known.secure != cookie.secure:
                self.changes += 1

    def header(self, parts: URLParts) -> str:
        """The Cookie header for a URL: "a=1; b=2", longer paths first; empty for none."""
        now = self._now()
        for key in [key for key, one in self._cookies.items() if one.expires is not None and one.expires <= now]:
            del self._cookies[key]
            self.changes += 1
        cookies = [one for one in self._cookies.values() if one.goes_to(parts)]
        cookies.sort(key=lambda one: -len(one.path))
        return "; ".join(f"{one.name}={one.value}" for one in cookies)

    @property
    def soonest(self) -> float | None:
        """When the next cookie expires."""
        return min((one.expires for one in self._cookies.values() if one.expires is not None), default=None)

    def set(self, name: str, value: str, *, domain: str, path: str = "/") -> None:
        """Set a cookie directly."""
        self._cookies[domain, path, name] = Cookie(name, value, domain=domain, path=path)
        self.changes += 1

    def clear(self) -> None:
        self._cookies.clear()
        self.changes += 1


def cookie_pair(line: str) -> tuple[str, str] | None:
    """Name and value of a Set-Cookie line."""
    name, equals, value = line.partition(";")[0].partition("=")
    return (name.strip(), value.strip()) if equals and name.strip() else None


def _parsed(line: str, parts: URLParts, now: float) -> Cookie | None:
    pair = cookie_pair(line)
    if pair is None:
        return None
    cookie = Cookie(*pair, domain=parts.host, path=parts.path[: max(parts.path.rfind("/"), 1)])
    max_age = None
    for attribute in line.split(";")[1:]:
        name, _, value = attribute.partition("=")
        name, value = name.strip().lower(), value.strip()
        if name == "secure":
            cookie.secure = True
        elif name == "path" and value.startswith("/"):
            cookie.path = value
        elif name == "max-age" and _SECONDS.fullmatch(value):
            max_age = min(float(value), _LONGEST)
        elif name == "expires":
            cookie.expires = _moment(value)
        elif name == "domain" and value:
            domain = value.removeprefix(".").lower()
            if domain != parts.host and not (parts.host.endswith(f".{domain}") and "." in domain):
                return None
            cookie.domain, cookie.only_host = domain, False
    if max_age is not None:
        cookie.expires = now + max_age
    return cookie


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
