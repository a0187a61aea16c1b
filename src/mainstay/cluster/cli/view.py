"""A cluster on the terminal: tables of managers, nodes, leaders and of what happened lately."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ...cli import Column, facts, table
from ...lifecycle import time_text
from ...words import counted
from ..core_view import ClusterCores
from ..node_health import is_degraded
from ..problems import DIGITS
from ..status import ClusterStatus, JournalEntry, LeadInfo, ManagerInfo, NodeInfo
from .cores_view import CoreColumns, cores_line, waiting_parts

_STYLES = {"active": "green", "away": "yellow", "draining": "cyan", "closed": "red"}
_WIDE = 100
_EVENTS = 8


def show_status(status: ClusterStatus, console: Console, cores: ClusterCores | None = None) -> None:
    """Everything at a glance."""
    console.print(status_parts(status, console, cores))


def status_parts(status: ClusterStatus, console: Console, cores: ClusterCores | None = None) -> RenderableType:
    """The same, to be drawn."""
    active = sum(node.state == "active" for node in status.nodes)
    parts: list[RenderableType] = [
        facts(
            [
                ("cluster", f"{status.cluster} ({status.environment}), seen by manager {status.manager}"),
                ("managers", f"{len(status.managers)}: {', '.join(_manager(each) for each in status.managers)}"),
                ("nodes", f"{active} active of {len(status.nodes)}"),
                ("cores", cores_line(cores)),
                ("leaders", ", ".join(f"{lead.name}: {_holder(lead)}" for lead in status.leads) or "none"),
                ("refused", ", ".join(f"{n} by {reason}" for reason, n in status.refused.items())),
            ]
        ),
        *(Text(f"alarm: {alarm}", style="bold red") for alarm in status.alarms),
        "",
        _nodes(status, console, cores),
        *waiting_parts(cores, console),
    ]
    if status.journal:
        parts += ["", _journal(status.journal[-_EVENTS:], console)]
    return Group(*parts)


def show_nodes(status: ClusterStatus, console: Console) -> None:
    """One line for each node."""
    console.print(_nodes(status, console))


def _nodes(status: ClusterStatus, console: Console, cores: ClusterCores | None = None) -> RenderableType:
    if not status.nodes:
        return Text("no nodes; add one: mainstay node join URL module:app")
    held = CoreColumns(cores)
    columns: list[Column[NodeInfo]] = [
        Column("node", lambda node: node.name),
        Column("state", lambda node: Text(node.state, style=_STYLES[node.state])),
        *([Column[NodeInfo]("load", _load)] if any(node.overload != "normal" for node in status.nodes) else []),
        Column("cores", lambda node: held.held(node.name, node.beat.cores), right=True),
        *([Column[NodeInfo]("runs", lambda node: held.runs(node.name))] if cores is not None and cores.runs else []),
        Column("cpu", lambda node: f"{node.beat.cpu:.0%}", right=True),
        Column("memory", lambda node: f"{node.beat.memory:.0%}", right=True),
        Column("running", lambda node: str(node.beat.running_count), right=True),
        Column("heard", lambda node: _heard(node, status.at_ms), right=True),
        Column("labels", lambda node: ", ".join(f"{key}={value}" for key, value in node.beat.labels.items())),
        Column("app", lambda node: node.beat.target, min_screen=_WIDE),
        Column("code", lambda node: node.beat.digest[:DIGITS], min_screen=_WIDE),
        Column("version", lambda node: node.beat.version, min_screen=_WIDE),
        Column("why", lambda node: node.reason, min_screen=_WIDE),
    ]
    return table(columns, status.nodes, screen_width=console.width)


def _load(node: NodeInfo) -> Text:
    if node.state == "closed":
        return Text()
    return Text(node.overload, style="red" if is_degraded(node.overload) else "")


def _manager(manager: ManagerInfo) -> str:
    about = [f"leads {counted(len(manager.led), 'job')}"] * bool(manager.led)
    about += [manager.level] * (manager.level != "normal")
    return f"{manager.name} ({', '.join(about)})" if about else manager.name


def _heard(node: NodeInfo, at_ms: int) -> str:
    return f"{max(0, at_ms - node.heard_ms) / 1000:.0f} s ago" if node.heard_ms else "never"


def show_leaders(status: ClusterStatus, console: Console) -> None:
    """Which manager leads what."""
    if not status.leads:
        console.print("no session leads; it takes a manager a few seconds to begin", markup=False)
        return
    leads: list[Column[LeadInfo]] = [
        Column("lead", lambda lead: lead.name),
        Column("manager", _holder),
        Column("epoch", lambda lead: str(lead.epoch), right=True),
        Column("session", lambda lead: lead.session, min_screen=_WIDE),
    ]
    console.print(table(leads, status.leads, screen_width=console.width))
    managers: list[Column[ManagerInfo]] = [
        Column("manager", lambda each: each.name),
        Column("host", lambda each: each.host),
        Column("pid", lambda each: str(each.pid), right=True),
        Column("version", lambda each: each.version),
    ]
    console.print()
    console.print(table(managers, status.managers, screen_width=console.width))


def show_journal(entries: list[JournalEntry], console: Console) -> None:
    """What happened, oldest first."""
    console.print(_journal(entries, console))


def _journal(entries: list[JournalEntry], console: Console) -> RenderableType:
    columns: list[Column[JournalEntry]] = [
        Column("when", lambda entry: time_text(entry.at_ms)),
        Column("what happened", lambda entry: entry.text),
    ]
    return table(columns, entries, screen_width=console.width)


def _holder(lead: LeadInfo) -> str:
    return lead.manager or f"session {lead.session}"


__all__ = ["show_journal", "show_leaders", "show_nodes", "show_status", "status_parts"]
