"""A planned run that came from another machine as data: what is refused, by the path of its field. Pure.

None of the code of the test is loaded here. What the code does is known only on the nodes that run it; this is about
what managers and nodes would do with a plan that no planner has made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

import msgspec

from ...bundles import BundleManifest
from ...errors import InvalidInput
from ..graph import graph_of
from ..pace import Ramp
from ..plan import SCHEMA, LoadOptions, WorkflowPlan
from ..run_spec import RunSpec
from ..sources import Source
from ..stats.thresholds import check, thresholds_of
from .demand import checked_cores
from .spec import FleetOptions

_DIGEST = re.compile(r"[0-9a-f]{64}")
_CLASS = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def checked_run(data: object, refusal: Callable[[str, type[msgspec.Struct]], InvalidInput]) -> FleetOptions:
    """The run as its job has it. `refusal` makes the error for a message of msgspec."""
    try:
        schema = msgspec.convert(data, _Head).schema
        if schema > SCHEMA:
            raise InvalidInput(
                "schema", f"{schema} is that of a newer Mainstay; upgrade this cluster, which has {SCHEMA}"
            )
        options = msgspec.convert(data, FleetOptions)
    except msgspec.ValidationError as error:
        raise refusal(str(error), FleetOptions) from None
    if options.processes is not None:
        raise InvalidInput("processes", "is for one machine; on nodes, demand.processes sets it")
    with _below("spec"):
        _check_spec(options.spec, options)
    with _below("demand"):
        demand = checked_cores(options.demand, options.spec.plan, cores_field="processes")
    _check_code(options)
    return msgspec.structs.replace(options, demand=demand)


def check_in_bundle(options: FleetOptions, manifest: BundleManifest) -> None:
    """Refuse a test that is not in its bundle."""
    source, paths = options.spec.order.source, {file.path for file in manifest.files}
    if source.file:
        if source.file not in paths:
            raise InvalidInput("spec.order.source.file", f"{source.file!r} is not in the bundle {options.code}")
        return
    places = (place.partition(":")[0].replace(".", "/") for place in source.classes.values())
    if not any(f"{place}.py" in paths or f"{place}/__init__.py" in paths for place in places):
        raise InvalidInput("spec.order.source.classes", f"none of its modules is in the bundle {options.code}")


class _Head(msgspec.Struct):
    schema: int = SCHEMA


@contextmanager
def _below(path: str) -> Iterator[None]:
    """Errors inside name their field below this path."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{path}.{error.field}", error.rule) from None


def _check_spec(spec: RunSpec, options: FleetOptions) -> None:
    order, names = spec.order, spec.plan.workflows.keys()
    with _below("order"):
        if order.options != _load_options(options):
            raise InvalidInput("options", "differ from those of the run; send the same")
        with _below("source"):
            _check_source(order.source)
        if not names:
            raise InvalidInput("plan.workflows", "has no workflow; a load test has at least one")
        for name, plan in spec.plan.workflows.items():
            with _below(f"plan.workflows.{name}"):
                if plan.name != name:
                    raise InvalidInput("name", f"is {plan.name!r}; it must be {name!r}")
                _check_plan(plan)
        _check_names("plan.graph.after", spec.plan.graph.after, names)
        graph_of(spec.plan.graph.after, field="plan.graph.after", what="workflow")
        _check_number("plan.drain_s", spec.plan.drain_s)
        _check_number("plan.duration_s", spec.plan.duration_s)
        _check_names("steps", order.steps, names)
    _check_names("methods", spec.methods, names)
    if not 1 <= spec.processes <= 1024:
        raise InvalidInput("processes", f"{spec.processes} is out of range; from 1 to 1024")
    header = spec.header
    if header.name != order.name:
        raise InvalidInput("header.name", f"is {header.name!r}; it must be that of the test, {order.name!r}")
    for number, workflow in enumerate(header.workflows):
        with _below(f"header.workflows[{number}]"):
            _check_shown(workflow, order.steps)
    with _below("thresholds"):
        check(thresholds_of(spec.thresholds), header)


