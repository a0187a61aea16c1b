"""The claims of a session in the store, compared with those that its engine knows."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

#: a job and the token it was claimed under
Claim = tuple[str, int]


class ClaimAudit:
    """Reports differences that were found twice in a row: a claim on its way to or from the store differs only once.

    >>> audit = ClaimAudit()
    >>> audit.compare({("a", 1)}, known={("b", 1)}, ours={("b", 1)})
    (set(), set())
    >>> audit.compare({("a", 1)}, known={("b", 1)}, ours={("b", 1)})
    ({('a', 1)}, {('b', 1)})
    """

    def __init__(self) -> None:
        self._unknown: set[Claim] = set()
        self._absent: set[Claim] = set()

    def compare(
        self, listed: AbstractSet[Claim], *, known: AbstractSet[Claim], ours: AbstractSet[Claim], whole: bool = True
    ) -> tuple[set[Claim], set[Claim]]:
        """The claims that the store lists and the engine does not know, and the engine's own claims that the store does
        not list; only those that also differed at the last call. A list that is not `whole` says nothing about other
        claims."""
        unknown = set(listed - known)
        absent = set(ours - listed) if whole else set()
        twice = unknown & self._unknown, absent & self._absent
        self._unknown, self._absent = unknown, absent
        return twice
