"""A cluster on the terminal: tables of managers, nodes, leaders and of what happened lately."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ...cli import Column, facts, table
from ...lifecycle import time_text
from ...words import counted
from ..status import ClusterStatus, JournalEntry, LeadInfo, ManagerInfo, NodeInfo

_STYLES = {"active": "green", "away": "yellow", "draining": "cyan", "closed": "red"}
_WIDE = 100
_EVENTS = 8
#: of a digest
_DIGITS = 12


def show_status(status: ClusterStatus, console: Console) -> None:
    """Everything at a glance."""
    active = sum(node.state == "active" for node in status.nodes)
    console.print(
        facts(
            [
                ("cluster", f"{status.cluster} ({status.environment}), seen by manager {status.manager}"),
                ("managers", f"{len(status.managers)}: {', '.join(each.name for each in status.managers)}"),
                ("nodes", f"{active} active of {len(status.nodes)}"),
                ("leaders", ", ".join(f"{lead.name}: {_holder(lead)}" for lead in status.leads) or "none"),
                ("refused", ", ".join(f"{n} by {reason}" for reason, n in status.refused.items())),
            ]
        )
    )
    for alarm in status.alarms:
        console.print(Text(f"alarm: {alarm}", style="bold red"))
    console.print()
    show_nodes(status, console)
    if status.journal:
        console.print()
        show_journal(status.journal[-_EVENTS:], console)


def show_nodes(status: ClusterStatus, console: Console) -> None:
    """One line for each node."""
    if not status.nodes:
        console.print("no nodes; add one: mainstay node join URL module:app", markup=False)
        return
    columns: list[Column[NodeInfo]] = [
        Column("node", lambda node: node.name),
        Column("state", lambda node: Text(node.state, style=_STYLES[node.state])),
        Column("cores", lambda node: str(node.beat.cores), right=True),
        Column("cpu", lambda node: f"{node.beat.cpu:.0%}", right=True),
        Column("memory", lambda node: f"{node.beat.memory:.0%}", right=True),
        Column("running", lambda node: str(node.beat.running_count), right=True),
        Column("heard", lambda node: f"{max(0, status.at_ms - node.heard_ms) / 1000:.0f} s ago", right=True),
        Column("labels", lambda node: ", ".join(f"{key}={value}" for key, value in node.beat.labels.items())),
        Column("app", lambda node: node.beat.target, min_screen=_WIDE),
        Column("code", lambda node: node.beat.digest[:_DIGITS], min_screen=_WIDE),
        Column("version", lambda node: node.beat.version, min_screen=_WIDE),
        Column("why", lambda node: node.reason, min_screen=_WIDE),
    ]
    console.print(table(columns, status.nodes, screen_width=console.width))


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
    columns: list[Column[JournalEntry]] = [
        Column("when", lambda entry: time_text(entry.at_ms)),
        Column("what happened", lambda entry: entry.text),
    ]
    console.print(table(columns, entries, screen_width=console.width))


def problems_of(status: ClusterStatus) -> list[str]:
    """What an operator should look at, as sentences."""
    problems = list(status.alarms)
    if len(status.managers) < 2:
        problems.append("there is one manager only: if it ends, no node can work; run three")
    if not any(lead.name == "placement" for lead in status.leads):
        problems.append("no manager leads placement: nothing is assigned to nodes, and no dead node is closed")
    away = [node.name for node in status.nodes if node.state == "away"]
    if away:
        problems.append(f"{counted(len(away), 'node')} away: {', '.join(away)}")
    problems += _different_code(status)
    if not any(node.state == "active" for node in status.nodes):
        problems.append("no node is active; add one: mainstay node join URL module:app")
    return problems


def _different_code(status: ClusterStatus) -> list[str]:
    """Nodes that run one app with different code."""
    apps: dict[str, dict[str, list[str]]] = {}
    for node in status.nodes:
        if node.state != "closed" and node.beat.digest:
            apps.setdefault(node.beat.target, {}).setdefault(node.beat.digest[:_DIGITS], []).append(node.name)
    return [
        f"nodes run different code of {target}: "
        + "; ".join(f"{digest} on {', '.join(names)}" for digest, names in sorted(code.items()))
        + ". Restart those with the old code"
        for target, code in sorted(apps.items())
        if len(code) > 1
    ]


def _holder(lead: LeadInfo) -> str:
    return lead.manager or f"session {lead.session}"


__all__ = ["problems_of", "show_journal", "show_leaders", "show_nodes", "show_status"]
