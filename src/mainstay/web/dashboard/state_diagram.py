"""A diagram of the state machine with the path of a job, drawn from the table of states.

The columns are, from left to right: waiting, ready, held, stopping, settled and final states. All moves that the table
allows are drawn faintly; the moves of the job strongly, with numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...lifecycle import Event, State, Table

_WIDTH, _HEIGHT = 116, 30
_COLUMN, _ROW = 166, 50
_MARGIN = 14
#: space above, for moves that go back
_TOP = 44


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A state and its position."""

    name: str
    meaning: str
    x: float
    y: float
    visited: bool
    now: bool


class Arrow(msgspec.Struct, frozen=True, kw_only=True):
    """A move."""

    source: str
    to: str
    path: str
    """the path in SVG"""
    steps: str = ""
    """the numbers of this move in the path of the job: 1, 4; empty: the job has not made it"""
    forced: bool = False
    """against the table"""
    x: float = 0
    y: float = 0
    """position of its numbers"""


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """The whole diagram."""

    width: float
    height: float
    box_width: float = _WIDTH
    box_height: float = _HEIGHT
    boxes: list[Box]
    arrows: list[Arrow]
    about: str
    """the path in words"""


def drawn(table: Table, events: Sequence[Event], status: str) -> Drawing:
    """The diagram of a table with the path of these events.

    >>> from mainstay.lifecycle import UNIT
    >>> found = drawn(UNIT, [], "pending")
    >>> [box.name for box in found.boxes if box.now], found.about
    (['pending'], 'It is pending.')
    """
    positions = _positions(table)
    made: dict[tuple[str, str], list[int]] = {}
    visited = {status}
    words: list[str] = []
    moves = 0
    for event in events:
        visited.add(event.to)
        if not words or words[-1] != event.to:
            words.append(event.to)
        if event.source is not None and event.source != event.to:
            moves += 1
            visited.add(event.source)
            made.setdefault((event.source, event.to), []).append(moves)
    boxes = [
        Box(name=name, meaning=table.states[name].meaning, x=x, y=y, visited=name in visited, now=name == status)
        for name, (x, y) in positions.items()
    ]
    allowed = [(state.name, to) for state in table.states.values() for to in state.next]
    faint = [_arrow(positions, move, ()) for move in allowed if move not in made]
    strong = [
        _arrow(positions, move, steps, forced=not table.allows(*move))
        for move, steps in made.items()
        if move[0] in positions and move[1] in positions
    ]
    path = ", then ".join(words[-20:])
    return Drawing(
        width=max(x for x, _ in positions.values()) + _WIDTH + _MARGIN,
        height=max(y for _, y in positions.values()) + _HEIGHT + _MARGIN,
        boxes=boxes,
        # the moves of the job are drawn over the others
        arrows=[*faint, *strong],
        about=f"It was {path}." if len(words) > 1 else f"It is {status}.",
    )


def _positions(table: Table) -> dict[str, tuple[float, float]]:
    columns: dict[int, list[str]] = {}
    for state in table.states.values():
        columns.setdefault(_column(state), []).append(state.name)
    tallest = max(len(names) for names in columns.values())
    found: dict[str, tuple[float, float]] = {}
    for index, column in enumerate(sorted(columns)):
        names = columns[column]
        top = (tallest - len(names)) * _ROW / 2
        for row, name in enumerate(names):
            found[name] = (_MARGIN + index * _COLUMN, _TOP + top + row * _ROW)
    return found


def _column(state: State) -> int:
    if state.final:
        return 5
    if state.settled:
        return 4
    if state.stopping:
        return 3
    if state.holds:
        return 2
    return 1 if state.claimable else 0


def _arrow(
    positions: dict[str, tuple[float, float]], move: tuple[str, str], steps: Sequence[int], *, forced: bool = False
) -> Arrow:
    (ax, ay), (bx, by) = positions[move[0]], positions[move[1]]
    a_mid, b_mid = ay + _HEIGHT / 2, by + _HEIGHT / 2
    if ax == bx:
        # in one column: beside the boxes, to the right going down and to the left going up
        side = 1 if by > ay else -1
        x = ax + (_WIDTH if side > 0 else 0)
        bend = x + side * (14 + abs(by - ay) / 12)
        path = f"M{x:g} {a_mid:g}C{bend:g} {a_mid:g} {bend:g} {b_mid:g} {x:g} {b_mid:g}"
        middle = (x + (bend - x) * 0.75, (a_mid + b_mid) / 2)
    elif bx > ax:
        start, end = ax + _WIDTH, bx
        reach = max(24.0, (end - start) / 2)
        path = f"M{start:g} {a_mid:g}C{start + reach:g} {a_mid:g} {end - reach:g} {b_mid:g} {end:g} {b_mid:g}"
        middle = ((start + end) / 2, (a_mid + b_mid) / 2)
        if a_mid == b_mid and bx - ax > _COLUMN:
            # a straight line behind other boxes: its number is before the first of them
            middle = (start + (_COLUMN - _WIDTH) / 2, a_mid)
    else:
        # a move back goes above the boxes, apart from the moves forward
        start, end = ax + _WIDTH / 2, bx + _WIDTH / 2
        top = min(ay, by) - 24 - (start - end) / 30
        path = f"M{start:g} {ay:g}C{start:g} {top:g} {end:g} {top:g} {end:g} {by:g}"
        middle = ((start + end) / 2, 0.125 * ay + 0.75 * top + 0.125 * by)
    numbers = ", ".join(str(step) for step in steps[:3]) + ("…" if len(steps) > 3 else "")
    return Arrow(source=move[0], to=move[1], path=path, steps=numbers, forced=forced, x=middle[0], y=middle[1])


__all__ = ["Arrow", "Box", "Drawing", "drawn"]
