"""Security headers of every response."""

from __future__ import annotations

from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

#: everything comes from this server, and nothing is inline: injected markup runs no script and loads nothing
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "frame-ancestors 'none'",
        "form-action 'self'",
        "base-uri 'none'",
    )
)
_ALWAYS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # with no-referrer a form would send "Origin: null", like a form of another site
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # a cached page would outlive a sign-out; assets set their own header
    (b"cache-control", b"no-store"),
)
_TLS = (b"strict-transport-security", b"max-age=31536000")


def secured(headers: Iterable[tuple[bytes, bytes]], *, tls: bool) -> Headers:
    """The headers of a response, completed with the security headers that it lacks."""
    given = list(headers)
    names = {name.lower() for name, _ in given}
    given += [header for header in _ALWAYS if header[0] not in names]
    if tls:
        given.append(_TLS)
    return given


__all__ = ["CONTENT_SECURITY_POLICY", "secured"]