def _load_options(options: FleetOptions) -> LoadOptions:
    return LoadOptions(**{name: getattr(options, name) for name in LoadOptions.__struct_fields__})


def _check_source(source: Source) -> None:
    if source.folder or source.on_node:
        raise InvalidInput("folder", "is a folder of another machine; nodes choose it themselves")
    if bool(source.file) == bool(source.classes):
        raise InvalidInput("file", "give either the file of the test or its classes")
    path = PurePosixPath(source.file)
    if path.is_absolute() or ".." in path.parts or "\\" in source.file or "\0" in source.file:
        raise InvalidInput("file", f"{source.file[:200]!r} is not below the root of a bundle; give its path there")
    for name, place in source.classes.items():
        if not _CLASS.fullmatch(place):
            raise InvalidInput(f"classes.{name}", f"{place[:200]!r} is not the place of a class; write module:Class")


def _check_plan(plan: WorkflowPlan) -> None:
    ramps = {"users": plan.users, "arrivals": plan.arrivals}
    given = [(field, ramp) for field, ramp in ramps.items() if ramp is not None]
    if [field for field, _ in given] != ["arrivals" if plan.model == "open" else "users"]:
        raise InvalidInput("model", f"is {plan.model}; then either users or arrivals are given, as the model needs it")
    for field, ramp in given:
        _check_ramp(field, ramp)
    if (plan.iterations is not None) != (plan.model == "iterations") or (plan.iterations or 1) < 1:
        raise InvalidInput("iterations", f"{plan.iterations!r} does not fit to the model {plan.model}")
    if plan.most_users < 1:
        raise InvalidInput("max_in_flight" if plan.model == "open" else "users", "are none; give at least one")
    for field in ("duration_s", "pacing_s", "drain_s", "timeout_s"):
        _check_number(field, getattr(plan, field))
    for pause_s in plan.think or ():
        _check_number("think", pause_s)


def _check_ramp(field: str, ramp: Ramp) -> None:
    times = [at for at, _ in ramp.points]
    if not times or times != sorted(times):
        raise InvalidInput(field, "has no points, or they are not in the order of time")
    for point in ramp.points:
        for value in point:
            _check_number(field, value)


def _check_number(field: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise InvalidInput(field, f"{value!r} is out of range; it must be a number from 0")


def _check_names(field: str, found: Any, names: Any) -> None:
    if found.keys() != names:
        rule = f"is about {', '.join(found) or 'nothing'}; the plan has the workflows {', '.join(names)}"
        raise InvalidInput(field, rule[:500])


def _check_shown(workflow: dict[str, Any], steps: dict[str, list[str]]) -> None:
    """A workflow as the reports show it."""
    name = workflow.get("name")
    if not isinstance(name, str) or name not in steps:
        raise InvalidInput("name", f"{name!r:.100} is not a workflow of the plan")
    shown = workflow.get("steps", [])
    if not (isinstance(shown, list) and all(isinstance(each, dict) for each in shown)):
        raise InvalidInput("steps", "is not a list of steps")
    if [each.get("name") for each in shown] != steps[name]:
        raise InvalidInput("steps", f"are not those of the plan: {', '.join(steps[name])[:500]}")


def _check_code(options: FleetOptions) -> None:
    if options.code:
        if not _DIGEST.fullmatch(options.code):
            rule = f"{options.code[:80]!r} is not the digest of a bundle: 64 lower-case hexadecimal digits"
            raise InvalidInput("code", rule)
        if options.modules:
            raise InvalidInput("modules", "is for a test that is installed on the nodes; leave it out, or the code")
        return
    if not options.modules or options.spec.order.source.file:
        raise InvalidInput("code", "is missing; publish the bundle of the test, and give its digest")
    for name, digest in options.modules.items():
        if not name.isidentifier() or not _DIGEST.fullmatch(digest):
            raise InvalidInput(f"modules.{name[:100]}", f"{digest[:80]!r} is not a digest of a top-level module")


__all__ = ["check_in_bundle", "checked_run"]
