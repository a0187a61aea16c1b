"""`mainstay cluster routes`: on which nodes the units of a job were placed, and why they moved."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from ...cli import Column, CommandOutput, IdArgument, exits, facts, full_id, table
from ...control import JobRoutes, UnitAssignment, UnitRoute, read_routes
from ...lifecycle import time_text
from ...stores import open_store
from ...words import counted, span
from .commands import ClusterOptions

_WIDE = 100
_STYLES = {"lost": "red", "failed": "red", "given_back": "yellow", "succeeded": "green"}


class RouteLine(NamedTuple):
    """One line of the table: an assignment, or a unit that has none."""

    route: UnitRoute
    assignment: UnitAssignment | None
    is_first: bool


async def routes(cluster: ClusterOptions, job_id: IdArgument) -> CommandOutput:
    """Show on which nodes the units of a job were placed: the slices of a load test, the members of a node job.

    One line for each assignment: its node and token, when it was assigned and confirmed, and why it left the node. An
    assignment with the end given_back was refused by its node, or not confirmed in time. It is read from the audit
    trail, so it has also what settled long ago.

    Exit codes: 0 shown, 1 no unit of the job was placed on a node, 2 error (no such job).

    [bold]Examples[/bold]

      mainstay cluster routes 4de452e6b59d
      mainstay cluster routes 4de452e6b59d --json | jq '.units[].assignments[].node'
    """
    store = await open_store(cluster.address().store_url("operator"))
    try:
        found = await read_routes(store, await full_id(store, job_id))
    finally:
        await store.close()
    placed = any(route.assignments for route in found.units)
    return CommandOutput(
        found, lambda console: show_routes(found, console), exit_code=exits.DONE if placed else exits.NO
    )


def show_routes(found: JobRoutes, console: Console) -> None:
    """The job, and a line for each assignment."""
    nodes = {each.node for route in found.units for each in route.assignments}
    units = counted(len(found.units), "unit")
    console.print(
        facts(
            [
                ("job", f"{found.name} {found.id}"),
                ("status", found.status),
                ("placed", f"{units} on {counted(len(nodes), 'node')}" if nodes else "on no node yet"),
            ]
        )
    )
    if not found.units:
        return
    columns: list[Column[RouteLine]] = [
        Column("unit", lambda line: line.route.unit or line.route.id if line.is_first else ""),
        Column("token", lambda line: "" if line.assignment is None else str(line.assignment.token), right=True),
        Column("node", lambda line: "" if line.assignment is None else line.assignment.node or "?"),
        Column("assigned", lambda line: "" if line.assignment is None else time_text(line.assignment.assigned_ms)),
        Column("confirmed", _confirmed, right=True),
        Column("held", _held, right=True, min_screen=_WIDE),
        Column("end", _end),
        Column("why", lambda line: "" if line.assignment is None else line.assignment.why),
    ]
    console.print()
    console.print(table(columns, _lines(found), screen_width=console.width))
    if found.more:
        console.print(f"and {counted(found.more, 'more unit')}", markup=False)


def _lines(found: JobRoutes) -> list[RouteLine]:
    lines = []
    for route in found.units:
        lines += [RouteLine(route, each, place == 0) for place, each in enumerate(route.assignments)]
        if not route.assignments:
            lines.append(RouteLine(route, None, True))
    return lines


def _confirmed(line: RouteLine) -> str:
    each = line.assignment
    if each is None or each.confirmed_ms is None:
        return "no" if each is not None else ""
    return f"after {span(each.confirmed_ms - each.assigned_ms)}"


def _held(line: RouteLine) -> str:
    each = line.assignment
    return "" if each is None or each.ended_ms is None else span(each.ended_ms - each.assigned_ms)


def _end(line: RouteLine) -> Text:
    each = line.assignment
    if each is None:
        return Text(f"{line.route.status}, not placed", style="dim")
    if not each.end:
        return Text(line.route.status, style="cyan")
    return Text(each.end.replace("_", " "), style=_STYLES.get(each.end, "dim"))


__all__ = ["routes", "show_routes"]
