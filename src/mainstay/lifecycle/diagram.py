"""A table as text for a terminal, as a mermaid diagram for documents, and as plain data for programs.

All of it is read from the table that the machine enforces.

>>> from mainstay.lifecycle import UNIT
>>> print(mermaid(UNIT).splitlines()[2])
    pending --> dispatched
"""

from __future__ import annotations

from typing import Any

from .states import Table

#: the meaning of each flag, for legends
FLAG_MEANINGS = {
    "waiting": "becomes claimable by itself when it is due",
    "claimable": "a worker may take it",
    "holds": "a session owns it, with a lease and a token",
    "stopping": "its owner is asked to stop",
    "settled": "nothing happens until an operator or a policy moves it",
    "final": "never changes again, not even by force",
}

HEADINGS = ("state", "flags", "may become", "meaning")


def rows(table: Table) -> list[tuple[str, str, str, str]]:
    """(state, flags, may become, meaning) of every state, in the order of the table."""
    return [(s.name, ", ".join(s.flags), ", ".join(s.next) or "-", s.meaning) for s in table.states.values()]


def text(table: Table, *, width: int = 100) -> str:
    """An aligned table, with the next states wrapped to the width.

    >>> from mainstay.lifecycle import UNIT
    >>> print(text(UNIT).splitlines()[0])
    state       flags           may become
    """
    states = table.states.values()
    names = max(len("state"), *(len(state.name) for state in states))
    flags = max(len("flags"), *(len(", ".join(state.flags)) for state in states))
    room = max(20, width - names - flags - 4)
    lines: list[str] = []
    for state in states:
        first, *rest = _wrapped(state.next, room) or ["-"]
        lines.append(f"{state.name:<{names}}  {', '.join(state.flags):<{flags}}  {first}".rstrip())
        lines += [" " * (names + flags + 4) + line for line in rest]
    heading = f"{'state':<{names}}  {'flags':<{flags}}  may become"
    lines = [heading, "─" * max(map(len, [heading, *lines])), *lines]
    lines += ["", f"A new {table.name} starts as {' or '.join(table.start)}."]
    return "\n".join(lines)


def mermaid(table: Table) -> str:
    """A `stateDiagram-v2`, one `A --> B` line per allowed move."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {name}" for name in table.start]
    for state in table.states.values():
        lines += [f"    {state.name} --> {to}" for to in state.next]
        if state.final:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join(lines)


def data(table: Table) -> dict[str, Any]:
    """The table as plain data."""
    states = [
        {"name": s.name, "meaning": s.meaning, "flags": list(s.flags), "next": list(s.next)}
        for s in table.states.values()
    ]
    return {"table": table.name, "start": list(table.start), "states": states}


def _wrapped(names: tuple[str, ...], width: int) -> list[str]:
    lines: list[str] = []
    for name in names:
        # one more for the comma that follows when the line is full
        if lines and len(lines[-1]) + len(name) + 3 <= width:
            lines[-1] += f", {name}"
        else:
            if lines:
                lines[-1] += ","
            lines.append(name)
    return lines


__all__ = ["FLAG_MEANINGS", "HEADINGS", "data", "mermaid", "rows", "text"]
