"""What produces the load of a run, as a port: a run plans, judges and reports; a runner loads the test and sends.

`Generators` are processes of this machine. A simulation has a runner that drives a simulated target in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, runtime_checkable

from .engine.messages import StartInstant, Values, WorkflowsDone
from .generator_process import GeneratorLost, Limits, LineHandler
from .run_spec import RunOrder
from .stats.model import SliceReport, Window


class LoadRunner(Protocol):
    """Produces the load of one run: `async with`, then `prepare`; for each layer `set_up`, `go` and `collect_provided`;
    `tear_down` at the end.

    Its windows, merged over all its processes, go to the function that it was made with, in the order of their
    buckets. A call whose process is lost raises `GeneratorLost`, within a bounded time.
    """

    async def __aenter__(self) -> Self:
        """Start its processes."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """End its processes."""
        ...

    @property
    def ended(self) -> asyncio.Future[None]:
        """Done when none of its processes is left, for whatever reason. Exists once it is entered."""
        ...

    async def prepare(self, order: RunOrder) -> None:
        """Load the test in every process; raises `InvalidInput` with the first refusal. Nothing is sent."""
        ...

    async def set_up(self, workflows: Sequence[str], shared: dict[str, dict[str, Any]], *, calls: int) -> Values:
        """Run the setups. `calls`: how many there are."""
        ...

    async def go(
        self,
        workflows: Sequence[str],
        shared: dict[str, dict[str, Any]],
        *,
        longest_s: float,
        drain_s: float,
        start: StartInstant | None = None,
    ) -> tuple[list[WorkflowsDone], GeneratorLost | None]:
        """Run workflows in all processes until all are done. Returns the reports, and the loss of a process, if any:
        the others are stopped then. A process that exceeds `longest_s` from now, or `drain_s` from a stop, is
        killed. `start`: when the load begins; None: as soon as every process can have heard of it."""
        ...

    def stop(self, *, hurry: bool) -> None:
        """End the running workflows in good order: after their iterations, or with `hurry` after their calls."""
        ...

    def give_up(self) -> None:
        """End the running workflows at once; kill processes that do not comply."""
        ...

    def kill(self) -> None:
        """Kill all processes; pending calls end with `GeneratorLost`."""
        ...

    async def collect_provided(self, workflows: Sequence[str], *, calls: int) -> Values:
        """What these workflows, which are done, provide to others."""
        ...

    async def tear_down(self, workflows: Sequence[str], *, calls: int) -> Values:
        """Run the teardowns."""
        ...


class RestartNeeded(GeneratorLost):
    """Machines were lost under load, and the run is to be started again from its beginning. All load has ended."""


@runtime_checkable
class SlicedRunner(Protocol):
    """What a runner on several machines also has: it may go on without one of them."""

    def reports(self) -> list[SliceReport]:
        """The part of each machine so far."""
        ...

    def note(self) -> None:
        """The numbers so far are about to be stored: what a successor needs of them should be, too."""
        ...

    def has_begun(self, workflows: Sequence[str]) -> bool:
        """Whether their load was ordered before, by another leader of the same run: it has to be counted."""
        ...

    def lost_windows(self) -> list[Window]:
        """The sums of what was received from machines that were lost, if the run went on: no report covers them."""
        ...

    def doubts(self) -> list[str]:
        """Why the numbers are not those of the planned load: losses, and clocks that could not be measured."""
        ...


class MakeRunner(Protocol):
    """Makes the runner of one run. `Generators` is one."""

    def __call__(
        self,
        processes: int,
        on_window: Callable[[Window], None],
        *,
        on_line: LineHandler = ...,
        limits: Limits | None = None,
    ) -> LoadRunner:
        """`on_window` takes the merged windows, `on_line` the lines that steps print."""
        ...


class MakeSliceRunner(Protocol):
    """Makes the runner of a part of the processes of a run. `Generators` is one."""

    def __call__(
        self,
        processes: int,
        on_window: Callable[[Window], None],
        *,
        on_line: LineHandler = ...,
        limits: Limits | None = None,
        first: int = ...,
        of: int | None = ...,
        until: Callable[[], float] | None = ...,
    ) -> LoadRunner:
        """The processes are numbered from `first`, of all `of` that the load is dealt over; None: these are all.
        `until`: to when they may send, by `boot_time`; None: until they are stopped."""
        ...


__all__ = ["LoadRunner", "MakeRunner", "MakeSliceRunner", "RestartNeeded", "SlicedRunner"]
