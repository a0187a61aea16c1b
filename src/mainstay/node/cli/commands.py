"""`mainstay node`: see nodes and node jobs, and run a job again on some nodes."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Console

from ...cli import CommandOutput, IdArgument, Where, aside, command, command_group, full_id, local_actor
from ...control import Control, event_view
from ...kinds import part
from ...stores import JobStore
from ...words import SessionNames, counted
from ..advice import job_advice
from ..queries import MemberStatus, read_node_job, read_nodes
from ..service import NodeJobService
from . import view

group = command_group("See nodes and node jobs, and run a job again on some nodes.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(group, "list")(list_nodes)
    command(group, "show")(show)
    command(group, "retry")(retry)
    # by name: the cluster is a layer above
    part("mainstay.cluster.cli.node_join:register")(group)
    app.add_typer(group, name="node")


async def list_nodes(store: JobStore) -> CommandOutput:
    """List the nodes of a store: their labels, state and work, and which node leads the placement of work.

    A node is a worker that was started with --node NAME. Of several sessions of one name, the newest live one is shown.

    Exit codes: 0 success, even if there are no nodes; 2 error.

    [bold]Examples[/bold]

      mainstay node list
      mainstay node list --json | jq -r '.nodes[] | select(.state == "silent") | .name'
    """
    nodes = await read_nodes(store)
    return CommandOutput(nodes, lambda console: view.show_nodes(nodes, console))


async def show(
    store: JobStore,
    where: Where,
    job_id: IdArgument,
    node: Annotated[
        str | None, typer.Option("--node", "-n", metavar="NAME", help="Show the result, error and story of one node.")
    ] = None,
    phase: Annotated[
        list[str] | None,
        typer.Option("--phase", metavar="PHASE", help="Only nodes in this phase, such as failed; may be repeated."),
    ] = None,
) -> CommandOutput:
    """Show a node job: each node with its phase, the quorum, and the leader phase.

    Phases: waiting, assigned (its node has not confirmed it yet), running, succeeded, failed, cancelled, and lost (its
    session is gone, and its node is away). Nodes that need attention come first.

    Exit codes: 0 fine, 2 error (no such job, or not a node job).

    [bold]Examples[/bold]

      mainstay node show 4de452e6b59d
      mainstay node show 4de452e6b59d --phase failed --phase lost
      mainstay node show 4de452e6b59d --node db-3
      mainstay node show 4de452e6b59d --json | jq .quorum
    """
    full = await full_id(store, job_id)
    job = await read_node_job(store, full)
    if node is not None:
        return await _one_node(store, job.member(node), job.at_ms)
    phases = view.checked_phases(phase or ())
    advice = job_advice(job.id, job.status, failed="failed" in job.counts)
    data = {
        **msgspec.to_builtins(job, enc_hook=str),
        "members": [member for member in job.members if not phases or member.phase in phases],
        "advice": [{"why": each.why, "command": where.again(each.command)} for each in advice],
    }
    return CommandOutput(
        data, lambda console: view.show_job(job, console, phases=phases, advice=advice, again=where.again)
    )


async def _one_node(store: JobStore, member: MemberStatus, now_ms: int) -> CommandOutput:
    """One node of a job, with the story of its unit."""
    events = await Control(store).jobs.events(member.id)
    refusals = await store.refusals(member.id)
    names = SessionNames(await store.sessions())
    data = {
        **msgspec.to_builtins(member, enc_hook=str),
        "events": [event_view(event) for event in events],
        "refusals": refusals,
    }
    return CommandOutput(
        data, lambda console: view.show_member(member, events, refusals, names, now_ms=now_ms, console=console)
    )


async def retry(
    control: Control,
    where: Where,
    job_id: IdArgument,
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE]...", help="Nodes; default: all on which it failed.")
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", "-r", help="Reason, kept in the audit trail.", show_default=False)
    ] = "retried on request",
    actor: Annotated[
        str | None, typer.Option("--actor", help="Name of the actor in the audit trail. Default: your user and host.")
    ] = None,
) -> CommandOutput:
    """Run a node job again on nodes where it failed: the named ones, or all of them.

    A job that has failed goes on with these nodes, and its leader phase follows again. Only failed nodes are run again:
    a node that succeeded keeps its result. To run the whole job again on all nodes that are active then: mainstay jobs
    retry ID.

    If one of the named nodes cannot be retried, none is.

    Exit codes: 0 done, 2 error (a node is not failed, the job is in its leader phase, or its end is final).

    [bold]Examples[/bold]

      mainstay node retry 4de452e6b59d
      mainstay node retry 4de452e6b59d db-3 db-7 --reason "the disks are replaced"
    """
    full = await full_id(control.store, job_id)
    service = NodeJobService(control)
    again = await service.retry(full, nodes or (), actor=actor or local_actor(), reason=reason)

    def show_retried(_: Console) -> None:
        typer.echo(f"{counted(len(again), 'node runs', 'nodes run')} it again: {', '.join(again)}")
        aside(where.again(f"mainstay node show {full}"), style="cyan")

    return CommandOutput({"id": full, "nodes": again}, show_retried)
