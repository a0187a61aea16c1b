"""Load tests for simulated nodes: workflows whose code never runs, and runs of them that are drawn from a seed."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from mainstay.control import Control, JobRequest, OptionReader
from mainstay.load import LoadOptions, Provide, Use, Workflow, depends, setup, state, step
from mainstay.load.fleet.spec import CoreDemand, FleetOptions
from mainstay.load.handler import limits_on_nodes
from mainstay.load.planned_run import PlannedRun
from mainstay.load.sources import LoadTest
from mainstay.model import LEAD_QUEUE

from .load_runner import SimulatedCode

#: how long a simulated call takes
CALL_S = 0.1


class Browse(Workflow):
    """A workflow on its own."""

    @setup
    async def log_in(self) -> str:
        """`SimulatedCode` answers in its place, as for all that runs once."""
        return ""

    @step()
    async def look(self) -> None:
        """Nothing is sent: a simulated generator only counts."""


class Search(Workflow):
    """The first layer."""

    @setup
    async def log_in(self) -> str:
        """As above."""
        return ""

    @state("Checkout")
    def carts(self) -> Provide[str]:
        """As above."""
        return ""

    @step()
    async def find(self) -> None:
        """As above."""


@depends("Search")
class Checkout(Workflow):
    """The second layer."""

    @setup
    async def open_till(self) -> str:
        """As above."""
        return ""

    @state("Search")
    def taken(self, carts: str = "") -> Use[str]:
        """As above."""
        return carts

    @step()
    async def pay(self) -> None:
        """As above."""

    @step("pay")
    async def leave(self) -> None:
        """As above."""


TEST = LoadTest("shop", [Browse, Search, Checkout])
#: what the workflows of two layers get, if each setup ran once
CONTEXTS = {"Search": {"log_in": "log_in 1"}, "Checkout": {"open_till": "open_till 1", "carts": "carts 1"}}


def simulated_code() -> SimulatedCode:
    """The code of `TEST`, for one run."""
    return SimulatedCode(
        set_ups={"Browse": ["log_in"], "Search": ["log_in"], "Checkout": ["open_till"]},
        provides={"Search": ["carts"]},
    )


def fleet_options(
    *, layers: int = 1, on_loss: str = "replace", demand: dict[str, Any] | None = None, **options: Any
) -> FleetOptions:
    """The payload of a run with one or two layers. `demand` has fields of its demand, `options` those of a submit."""
    load = LoadOptions(workflows=("Checkout",) if layers == 2 else ("Browse",), drain="5s", **options)
    planned = PlannedRun(TEST, load)
    most = max(sum(planned.plan.workflows[name].most_users for name in layer) for layer in planned.plan.graph.layers())
    given = {"most": most, **(demand or {})}
    # a payload is the same for each submit of a key
    spec = msgspec.structs.replace(planned.spec(), processes=1)
    return msgspec.convert(
        {**msgspec.structs.asdict(load), "demand": CoreDemand(**given), "spec": spec, "on_loss": on_loss},
        FleetOptions,
    )


def load_request(control: Control, options: FleetOptions, **given: Any) -> JobRequest:
    """The submit of a run, as a client of a cluster sends it. `given` are options of the job."""
    plan = OptionReader(control.settings).read({**_limits(options), "kind": "load", **given})
    return JobRequest(
        "shop", msgspec.Raw(msgspec.msgpack.encode(options)), msgspec.structs.replace(plan, queue=LEAD_QUEUE)
    )


def _limits(options: FleetOptions) -> dict[str, Any]:
    load = LoadOptions(**{name: getattr(options, name) for name in LoadOptions.__struct_fields__})
    return limits_on_nodes(PlannedRun(TEST, load).plan)


def drawn_options(rng: random.Random, *, zones: tuple[str, ...]) -> FleetOptions:
    """A run: how much load, for how long, on how many cores, and what happens after a loss."""
    layers = rng.choice([1, 1, 2])
    longest_s = rng.choice([10.0, 20.0, 35.0]) if layers == 1 else 12.0
    lasts_s = round(rng.uniform(5, longest_s), 1)
    users = rng.randint(2, 12)
    options: dict[str, Any] = {"duration": f"{lasts_s}s"}
    match rng.choice(["rate", "vus", "iterations"]):
        case "rate":
            options |= {"rate": f"{rng.randint(5, 60)}/s", "max_in_flight": users}
        case "vus":
            options["vus"] = users
        case _:
            # users can make more of them, also of those with two steps: a replacement may need the time
            most = users * lasts_s / (2 * CALL_S)
            options |= {"vus": users, "iterations": max(users, round(most * rng.uniform(0.2, 0.6)))}
    demand: dict[str, Any] = {}
    kind = rng.random()
    if kind < 0.35:
        demand["processes"] = rng.randint(1, min(users, 6))
    elif kind < 0.6:
        demand["nodes"] = rng.randint(1, min(users, 3))
        if rng.random() < 0.5:
            demand["processes"] = rng.randint(demand["nodes"], min(users, 6, 4 * demand["nodes"]))
    else:
        demand["share"] = rng.choice(["low", "low", "normal", "high", "exclusive", "auto"])
    if rng.random() < 0.2:
        demand["labels"] = {"zone": rng.choice(zones)}
        if demand.get("nodes", 0) > 2:
            demand["nodes"] = 2
    on_loss = rng.choice(["replace", "replace", "replace", "continue", "fail", "restart"])
    return fleet_options(layers=layers, on_loss=on_loss, demand=demand, **options)


__all__ = [
    "CALL_S",
    "CONTEXTS",
    "TEST",
    "Browse",
    "Checkout",
    "Search",
    "drawn_options",
    "fleet_options",
    "load_request",
    "simulated_code",
]
