"""The grid of cores on the page of the cluster: a square for each core, coloured by the run that holds it. Pure.

A run has a letter beside its colour, so that nothing depends on seeing colours. Both follow from its id, so that they
stay the same from one update to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ...control import CoreWaiter
from ...words import counted
from ..core_view import ClusterCores, ClusterNodeCores, CoreRun
from ..status import NodeState

#: colours in the style sheet, and letters
_COLOURS, _LETTERS = 8, 24
#: squares of one node: with more cores, a square is several
_MOST_SQUARES = 128
#: a side of a square, and from one to the next
_SIDE, _STEP = 9, 11
#: from this number of nodes on, a cell is small
_DENSE = 30
_DIGITS = re.compile(r"(\d+)")


class RunStyle(NamedTuple):
    """How a run is shown."""

    letter: str
    colour: int
    """from 1"""


class RunSquares(msgspec.Struct, frozen=True, kw_only=True):
    """The squares of one run on a node."""

    job: str
    style: RunStyle
    cores: int
    path: str
    """of the squares, for SVG"""
    is_assigned: bool
    """its node has not confirmed it yet"""


class CoreCell(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    node: str
    state: NodeState
    used: int
    cores: int
    label: str
    """all that the cell shows, for a screen reader and as its title"""
    width: int
    height: int
    runs: tuple[RunSquares, ...]
    free: str
    """the path of the squares that no run holds"""


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """One run in the list beside the grid."""

    run: CoreRun
    style: RunStyle
    label: str


class CoreGrid(msgspec.Struct, frozen=True, kw_only=True):
    """The grid, its runs and those that wait."""

    total: int
    used: int
    free: int
    cells: tuple[CoreCell, ...]
    runs: tuple[RunLine, ...]
    waiting: tuple[CoreWaiter, ...]
    dense: bool


def core_grid(cores: ClusterCores) -> CoreGrid:
    """The grid of all nodes."""
    styles = run_styles(cores.runs)
    names = {run.job: run.name for run in cores.runs}
    return CoreGrid(
        total=cores.total,
        used=cores.used,
        free=cores.free,
        cells=tuple(_cell(node, styles, names) for node in sorted(cores.nodes, key=lambda node: _natural(node.node))),
        runs=tuple(RunLine(run=run, style=styles[run.job], label=_run_label(run)) for run in cores.runs),
        waiting=cores.waiting,
        dense=len(cores.nodes) >= _DENSE,
    )


def run_styles(runs: Iterable[CoreRun]) -> dict[str, RunStyle]:
    """A letter and a colour for each run. As long as there are enough, each has its own; older runs choose first."""
    taken: set[int] = set()
    styles = {}
    for run in runs:
        wanted = int(run.job[-6:], 16) % _COLOURS if re.fullmatch(r"[0-9a-f]{6}", run.job[-6:]) else 0
        row = 0
        while all(row * _COLOURS + colour in taken for colour in range(_COLOURS)):
            row += 1
        slot = next(
            slot for place in range(_COLOURS) if (slot := row * _COLOURS + (wanted + place) % _COLOURS) not in taken
        )
        taken.add(slot)
        letter = chr(ord("A") + slot % _LETTERS) + (str(slot // _LETTERS + 1) if slot >= _LETTERS else "")
        styles[run.job] = RunStyle(letter, slot % _COLOURS + 1)
    return styles


def _cell(node: ClusterNodeCores, styles: dict[str, RunStyle], names: dict[str, str]) -> CoreCell:
    every = max(node.cores, node.used)
    unit = max(1, -(-every // _MOST_SQUARES))
    squares = -(-every // unit)
    columns = max(1, squares if squares <= 8 else 8 if squares <= 16 else 16)
    rows = max(1, -(-squares // columns))
    runs, at = [], 0
    for share in node.shares:
        end = at + share.cores
        runs.append(
            RunSquares(
                job=share.job,
                style=styles[share.job],
                cores=share.cores,
                path=_path(range(at // unit, -(-end // unit)), columns),
                is_assigned=share.status == "dispatched",
            )
        )
        at = end
    return CoreCell(
        node=node.node,
        state=node.state,
        used=node.used,
        cores=node.cores,
        label=_label(node, styles, names),
        width=columns * _STEP - (_STEP - _SIDE),
        height=rows * _STEP - (_STEP - _SIDE),
        runs=tuple(runs),
        free=_path(range(-(-at // unit), squares), columns),
    )


def _label(node: ClusterNodeCores, styles: dict[str, RunStyle], names: dict[str, str]) -> str:
    parts = [f"{node.node}: {node.state}", f"{node.used} of {counted(node.cores, 'core')} held by runs"]
    for share in node.shares:
        waits = ", not confirmed yet" if share.status == "dispatched" else ""
        letter = styles[share.job].letter
        parts.append(f"{letter} {names.get(share.job, '')} {share.part} {counted(share.cores, 'core')}{waits}")
    if node.cores > node.used + node.free:
        parts.append(f"{node.free} free, since no run gets cores here now")
    if node.labels:
        parts.append(", ".join(f"{name}={value}" for name, value in sorted(node.labels.items())))
    return "; ".join(parts)


def _run_label(run: CoreRun) -> str:
    return f"{run.name} {run.job}: {counted(run.cores, 'core')} on {counted(run.nodes, 'node')}"


def _path(squares: Iterable[int], columns: int) -> str:
    return "".join(
        f"M{square % columns * _STEP} {square // columns * _STEP}h{_SIDE}v{_SIDE}h-{_SIDE}z" for square in squares
    )


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Numbers in names by their value: n2 before n10."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in _DIGITS.split(name) if part]


__all__ = ["CoreCell", "CoreGrid", "RunLine", "RunSquares", "RunStyle", "core_grid", "run_styles"]
