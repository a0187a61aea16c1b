"""The plan of a run: from the classes and the options of a submission to users, rates and times of each workflow."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..errors import InvalidInput
from ..words import counted
from .amounts import duration_of, pause_of, rate_of, stages_of
from .graph import Graph, graph_of
from .pace import Ramp, flat, ramped, weighted
from .workflow import Workflow

SCHEMA = 1
Model = Literal["closed", "iterations", "open"]

#: default of `max_in_flight`: the arrivals of 10 seconds, within these bounds
_IN_FLIGHT_S, _FEWEST, _MOST = 10, 100, 10_000


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a submission; None keeps the value of the class. Stored as the payload of the job."""

    workflows: tuple[str, ...] = ()
    """only these, with the workflows that they depend on"""
    vus: int | None = None
    duration: str | None = None
    iterations: int | None = None
    stages: str | tuple[tuple[str, int | str], ...] | None = None
    rate: str | None = None
    arrivals: str | None = None
    """constant, or poisson for random arrivals"""
    max_in_flight: int | None = None
    catch_up: bool | None = None
    think: str | None = None
    pacing: str | None = None
    base_url: str | None = None
    thresholds: tuple[str, ...] = ()
    """in addition to those of the classes"""
    timeout: str | None = None
    drain: str | None = None
    processes: int | None = None
    """generator processes; None: one for each core"""
    tags: dict[str, str] = {}
    params: dict[str, str] = {}
    """`self.params` of the users"""
    seed: int = 0
    """of every random choice"""
    verify: bool = True
    """whether to verify the certificates of servers"""
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    proxy: str | None = None
    preflight: bool = True
    """whether to check that the targets can be reached before the load starts"""
    schema: int = SCHEMA


class WorkflowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one workflow, over all processes."""

    name: str
    model: Model
    users: Ramp | None = None
    """closed and iterations"""
    arrivals: Ramp | None = None
    """open: the rate"""
    poisson: bool = False
    iterations: int | None = None
    duration_s: float | None = None
    max_in_flight: int = 0
    catch_up: bool = True
    think: tuple[float, float] | None = None
    pacing_s: float | None = None
    drain_s: float = 30.0
    timeout_s: float | None = None
    base_url: str = ""
    new_session: bool = False

    @property
    def most_users(self) -> int:
        return self.max_in_flight if self.users is None else math.ceil(self.users.highest)

    @property
    def description(self) -> str:
        """The model in words."""
        if self.arrivals is not None:
            kind = " at random" if self.poisson else ""
            return f"open, up to {self.arrivals.highest:g}/s{kind}, at most {self.max_in_flight} under way"
        if self.iterations is not None:
            return f"{counted(self.iterations, 'iteration')} by {counted(self.most_users, 'user')}"
        return f"closed, at most {counted(self.most_users, 'user')}"


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of all workflows of a test."""

    workflows: dict[str, WorkflowPlan]
    graph: Graph
    """the order of the workflows"""
    duration_s: float | None
    """of all layers together, without drains; None: unknown"""
    drain_s: float
    notes: tuple[str, ...] = ()
    """warnings: values of the classes that have no effect in this run, and why"""


def plan_of(workflows: Mapping[str, type[Workflow]], options: LoadOptions) -> RunPlan:
    """Resolve all options; raises `InvalidInput` for values that make no sense."""
    chosen = _chosen(workflows, options.workflows)
    after = {name: cls.__depends__ for name, cls in chosen.items()}
    graph = graph_of(after, field="depends", what="workflow")
    notes = [note for cls in chosen.values() for note in _without_effect(cls, options)]
    plans = {name: _workflow_plan(cls, options) for name, cls in chosen.items()}
    for layer in graph.layers():
        plans.update(_by_weight([(plans[name], chosen[name]) for name in layer]))
    _check_rate_options(plans.values(), options)
    longest = [max(_longest(plans[name]) for name in layer) for layer in graph.layers()]
    duration_s = None if any(math.isinf(one) for one in longest) else sum(longest)
    drain_s = max((plan.drain_s for plan in plans.values()), default=0.0)
    return RunPlan(workflows=plans, graph=graph, duration_s=duration_s, drain_s=drain_s, notes=tuple(notes))


def _without_effect(cls: type[Workflow], options: LoadOptions) -> Iterable[str]:
    """Warnings about values of a class that this run does not use."""
    amounts = _amounts(cls, options)
    stages, rate = amounts.get("stages"), amounts.get("rate")
    replaced = options.rate is not None or options.stages is not None
    is_open = rate is not None or (stages is not None and stages_of(stages, field=f"{cls.__name__}.stages")[1])
    if options.vus is None and not replaced and (is_open or stages is not None) and "vus" in _set_by(cls):
        which = "stages" if rate is None else "rate"
        yield f"{cls.__name__}.vus has no effect: the load follows {cls.__name__}.{which}"
    for field in ("think", "pacing"):
        if is_open and replaced and getattr(options, field) is None and getattr(cls, field) is not None:
            rule = "with a rate, iterations start when they are due"
            yield f"{cls.__name__}.{field} has no effect: {rule}"


