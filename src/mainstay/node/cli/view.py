"""Node jobs and nodes on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from ...cli import Column, coloured, facts, print_command, print_json, printable, story_table, table
from ...control.explain import Advice
from ...errors import InvalidInput
from ...lifecycle import Event
from ...model import Progress
from ...stores import RefusedWrite
from ...words import SessionNames, age, counted, moment, span
from ..queries import PHASES, MemberStatus, NodeJobOverview, NodeList, NodeStatus, Phase

#: screen widths from which on more columns are shown
_WITH_TRIES, _WITH_WHY, _WITH_LABELS, _WITH_SESSION = 60, 76, 110, 150
#: members that are shown; all are in --json
_SHOWN = 200
#: what a phase is drawn in: its sign tells it without a colour
LOOKS = {
    "lost": ("!", "bold red"),
    "failed": ("✗", "red"),
    "running": ("▸", "yellow"),
    "assigned": ("◌", "cyan"),
    "waiting": ("○", "cyan"),
    "cancelled": ("–", "magenta"),
    "succeeded": ("✓", "green"),
    "not begun": ("○", "dim"),
    "none": ("–", "dim"),
}


def phase_text(phase: str) -> Text:
    """A phase with its sign, in its colour."""
    sign, style = LOOKS.get(phase, ("?", ""))
    return Text(f"{sign} {phase}", style=style)


def checked_phases(given: Sequence[str]) -> tuple[Phase, ...]:
    """The phases of `--phase`; raises `InvalidInput`."""
    for name in given:
        if name not in PHASES:
            raise InvalidInput("phase", f"{name!r} is not a phase; use {', '.join(PHASES)}")
    return tuple(phase for phase in PHASES if phase in given)


# nodes ----------------------------------------------------------------------------------------------


def show_nodes(found: NodeList, console: Console) -> None:
    """The nodes of a store."""
    if not found.nodes:
        console.print("no node is active: start one with mainstay worker MODULE:APP --node NAME")
        return
    column = Column[NodeStatus]
    columns = (
        column("node", lambda node: node.name),
        column("state", _state, no_wrap=True),
        column("labels", lambda node: labels_text(node.labels), style="dim"),
        column("heard of", lambda node: f"{age(node.silent_ms)} ago", right=True, min_screen=_WITH_TRIES),
        column("work", _work),
        column("worker", lambda node: node.worker, min_screen=_WITH_WHY),
        column("host", lambda node: node.host, min_screen=_WITH_LABELS),
        column("session", lambda node: node.session, style="dim", min_screen=_WITH_SESSION),
    )
    console.print(table(columns, found.nodes, screen_width=console.width))
    if found.leader is None:
        console.print(Text("no node leads the placement of work; one takes over within seconds", style="yellow"))
    else:
        leader = found.leader.node or found.leader.session
        console.print(Text(f"{printable(leader)} leads the placement of work, epoch {found.leader.epoch}", style="dim"))


def _state(node: NodeStatus) -> Text:
    leads = ", leads" if node.leads else ""
    style = {"live": "green", "draining": "yellow"}.get(node.state, "red")
    return Text(f"{node.state}{leads}", style=style)


def _work(node: NodeStatus) -> str:
    if not node.work:
        return ""
    first = node.work[0]
    more = f" and {len(node.work) - 1} more" if len(node.work) > 1 else ""
    return f"{first.name} ({first.status}){more}"


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels as they are typed."""
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items()))


# jobs -----------------------------------------------------------------------------------------------


def show_job(
    job: NodeJobOverview,
    console: Console,
    *,
    phases: Sequence[Phase] = (),
    advice: Sequence[Advice] = (),
    again: Callable[[str], str] = str,
) -> None:
    """A node job with a line for each node."""
    head = Text(printable(job.name), style="bold").append(" ").append_text(coloured(job.status))
    console.print(head.append(f"  {job.id}", style="dim"), soft_wrap=True)
    if job.reason:
        console.print(Text(printable(job.reason)))
    console.print(facts([("quorum", quorum_text(job)), ("leader phase", _leader_text(job)), ("nodes", _counts(job))]))
    for warning in job.warnings:
        console.print(Text(f"! {printable(warning)}", style="yellow"))
    for wait in job.waits:
        console.print(Text(printable(wait), style="dim"))
    _show_members(job, console, phases)
    if job.value is not None:
        console.print(Text("the leader phase returned", style="bold"))
        print_json(job.value)
    for each in advice:
        console.print(Text(f"{printable(each.why)}:", style="dim"))
        print_command(printable(again(each.command)), console)


