"""How many connections there are: of all together, and of one address, so that one cannot take what there is for all.

Whoever comes beyond that is still heard for a moment, as long as there are few of them: to be told when to come back,
and because whoever asks whether the server lives is answered at any time. The others are told without being heard.
"""

from __future__ import annotations

from collections import Counter

from ..problems import Problem

#: connections beyond the limit that are heard, and those of one address
SPARE, SPARE_EACH = 50, 5


class ConnectionSlot:
    """One connection's."""

    def __init__(self, address: str, problem: Problem | None = None, *, heard: bool = True) -> None:
        self.address = address
        self.problem = problem
        """why there is none for it"""
        self.heard = heard
        """whether it may ask all the same"""


class ConnectionCounts:
    """All that are connected.

    >>> crowd = ConnectionCounts(3, each=2)
    >>> seats = [crowd.enter(address) for address in ("ann", "ann", "ann", "ben", "cid")]
    >>> [seat.problem.status if seat.problem else 0 for seat in seats]
    [0, 0, 429, 0, 503]
    """

    def __init__(self, most: int, *, each: int) -> None:
        self._most = most
        self._each = each
        self._seated: Counter[str] = Counter()
        self._spare: Counter[str] = Counter()

    def enter(self, address: str) -> ConnectionSlot:
        """One more of an address."""
        problem = self._refusal(address)
        if problem is None:
            self._seated[address] += 1
            return ConnectionSlot(address)
        heard = self._spare.total() < SPARE and self._spare[address] < SPARE_EACH
        if heard:
            self._spare[address] += 1
        return ConnectionSlot(address, problem, heard=heard)

    def leave(self, seat: ConnectionSlot) -> None:
        """It is closed."""
        if not seat.heard:
            return
        among = self._seated if seat.problem is None else self._spare
        among[seat.address] -= 1
        if not among[seat.address]:
            del among[seat.address]

    def _refusal(self, address: str) -> Problem | None:
        if self._seated[address] >= self._each:
            detail = f"{self._each:,} connections of {address} are open, and one address has no more; close some"
            return Problem(429, "too_many_connections", detail, headers={"Retry-After": "5"})
        if self._seated.total() >= self._most:
            detail = f"{self._most:,} connections are open, and that is the limit; try again in a moment"
            return Problem(503, "too_many_connections", detail, headers={"Retry-After": "5"})
        return None


__all__ = ["SPARE", "SPARE_EACH", "ConnectionCounts", "ConnectionSlot"]
