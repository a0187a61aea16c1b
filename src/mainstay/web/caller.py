"""The caller of a request, and its scopes."""

from __future__ import annotations

from typing import Literal

import msgspec

Scope = Literal["read", "submit", "operate", "admin", "code"]
SCOPES: tuple[Scope, ...] = ("read", "submit", "operate", "admin", "code")
#: each scope with the scopes that it includes. None includes `code`, which runs programs of the caller on the nodes: a
#: token that was made for operators must not get that with an upgrade
_INCLUDES: dict[Scope, frozenset[Scope]] = {
    "read": frozenset({"read"}),
    "submit": frozenset({"submit", "read"}),
    "operate": frozenset({"operate", "submit", "read"}),
    "admin": frozenset({"admin", "operate", "submit", "read"}),
    "code": frozenset({"code", "operate", "submit", "read"}),
}


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller. The audit trail names it by its `name`.

    >>> Caller(name="ann", scopes=("operate",)).may("submit"), Caller(name="ann", scopes=("read",)).may("submit")
    (True, False)
    """

    name: str
    scopes: tuple[Scope, ...]
    how: Literal["token", "session", "local"] = "local"
    """how it was authenticated: by a token, by a sign-in, or not at all, by a server without tokens"""

    def may(self, scope: Scope) -> bool:
        return any(scope in _INCLUDES[own] for own in self.scopes)

    @property
    def actor(self) -> str:
        """Its name in the audit trail."""
        return f"web:{self.name}"
