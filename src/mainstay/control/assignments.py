"""The assignments of a placed unit to nodes, by its audit trail. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ..lifecycle import UNIT, Event


class UnitAssignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One assignment of a unit to a node."""

    token: int
    node: str
    """empty: an earlier version assigned it, and did not record the node"""
    session: str
    assigned_ms: int
    confirmed_ms: int | None = None
    """when the node confirmed it; null: it has not"""
    ended_ms: int | None = None
    """when the unit left the node; null: it is there"""
    end: str = ""
    """given_back: the node refused it, or did not confirm it in time; lost: with its session, or without an answer of
    its node; failed: the attempt failed, and another one follows; otherwise the state in which the unit settled"""
    why: str = ""
    """why it left"""
    asked: int = 0
    """how often the node was asked again to confirm it"""
    epoch: int | None = None
    """of the placement leader that assigned it"""


class PastAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """An assignment of a unit that is over, as placement needs it."""

    session: str
    node: str
    """empty: a version that did not record it made the assignment"""
    at_ms: int
    """when it ended"""
    end: Literal["given_back", "lost", "failed"]
    """given_back: also if it was not confirmed in time. lost: with its session, or its node did not answer. failed: its
    attempt failed, and another one follows"""


def past_assignments(events: Iterable[Event]) -> list[PastAssignment]:
    """The assignments of a unit that ended, the oldest first, by its events."""
    return [
        PastAssignment(
            session=each.session,
            node=each.node,
            at_ms=each.ended_ms,
            end="lost" if each.end == "lost" else "given_back" if each.end == "given_back" else "failed",
        )
        for each in assignments_of(events)
        if each.ended_ms is not None
    ]


def assignments_of(events: Iterable[Event]) -> list[UnitAssignment]:
    """The assignments of a unit, the oldest first."""
    found: list[UnitAssignment] = []
    held: UnitAssignment | None = None
    for event in events:
        if event.to == "dispatched" and event.flag != "note":
            data = event.data
            epoch = data.get("epoch")
            held = UnitAssignment(
                token=event.token,
                node=str(data.get("node", "")),
                session=str(data.get("session", "")),
                assigned_ms=event.at_ms,
                epoch=epoch if isinstance(epoch, int) else None,
            )
            found.append(held)
        elif held is not None:
            held = _continued(held, event)
            found[-1] = held
            if held.ended_ms is not None:
                held = None
    return found


def _continued(held: UnitAssignment, event: Event) -> UnitAssignment:
    """An assignment after one more event."""
    if event.flag == "note":
        asked = held.asked + (event.to == "dispatched")
        return msgspec.structs.replace(held, asked=asked)
    if event.to == "running":
        return msgspec.structs.replace(held, confirmed_ms=event.at_ms)
    return msgspec.structs.replace(held, ended_ms=event.at_ms, end=_end(event), why=event.reason or "")


def _end(event: Event) -> str:
    if "loss" in event.data:
        return "lost"
    state = UNIT.states.get(event.to)
    if state is not None and state.settled:
        return event.to
    return "given_back" if event.to == "pending" else "failed"


__all__ = ["PastAssignment", "UnitAssignment", "assignments_of", "past_assignments"]