def _set_by(cls: type[Workflow]) -> set[str]:
    """The attributes that a class and its bases set themselves."""
    return {name for one in cls.__mro__[:-2] for name in vars(one)}


def _check_rate_options(plans: Iterable[WorkflowPlan], options: LoadOptions) -> None:
    """Refuse options about arrivals if there is no rate."""
    if any(plan.arrivals is not None for plan in plans):
        return
    for field in ("max_in_flight", "arrivals", "catch_up"):
        if getattr(options, field) is not None:
            raise InvalidInput(
                field, "needs a rate; this test has a number of users, who start again when they are done"
            )


def _longest(plan: WorkflowPlan) -> float:
    return math.inf if plan.duration_s is None else plan.duration_s


def _chosen(workflows: Mapping[str, type[Workflow]], wanted: Sequence[str]) -> dict[str, type[Workflow]]:
    if not wanted:
        return dict(workflows)
    chosen: dict[str, None] = {}
    left = list(wanted)
    while left:
        name = left.pop()
        if name not in workflows:
            close = difflib.get_close_matches(name, workflows, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known workflows: {', '.join(workflows)}"
            raise InvalidInput("workflows", f"unknown workflow {name!r}; {hint}")
        if name not in chosen:
            chosen[name] = None
            left += workflows[name].__depends__
    return {name: cls for name, cls in workflows.items() if name in chosen}


def _workflow_plan(cls: type[Workflow], options: LoadOptions) -> WorkflowPlan:
    name = cls.__name__

    def value(field: str) -> Any:
        given = getattr(options, field)
        return getattr(cls, field) if given is None else given

    model, users, arrivals, duration_s = _model(cls, options, name)
    iterations = value("iterations") if model == "iterations" else None
    in_flight = 0
    if arrivals is not None:
        given = value("max_in_flight")
        usual = min(_MOST, max(_FEWEST, math.ceil(arrivals.highest * _IN_FLIGHT_S)))
        in_flight = usual if given is None else _count(given, field=f"{name}.max_in_flight")
    kind = value("arrivals")
    if kind not in ("constant", "poisson"):
        raise InvalidInput(f"{name}.arrivals", f"unknown kind of arrivals {kind!r}; write constant or poisson")
    think, pacing, timeout, base_url = value("think"), value("pacing"), value("timeout"), value("base_url")
    if not isinstance(base_url, str):
        raise InvalidInput(f"{name}.base_url", f"{base_url!r} is not a URL; write it as text: 'http://host'")
    if arrivals is not None:
        if options.rate is not None or options.stages is not None:
            # a rate of this run replaces the pauses of the class
            think, pacing = options.think, options.pacing
        for field, given in (("think", think), ("pacing", pacing)):
            if given is not None:
                rule = "needs a number of users; with a rate, iterations start when they are due"
                raise InvalidInput(f"{name}.{field}", rule)
    return WorkflowPlan(
        name=name,
        model=model,
        users=users,
        arrivals=arrivals,
        poisson=kind == "poisson",
        iterations=iterations,
        duration_s=duration_s,
        max_in_flight=in_flight,
        catch_up=bool(value("catch_up")),
        think=None if think is None else pause_of(think, field=f"{name}.think"),
        pacing_s=None if pacing is None else duration_of(pacing, field=f"{name}.pacing"),
        drain_s=duration_of(value("drain"), field=f"{name}.drain"),
        timeout_s=None if timeout is None else _some_time(timeout, field=f"{name}.timeout"),
        base_url=str(base_url),
        new_session=bool(cls.new_session),
    )


def _model(
    cls: type[Workflow], options: LoadOptions, name: str
) -> tuple[Model, Ramp | None, Ramp | None, float | None]:
    """The model, users or rate over time, and the duration. An amount in the submission replaces all amounts of the
    class: `--vus 10` on a class with a rate is a test with ten users."""
    amounts = _amounts(cls, options)
    stages, rate, iterations = (amounts.get(field) for field in ("stages", "rate", "iterations"))
    if stages is not None and rate is not None:
        raise InvalidInput(f"{name}.stages", "stages and a rate are both given; write the rates into the stages")
    if options.vus is not None and rate is not None:
        rule = "users and a rate are both given; a rate needs no number of users, and max_in_flight limits them"
        raise InvalidInput("vus", rule)
    if options.vus is not None and stages is not None:
        raise InvalidInput("vus", "users and stages are both given; the stages set the number of users over time")
    vus = _count(cls.vus if options.vus is None else options.vus, field=f"{name}.vus")
    if stages is not None:
        levels, are_rates = stages_of(stages, field=f"{name}.stages")
        if iterations is not None:
            raise InvalidInput(f"{name}.iterations", "iterations and stages are both given; a test ends by one of them")
        if options.duration is not None:
            raise InvalidInput(f"{name}.duration", "a duration and stages are both given; the stages set the duration")
        ramp = ramped(levels)
        return ("open", None, ramp, ramp.ends) if are_rates else ("closed", ramp, None, ramp.ends)
    duration_s = _some_time(cls.duration if options.duration is None else options.duration, field=f"{name}.duration")
    if rate is not None:
        if iterations is not None:
            raise InvalidInput(f"{name}.iterations", "iterations and a rate are both given; use a duration with a rate")
        return "open", None, flat(rate_of(rate, field=f"{name}.rate"), duration_s), duration_s
    if iterations is not None:
        _count(iterations, field=f"{name}.iterations")
        limited = options.duration is not None or "duration" in _set_by(cls)
        users = flat(min(vus, iterations), duration_s if limited else math.inf)
        return "iterations", users, None, duration_s if limited else None
    return "closed", flat(vus, duration_s), None, duration_s


def _amounts(cls: type[Workflow], options: LoadOptions) -> dict[str, Any]:
    """Stages, rate and iterations of the submission, or else of the class. A number of users keeps the iterations of
    the class, and replaces its rate and stages."""
    fields = ("stages", "rate", "iterations")
    if given := {field: value for field in fields if (value := getattr(options, field)) is not None}:
        return given
    if options.vus is not None:
        return {"iterations": cls.iterations}
    return {field: getattr(cls, field) for field in fields}


def _some_time(value: Any, *, field: str) -> float:
    duration_s = duration_of(value, field=field)
    if duration_s <= 0:
        raise InvalidInput(field, "must be longer than zero; write '10s', for example")
    return duration_s


def _count(value: Any, *, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(field, f"{value!r} is not a number of at least 1")
    if value > 10_000_000:
        raise InvalidInput(field, f"{value} is too many; at most 10 million")
    return value


def _by_weight(layer: Sequence[tuple[WorkflowPlan, type[Workflow]]]) -> dict[str, WorkflowPlan]:
    """Divide the users or the rate among the workflows with a weight."""
    group = [(plan, cls) for plan, cls in layer if cls.weight is not None]
    weights = [_weight(cls) for _, cls in group]
    if len(group) < 2:
        return {}
    if len({plan.model for plan, _ in group}) > 1:
        models = ", ".join(f"{plan.name} ({plan.model})" for plan, _ in group)
        raise InvalidInput("weight", f"workflows with weights must have the same model; they have {models}")
    first = group[0][0]
    if any(
        (plan.users, plan.arrivals, plan.iterations) != (first.users, first.arrivals, first.iterations)
        for plan, _ in group
    ):
        raise InvalidInput(
            "weight", "workflows with weights must have equal vus, rate or stages: the amount is divided among them"
        )
    part = [weight / sum(weights) for weight in weights]
    counts = None if first.iterations is None else weighted(first.iterations, weights)
    users = None if first.users is None else _divided(first.users, weights)
    if counts is not None and users is not None:
        # a workflow with iterations needs at least one user
        users = [_at_least_one(ramp) if count else ramp for ramp, count in zip(users, counts, strict=True)]
    names = [plan.name for plan, _ in group]
    if counts is not None:
        _check_shares(names, weights, counts, first.iterations or 0, "iteration")
    elif users is not None:
        _check_shares(names, weights, [math.ceil(ramp.highest) for ramp in users], first.most_users, "user")
    divided = {}
    for at, (plan, _) in enumerate(group):
        rate = plan.arrivals and Ramp(tuple((when, level * part[at]) for when, level in plan.arrivals.points))
        divided[plan.name] = msgspec.structs.replace(
            plan,
            users=users and users[at],
            arrivals=rate,
            iterations=counts and counts[at],
            max_in_flight=math.ceil(plan.max_in_flight * part[at]),
        )
    return divided


def _weight(cls: type[Workflow]) -> float:
    weight = cls.weight
    if not isinstance(weight, (int, float)) or not 1e-6 <= weight <= 1e6:
        rule = f"{weight!r} is not a weight; write a number above 0, up to a million"
        raise InvalidInput(f"{cls.__name__}.weight", f"{rule}. To leave a workflow out, name only the others")
    return float(weight)


def _check_shares(names: Sequence[str], weights: Sequence[float], given: Sequence[int], total: int, what: str) -> None:
    """Refuse a share of zero: that workflow would fail, and the run with it."""
    enough = math.ceil(sum(weights) / min(weights))
    for name, weight, share in zip(names, weights, given, strict=True):
        if total and not share:
            rule = f"{weight:g} of {sum(weights):g} is too small a share of {counted(total, what)}"
            raise InvalidInput(f"{name}.weight", f"{rule}; each workflow gets one with {counted(enough, what)}")


def _at_least_one(ramp: Ramp) -> Ramp:
    return Ramp(tuple((when, max(1.0, level)) for when, level in ramp.points))


def _divided(ramp: Ramp, weights: Sequence[float]) -> list[Ramp]:
    """Whole users at each point, with the same sum."""
    levels = [weighted(round(level), weights) for _, level in ramp.points]
    return [
        Ramp(tuple((when, float(given[at])) for (when, _), given in zip(ramp.points, levels, strict=True)))
        for at in range(len(weights))
    ]
