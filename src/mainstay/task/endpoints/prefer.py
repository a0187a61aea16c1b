"""The header Prefer (RFC 7240): how long a client wants to wait for a response."""

from __future__ import annotations

import re

import msgspec
from starlette.requests import Request

_WAIT = re.compile(r"wait\s*=\s*\"?(\d{1,9})\"?", re.IGNORECASE)


class Preference(msgspec.Struct, frozen=True):
    """The preferences that are supported here."""

    wait_s: float = 0.0
    applied: str = ""
    """the value of `Preference-Applied`; empty without a preference"""

    @property
    def headers(self) -> dict[str, str]:
        return {"Vary": "Prefer", **({"Preference-Applied": self.applied} if self.applied else {})}


def preferred(request: Request, *, longest_s: float) -> Preference:
    """Read the header. Unknown preferences are ignored, as the standard says; the first of two counts."""
    return read(",".join(request.headers.getlist("prefer")), longest_s=longest_s)


def read(value: str, *, longest_s: float) -> Preference:
    """Read the value of the header.

    >>> read("respond-async, wait=5", longest_s=30)
    Preference(wait_s=5.0, applied='respond-async, wait=5')
    >>> read("wait=600", longest_s=30)
    Preference(wait_s=30.0, applied='wait=30')
    >>> read("wait=soon, handling=strict", longest_s=30)
    Preference(wait_s=0.0, applied='')
    """
    wait_s: float | None = None
    applied: list[str] = []
    for part in value.split(","):
        name = part.partition(";")[0].strip()
        if name.lower() == "respond-async" and "respond-async" not in applied:
            applied.append("respond-async")
        elif wait_s is None and (match := _WAIT.fullmatch(name)):
            wait_s = min(float(match[1]), float(longest_s))
            applied.append(f"wait={wait_s:g}")
    return Preference(wait_s or 0.0, ", ".join(applied))


__all__ = ["Preference", "preferred"]
