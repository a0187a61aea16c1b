"""Checks of the certificate that a program connects with, before it connects: a server only says that it refuses it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

from ..clock import Clock
from ..errors import InvalidInput
from .certs import identity_of, issued_by_one_of, validity
from .permissions import Identity

#: before its certificate expires, a program warns
WARN_DAYS = 30


def identity_in(path: str) -> Identity:
    """Who the certificate in a file names."""
    try:
        return identity_of(Path(path).read_bytes())
    except InvalidInput as error:
        raise InvalidInput("url", f"cert: {path}: {error.rule}") from None


def check_certificate(files: Mapping[str, str], identity: Identity, *, role: str, name: str, clock: Clock) -> None:
    """Refuse a certificate that the servers of this cluster would refuse, or that names another role or name."""
    path = files["cert"]
    if identity.role != role:
        raise InvalidInput(
            "url",
            f"cert: {path} is of the {identity.role} {identity.name!r}, and this program connects as {role}; make one: "
            f"mainstay cluster certs issue {role} {name or 'NAME'}",
        )
    if name and identity.name != name:
        raise InvalidInput(
            "name",
            f"{name!r} is not the name in the certificate {path}, which is {identity.name!r}; leave the name out, or "
            f"make a certificate for it: mainstay cluster certs issue {role} {name}",
        )
    pem = Path(path).read_bytes()
    begins, ends = validity(pem)
    now = _time(clock)
    if now > ends:
        rule = f"it expired at {ends:%Y-%m-%d %H:%M} UTC, and the clock of this machine says {now:%Y-%m-%d %H:%M} UTC"
        raise InvalidInput(
            "url", f"cert: {path}: {rule}; make another: mainstay cluster certs issue {role} {identity.name}"
        )
    if now < begins:
        rule = (
            f"it is valid from {begins:%Y-%m-%d %H:%M} UTC, and the clock of this machine says {now:%Y-%m-%d %H:%M} UTC"
        )
        raise InvalidInput("url", f"cert: {path}: {rule}; correct the clock")
    if not issued_by_one_of(pem, Path(files["ca"]).read_bytes()):
        rule = f"{path} is not of an authority in {files['ca']}"
        raise InvalidInput("url", f"cert: {rule}; is it of another cluster, or was its authority retired?")


def expiry_warning(path: Path, *, clock: Clock) -> str:
    """A sentence if the certificate in a file expires soon, or has; otherwise empty."""
    ends = validity(path.read_bytes())[1]
    left = ends - _time(clock)
    if left > datetime.timedelta(days=WARN_DAYS):
        return ""
    when = "has expired" if left.total_seconds() < 0 else f"expires in {left.days} days"
    return f"the certificate {path.name} {when} ({ends:%Y-%m-%d}); issue it again: mainstay cluster certs issue"


def _time(clock: Clock) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)


__all__ = ["WARN_DAYS", "check_certificate", "expiry_warning", "identity_in"]
