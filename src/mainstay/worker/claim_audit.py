"""What the store says a session holds, against what its engine has: who is missing on either side."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

#: a job and the token it was claimed under
Claim = tuple[str, int]


class ClaimAudit:
    """Tells what is amiss at two looks in a row: what is on its way from or to the store is so only once.

    >>> account = ClaimAudit()
    >>> account.compare({("a", 1)}, known={("b", 1)}, ours={("b", 1)})
    (set(), set())
    >>> account.compare({("a", 1)}, known={("b", 1)}, ours={("b", 1)})
    ({('a', 1)}, {('b', 1)})
    """

    def __init__(self) -> None:
        self._unknown: set[Claim] = set()
        self._absent: set[Claim] = set()

    def compare(
        self, listed: AbstractSet[Claim], *, known: AbstractSet[Claim], ours: AbstractSet[Claim], whole: bool = True
    ) -> tuple[set[Claim], set[Claim]]:
        """What the store lists and we do not know, and what is ours and it does not list: the claims that were so at
        the last look as well. A list that is not `whole` says nothing about what is not in it."""
        unknown = set(listed - known)
        absent = set(ours - listed) if whole else set()
        amiss = unknown & self._unknown, absent & self._absent
        self._unknown, self._absent = unknown, absent
        return amiss