def _show_members(job: NodeJobOverview, console: Console, phases: Sequence[Phase]) -> None:
    members = [member for member in job.members if not phases or member.phase in phases]
    if not members:
        text = "no node is in this phase" if phases else "its nodes are chosen when it begins"
        console.print(Text(text, style="dim"))
        return
    members.sort(key=lambda member: (PHASES.index(member.phase), member.node))
    column = Column[MemberStatus]
    columns = (
        column("node", lambda member: member.node + (" (late)" if member.late else "")),
        column("phase", lambda member: phase_text(member.phase), no_wrap=True),
        column("for", lambda member: age(job.at_ms - member.since_ms), right=True),
        column("runs", lambda member: str(member.attempts), right=True, min_screen=_WITH_TRIES),
        column("progress", _progress, min_screen=_WITH_TRIES),
        column("why", _why, style="dim", min_screen=_WITH_WHY),
        column("labels", lambda member: labels_text(member.labels), style="dim", min_screen=_WITH_LABELS),
    )
    console.print(table(columns, members[:_SHOWN], screen_width=console.width))
    if len(members) > _SHOWN:
        console.print(Text(f"... and {len(members) - _SHOWN} more; --phase selects, --json shows all", style="dim"))


def quorum_text(job: NodeJobOverview) -> Text:
    """The quorum in one line."""
    quorum = job.quorum
    if not quorum.members:
        return Text(f"{quorum.policy} of the nodes that are active when it begins", style="dim")
    counts = f"{quorum.reached} of {counted(quorum.members, 'member')} succeeded, {quorum.needed} needed"
    if quorum.is_reached:
        return Text(f"✓ reached: {counts}", style="green")
    if job.settled:
        return Text(f"✗ not reached: {counts}", style="red")
    limit = ""
    if quorum.limit_ms is not None and quorum.then != "wait":
        limit = f"; after {span(quorum.limit_ms - job.at_ms)}: {quorum.then}"
    return Text(f"○ {counts} ({quorum.policy}){limit}", style="cyan")


def _leader_text(job: NodeJobOverview) -> Text:
    leader = job.leader
    line = phase_text(leader.phase)
    if leader.node:
        line.append(f" on {printable(leader.node)}", style="default")
    if leader.since_ms is not None:
        line.append(f", for {age(job.at_ms - leader.since_ms)}", style="dim")
    if progress := progress_text(leader.progress):
        line.append(f", {printable(progress)}", style="dim")
    if leader.error is not None and leader.phase == "failed":
        line.append(f": {printable(leader.error.type)}: {printable(leader.error.message)}", style="default")
    return line


def _counts(job: NodeJobOverview) -> Text | None:
    if not job.counts:
        return None
    line = Text()
    for place, (phase, n) in enumerate(job.counts.items()):
        sign, style = LOOKS[phase]
        line.append(", " if place else "").append(f"{sign} {n:,} {phase}", style=style)
    return line


def progress_text(progress: Progress | None) -> str:
    """The progress of a unit."""
    if progress is None:
        return ""
    done = f"{progress.done:g} of {progress.total:g}" if progress.total else f"{progress.done:g}"
    return f"{done}, {progress.message}" if progress.message else done


def _progress(member: MemberStatus) -> str:
    """The progress of a run that goes on; that of an ended one says nothing."""
    return progress_text(member.progress) if member.phase in ("running", "lost") else ""


def _why(member: MemberStatus) -> str:
    if member.waits:
        return member.waits
    if member.error is not None and member.phase == "failed":
        return f"{member.error.type}: {member.error.message}"
    return "" if member.phase in ("running", "succeeded") else member.reason or ""


# one node -------------------------------------------------------------------------------------------


def show_member(
    member: MemberStatus,
    events: Sequence[Event],
    refusals: Sequence[RefusedWrite],
    names: SessionNames,
    *,
    now_ms: int,
    console: Console,
) -> None:
    """One node of a job: its result, its error and the story of its unit."""
    console.print(Text(printable(member.node), style="bold").append("  ").append_text(phase_text(member.phase)))
    pairs: list[tuple[str, str | Text | None]] = [
        ("unit", member.id),
        ("since", f"{moment(member.since_ms)}, {age(now_ms - member.since_ms)} ago"),
        ("waits for", member.waits),
        ("why", member.reason),
        ("labels", labels_text(member.labels)),
        ("runs", str(member.attempts)),
        ("session", member.session),
        ("progress", progress_text(member.progress)),
        ("error", None if member.error is None else f"{member.error.type}: {member.error.message}"),
        ("result", f"{member.result_bytes:,} bytes" if member.result_bytes and member.result is None else None),
    ]
    console.print(facts(pairs))
    if member.error is not None and member.error.traceback:
        for line in member.error.traceback.rstrip().splitlines():
            console.print(Text("  " + printable(line), style="dim"), soft_wrap=True)
    if member.result is not None:
        console.print(Text("result", style="bold"))
        print_json(member.result)
    console.print(Text("story", style="bold"))
    console.print(story_table(events, refusals, names))
