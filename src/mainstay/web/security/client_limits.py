"""Limits of open connections: in total, and for one address, so that one client cannot take them all.

A few connections beyond the limit may still send a request. They are told when to try again, and a liveness probe is
answered at any time. Further connections are refused before they send a request.
"""

from __future__ import annotations

from collections import Counter

from ..problems import Problem

#: connections beyond the limit that may send a request: in total, and of one address
SPARE, SPARE_EACH = 50, 5


class ConnectionSlot:
    """The slot of one connection."""

    def __init__(self, address: str, problem: Problem | None = None, *, heard: bool = True) -> None:
        self.address = address
        self.problem = problem
        """why the connection is over the limit; None: it is not"""
        self.heard = heard
        """whether it may send a request"""


class ConnectionCounts:
    """Counts the open connections.

    >>> counts = ConnectionCounts(3, each=2)
    >>> slots = [counts.enter(address) for address in ("ann", "ann", "ann", "ben", "cid")]
    >>> [slot.problem.status if slot.problem else 0 for slot in slots]
    [0, 0, 429, 0, 503]
    """

    def __init__(self, most: int, *, each: int) -> None:
        self._most = most
        self._each = each
        self._open: Counter[str] = Counter()
        self._spare: Counter[str] = Counter()

    def enter(self, address: str) -> ConnectionSlot:
        """Count a new connection of an address."""
        problem = self._refusal(address)
        if problem is None:
            self._open[address] += 1
            return ConnectionSlot(address)
        heard = self._spare.total() < SPARE and self._spare[address] < SPARE_EACH
        if heard:
            self._spare[address] += 1
        return ConnectionSlot(address, problem, heard=heard)

    def leave(self, slot: ConnectionSlot) -> None:
        """Count a closed connection."""
        if not slot.heard:
            return
        counter = self._open if slot.problem is None else self._spare
        counter[slot.address] -= 1
        if not counter[slot.address]:
            del counter[slot.address]

    def _refusal(self, address: str) -> Problem | None:
        if self._open[address] >= self._each:
            detail = f"{self._each:,} connections of {address} are open, the limit for one address; close some"
            return Problem(429, "too_many_connections", detail, headers={"Retry-After": "5"})
        if self._open.total() >= self._most:
            detail = f"{self._most:,} connections are open, which is the limit; try again in a moment"
            return Problem(503, "too_many_connections", detail, headers={"Retry-After": "5"})
        return None


__all__ = ["SPARE", "SPARE_EACH", "ConnectionCounts", "ConnectionSlot"]
