"""The steps of a submission to nodes, whichever way it reaches the cluster: over its bus, or through a server of it.

Everything that can be known to fail is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...bundles import Bundle, BundleLimits
from ...clock import duration_text
from ...errors import InvalidInput
from ..placement import CoreDemand
from ..plan import LoadOptions
from ..planned_run import PlannedRun
from ..sources import LoadTest, load_file
from .code import LoadCode, load_code, sends_code
from .demand import FleetDemand, core_demand
from .spec import FleetOptions

#: what is left at least of the wait for cores, once the code was sent
_LEAST_WAIT_S = 5.0
#: how often the nodes are looked at that are still starting
_LOOK_S = 1.0


class AskBundleLimits(NamedTuple):
    """Ask how large a bundle may be; the answer is `BundleLimits`."""


class AskCoreProblem(NamedTuple):
    """Ask why the nodes could never give these cores; the answer is a text, empty if they could."""

    cores: CoreDemand
    name: str = ""
    """of the test"""
    key: str | None = None
    """a run that was submitted with it before has no problem"""


class BlockingCall(NamedTuple):
    """Call this beside the event loop; the answer is what it returns."""

    call: Callable[[], Any]


class PublishCode(NamedTuple):
    """Publish this bundle."""

    bundle: Bundle
    limits: BundleLimits


class SubmissionPause(NamedTuple):
    """Wait before the next step."""

    seconds: float


class FleetRequest(NamedTuple):
    """A checked run whose code is published."""

    options: FleetOptions
    wait_s: float | None
    """how long it waits for free cores; None: until it is cancelled"""

    @property
    def content(self) -> bytes:
        """What an idempotency key stands for: the same for each submit of the same run."""
        return msgspec.msgpack.encode(self.options, order="deterministic")


SubmissionStep = AskBundleLimits | AskCoreProblem | BlockingCall | PublishCode | SubmissionPause
#: yields steps, takes their answers, and returns the request
Submission = Generator[SubmissionStep, Any, FleetRequest]


def planned_on_nodes(
    test: LoadTest | str | Path, load: LoadOptions | None, nodes: int | FleetDemand
) -> tuple[PlannedRun, FleetDemand]:
    """What a caller of the library gives, planned. `test` may be the path of a file."""
    found = test if isinstance(test, LoadTest) else load_file(test)
    demand = nodes if isinstance(nodes, FleetDemand) else FleetDemand(nodes)
    return PlannedRun(found, load or LoadOptions()), demand


def submission(
    planned: PlannedRun,
    demand: FleetDemand,
    *,
    key: str | None,
    now_s: Callable[[], float],
    on_note: Callable[[str], None],
) -> Submission:
    """Check everything, wait for nodes that are still starting, and publish the code. `on_note` takes what the user
    should know meanwhile: a warning, or what is waited for. `key` is the idempotency key of the job."""
    cores = core_demand(demand, planned)
    until_s = now_s() + demand.wait_s
    # an installed test needs no managers that keep bundles
    limits: BundleLimits = (yield AskBundleLimits()) if sends_code(planned, demand) else BundleLimits()
    code: LoadCode = yield BlockingCall(lambda: load_code(planned, demand, limits))
    for note in code.notes:
        on_note(f"warning: {note}")
    yield from _await_nodes(AskCoreProblem(cores, planned.test.name, key), demand.wait_s, until_s, now_s, on_note)
    if code.bundle is not None:
        yield PublishCode(code.bundle, limits)
    # the code was sent when the time was nearly over: a moment is left for cores that are free
    left_s = None if demand.wait is None else max(until_s - now_s(), _LEAST_WAIT_S)
    return FleetRequest(fleet_options(planned, demand, code, cores), left_s)


def _await_nodes(
    ask: AskCoreProblem, wait_s: float, until_s: float, now_s: Callable[[], float], on_note: Callable[[str], None]
) -> Generator[SubmissionStep, Any, None]:
    """Return as soon as the nodes could give these cores if they were free."""
    noted = ""
    while problem := (yield ask):
        if not wait_s or now_s() >= until_s:
            waited = f" after {duration_text(wait_s)}" if wait_s else "; if nodes are still starting, add a wait"
            raise InvalidInput("nodes" if ask.cores.processes is None else "cores", f"{problem}{waited}")
        if problem != noted:
            on_note(f"waiting for nodes: {problem}")
            noted = problem
        yield SubmissionPause(_LOOK_S)


def fleet_options(planned: PlannedRun, demand: FleetDemand, code: LoadCode, cores: CoreDemand) -> FleetOptions:
    """The payload of the job. Pure."""
    spec = planned.spec()
    spec = msgspec.structs.replace(spec, order=msgspec.structs.replace(spec.order, source=code.source))
    return FleetOptions(
        **msgspec.structs.asdict(planned.options),
        demand=cores,
        spec=spec,
        code="" if code.bundle is None else code.bundle.digest,
        modules=code.modules,
        on_loss=demand.on_loss,
    )


__all__ = [
    "AskBundleLimits",
    "AskCoreProblem",
    "BlockingCall",
    "FleetRequest",
    "PlannedRun",
    "PublishCode",
    "Submission",
    "SubmissionPause",
    "SubmissionStep",
    "fleet_options",
    "planned_on_nodes",
    "submission",
]
