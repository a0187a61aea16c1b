"""Claims whose answer did not reach their caller: the store may have made them."""

from __future__ import annotations

from ...lifecycle import Move
from ...model import Job
from ..port import MARKS_KEPT, Change


class UnansweredClaims:
    """The marks of claims that got no answer. The next claim of the session uses one, and gets the same rows.

    >>> claims = UnansweredClaims()
    >>> claims.add("s1", 10, "a")
    >>> claims.mark_for("s1", 5), claims.mark_for("s1", 20), claims.mark_for("s1", 20)
    (None, 'a', None)
    """

    def __init__(self) -> None:
        self._session = ""
        self._claims: list[tuple[int, str]] = []

    def add(self, session: str, n: int, mark: str) -> None:
        """A claim of up to n rows got no answer."""
        before = self._claims if session == self._session else []
        self._session, self._claims = session, [*before, (n, mark)][-MARKS_KEPT:]

    def mark_for(self, session: str, n: int) -> str | None:
        """The mark of a claim that asked for n rows at most; None: there is none."""
        for claim in self._claims if session == self._session else ():
            if claim[0] <= n:
                self._claims.remove(claim)
                return claim[1]
        return None


def release_of(row: Job, *, reason: str, at_ms: int) -> Change:
    """The change by which the holder of a row gives it back."""
    move = Move(to="pending", reason=reason, fields={"releases": row.releases + 1})
    return Change(before=row, moves=(move,), actor=row.session or "", at_ms=at_ms, holder=row.session)


__all__ = ["UnansweredClaims", "release_of"]
