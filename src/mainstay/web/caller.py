"""Who asks, and what they may do."""

from __future__ import annotations

from typing import Literal

import msgspec

Scope = Literal["read", "submit", "operate", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "submit", "operate", "admin")
#: what each allows beside itself
_INCLUDES: dict[Scope, frozenset[Scope]] = {
    "read": frozenset({"read"}),
    "submit": frozenset({"submit", "read"}),
    "operate": frozenset({"operate", "submit", "read"}),
    "admin": frozenset(SCOPES),
}


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who was let in. `name` is who is named in the audit trail of what they do.

    >>> Caller(name="ann", scopes=("operate",)).may("submit"), Caller(name="ann", scopes=("read",)).may("submit")
    (True, False)
    """

    name: str
    scopes: tuple[Scope, ...]
    how: Literal["token", "session", "local"] = "local"
    """by a token, by the dashboard's sign-in, or because the server asks nobody for one"""

    def may(self, scope: Scope) -> bool:
        return any(scope in _INCLUDES[own] for own in self.scopes)

    @property
    def actor(self) -> str:
        """As it stands in the audit trail."""
        return f"web:{self.name}"
