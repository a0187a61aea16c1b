"""`mainstay jobs events` and `mainstay jobs explain`: the history of a job, as a table and as sentences."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ..control import Control, event_view
from ..control.explain import ClusterFacts, Explanation, explained
from ..errors import BusError
from ..kinds import part
from ..stores import JobStore
from ..words import SessionNames
from . import jobs_view
from .commands import CommandOutput
from .common import aside, coloured, print_command, printable
from .ids import IdArgument, full_id
from .options import panel
from .target import StoreTarget, Where, shell_word

_MOST = 10_000
#: stands for the app in advice, since a store does not know it
_ANY_APP = "MODULE:APP"


class ClusterWhere(Where, frozen=True, kw_only=True):
    """The store of a command, and the cluster in front of it."""

    cluster: Annotated[
        str,
        panel("Store")(
            "--cluster",
            envvar="MAINSTAY_CLUSTER_URL",
            metavar="URL",
            help="URL of a cluster for an operator, or the folder of `mainstay cluster up`. Without --store and --app "
            "its store is used, through its managers.",
        ),
    ] = ""

    def target(self) -> StoreTarget:
        """The store that is named, or that of the cluster."""
        if self._is_first():
            # by name: the cluster is a layer above
            return StoreTarget(url=part("mainstay.cluster.operator:operator_store")(self.cluster))
        return super().target()

    def again(self, command: str) -> str:
        """A command to try next, on the same store."""
        if command.startswith(("mainstay cluster ", "mainstay node join ")) or not self._is_first():
            return super().again(command)
        return f"{command} --store {shell_word(self.target().url)}"

    async def facts(self) -> ClusterFacts | None:
        """What managers know; None: no cluster is named, or it does not answer and the store is read without it."""
        named = self.cluster or (self.store if self.store.startswith("remote+") else "")
        if not named:
            return None
        try:
            found: ClusterFacts = await part("mainstay.cluster.operator:read_cluster_facts")(named)
        except BusError as error:
            if self._is_first():
                raise
            aside(f"the cluster does not answer, so its nodes are not explained: {error}")
            return None
        return found

    def _is_first(self) -> bool:
        """Whether the cluster names the store: it was typed, or nothing else was given."""
        if not self.cluster or not self.typed.isdisjoint(("store", "app")):
            return False
        return "cluster" in self.typed or not (self.store or self.app)


async def events(
    store: JobStore,
    job_id: IdArgument,
    after: Annotated[int, typer.Option("--after", min=0, help="Show only events after this number.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=_MOST, help="Events to show, at most.")] = 1000,
) -> CommandOutput:
    """Show the audit trail of a job: every transition, its actor, time and reason.

    A deleted job still has its tombstone. Below a full page is the option for the next page.

    Exit codes: 0 fine, 2 error (no such job, or several).

    [bold]Examples[/bold]

      mainstay jobs events 4de452e6b59d
      mainstay jobs events 4de452e6b59d --after 200 --json | jq .events[].reason
    """
    job_id = await full_id(store, job_id)
    page = await Control(store).jobs.events(job_id, after=after, limit=limit)
    names = SessionNames(await store.sessions())
    more = page[-1].seq if len(page) == limit else None

    def show(console: Console) -> None:
        console.print(jobs_view.story_table(page, (), names) if page else f"no events after {after}")
        if more is not None:
            console.print(Text(f"more: add --after {more}", style="dim"), soft_wrap=True)

    return CommandOutput({"id": job_id, "events": [event_view(event) for event in page], "after": more}, show)


async def explain(store: JobStore, where: ClusterWhere, job_id: IdArgument) -> CommandOutput:
    """Explain a job in sentences: its state and the reason, what it waits for, which workers held it, why it was
    retried, what comes next, and what you can do.

    --cluster adds what the managers know: the node that runs it, nodes that are away, why a node was closed.

    Exit codes: 0 fine, 2 error (no such job, or several).

    [bold]Examples[/bold]

      mainstay jobs explain 01a1e20f-5355-7137-b2a7-4de452e6b59d
      mainstay jobs explain 4de452e6b59d --json | jq -r .advice[].command
      mainstay jobs explain 4de452e6b59d --cluster .mainstay/cluster
    """
    explanation = await explained(store, await full_id(store, job_id), await where.facts())
    advice = tuple(msgspec.structs.replace(each, command=_here(each.command, where)) for each in explanation.advice)
    explanation = msgspec.structs.replace(explanation, advice=advice)
    return CommandOutput(explanation, lambda console: _show(explanation, console))


def _here(command: str, where: Where) -> str:
    """The command for the store or the app of this command line."""
    if _ANY_APP in command:
        return command.replace(_ANY_APP, where.app or _ANY_APP)
    return command if command == "mainstay --version" else where.again(command)


def _show(explanation: Explanation, console: Console) -> None:
    head = Text(printable(explanation.name or explanation.id), style="bold").append(" ")
    head.append_text(
        coloured(explanation.status) if explanation.status is not None else Text("deleted", style="magenta")
    )
    console.print(head)
    console.print(Text(explanation.id, style="dim"), soft_wrap=True)
    for section in explanation.sections:
        console.print()
        console.print(Text(section.title, style="bold"))
        for sentence in section.sentences:
            console.print(Padding(Text(printable(sentence)), (0, 0, 0, 2)))
    if explanation.advice:
        console.print()
        console.print(Text("what to do", style="bold"))
        for advice in explanation.advice:
            console.print(Padding(Text(f"{printable(advice.why)}:"), (0, 0, 0, 2)))
            print_command(printable(advice.command), console, indent=4)
