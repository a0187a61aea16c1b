"""The state machine as a drawing, with the path that a job took. Read from the table, like every other drawing of it.

States stand in columns by what may happen to them, left to right: they wait, are ready, are held, are asked to
stop, are settled, are final. All moves that the table allows are drawn faintly; those that the job made
strongly, with numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...lifecycle import Event, State, Table

_WIDTH, _HEIGHT = 116, 30
_COLUMN, _ROW = 166, 50
_MARGIN = 14
#: above, for the moves that go back
_TOP = 44


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A state, and where it stands."""

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
    """as SVG says it"""
    steps: str = ""
    """which moves of the job these were: 1, 4; empty: it has not made it"""
    forced: bool = False
    """against the table"""
    x: float = 0
    y: float = 0
    """where its numbers stand"""


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """The whole."""

    width: float
    height: float
    box_width: float = _WIDTH
    box_height: float = _HEIGHT
    boxes: list[Box]
    arrows: list[Arrow]
    about: str
    """the path in words"""


def drawn(table: Table, events: Sequence[Event], status: str) -> Drawing:
    """The table, and the path that these events tell.

    >>> from mainstay.lifecycle import UNIT
    >>> found = drawn(UNIT, [], "pending")
    >>> [box.name for box in found.boxes if box.now], found.about
    (['pending'], 'It is pending.')
    """
    places = _places(table)
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
        for name, (x, y) in places.items()
    ]
    allowed = [(state.name, to) for state in table.states.values() for to in state.next]
    faint = [_arrow(places, move, ()) for move in allowed if move not in made]
    strong = [
        _arrow(places, move, steps, forced=not table.allows(*move))
        for move, steps in made.items()
        if move[0] in places and move[1] in places
    ]
    path = ", then ".join(words[-20:])
    return Drawing(
        width=max(x for x, _ in places.values()) + _WIDTH + _MARGIN,
        height=max(y for _, y in places.values()) + _HEIGHT + _MARGIN,
        boxes=boxes,
        # what it did is drawn over what it could have done
        arrows=[*faint, *strong],
        about=f"It was {path}." if len(words) > 1 else f"It is {status}.",
    )


def _places(table: Table) -> dict[str, tuple[float, float]]:
    columns: dict[int, list[str]] = {}
    for state in table.states.values():
        columns.setdefault(_column(state), []).append(state.name)
    tallest = max(len(names) for names in columns.values())
    found: dict[str, tuple[float, float]] = {}
    for place, column in enumerate(sorted(columns)):
        names = columns[column]
        top = (tallest - len(names)) * _ROW / 2
        for row, name in enumerate(names):
            found[name] = (_MARGIN + place * _COLUMN, _TOP + top + row * _ROW)
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
    places: dict[str, tuple[float, float]], move: tuple[str, str], steps: Sequence[int], *, forced: bool = False
) -> Arrow:
    (ax, ay), (bx, by) = places[move[0]], places[move[1]]
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
            # straight through, behind the boxes on its way: its number stands before the first of them
            middle = (start + (_COLUMN - _WIDTH) / 2, a_mid)
    else:
        # back: above the boxes, so that it is told from the way there
        start, end = ax + _WIDTH / 2, bx + _WIDTH / 2
        top = min(ay, by) - 24 - (start - end) / 30
        path = f"M{start:g} {ay:g}C{start:g} {top:g} {end:g} {top:g} {end:g} {by:g}"
        middle = ((start + end) / 2, 0.125 * ay + 0.75 * top + 0.125 * by)
    told = ", ".join(str(step) for step in steps[:3]) + ("…" if len(steps) > 3 else "")
    return Arrow(source=move[0], to=move[1], path=path, steps=told, forced=forced, x=middle[0], y=middle[1])


__all__ = ["Arrow", "Box", "Drawing", "drawn"]
