"""The methods of a workflow, read and checked before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import InvalidInput
from .graph import Graph
from .method_roles import StepRole, members_of, signature_of, state_direction
from .prepared import URL, Prepared
from .workflow import Workflow


class StepPlan(StepRole, frozen=True, kw_only=True):
    """A step."""

    name: str
    after: tuple[str, ...]
    prepared: dict[str, Prepared]
    """arguments that are prepared once, before the load starts"""
    taken: tuple[str, ...]
    """arguments that come from the context, if it has them"""
    tags: dict[str, str]


class StatePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A @state method."""

    name: str
    provides: bool
    workflows: tuple[str, ...]
    taken: tuple[str, ...] = ()
    """the values it uses, by the names of its arguments"""


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """The methods of one workflow class."""

    workflow: type[Workflow]
    graph: Graph
    steps: dict[str, StepPlan]
    setups: tuple[str, ...]
    teardowns: tuple[str, ...]
    on_starts: tuple[str, ...]
    on_stops: tuple[str, ...]
    states: tuple[StatePlan, ...]

    @property
    def name(self) -> str:
        return self.workflow.__name__


def blueprint_of(workflow: type[Workflow]) -> Blueprint:
    """Read a class; raises `InvalidInput` for a step that could never be called."""
    marks = workflow.__marks__
    names: dict[str, list[str]] = {}
    for name, mark in marks.items():
        names.setdefault(mark.role, []).append(name)
    if not names.get("step"):
        raise InvalidInput(workflow.__name__, "has no steps; write @step() above an `async def`")
    states = tuple(_state(workflow, name) for name in names.get("state", []))
    known = {*names["step"], *names.get("setup", [])}
    known |= {name for state in states for name in state.taken}
    _check_constructor(workflow)
    steps = {name: _step(workflow, name, known) for name in names["step"]}
    return Blueprint(
        workflow=workflow,
        graph=workflow.__graph__,
        steps=steps,
        setups=tuple(names.get("setup", [])),
        teardowns=tuple(names.get("teardown", [])),
        on_starts=tuple(names.get("on_start", [])),
        on_stops=tuple(names.get("on_stop", [])),
        states=states,
    )


def _check_constructor(workflow: type[Workflow]) -> None:
    """Users are created without arguments."""
    for name, parameter in inspect.signature(workflow).parameters.items():
        named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if named and parameter.default is inspect.Parameter.empty:
            raise InvalidInput(
                f"{workflow.__name__}.__init__({name})",
                "has no default, and users are created without arguments; use `data` for values of each user, `params` "
                "for settings",
            )


def _step(workflow: type[Workflow], name: str, known: set[str]) -> StepPlan:
    field = f"{workflow.__name__}.{name}"
    mark = workflow.__marks__[name]
    signature = signature_of(getattr(workflow, name), field=field)
    prepared: dict[str, Prepared] = {}
    taken: list[str] = []
    for argument, parameter in signature.parameters.items():
        wanted = _prepared_type(signature.hints.get(argument))
        if wanted is not None and parameter.default is not None:
            prepared[argument] = _prepared(wanted, parameter, field=f"{field}({argument})")
            continue
        taken.append(argument)
        if parameter.default is not inspect.Parameter.empty:
            continue
        if argument not in known:
            raise InvalidInput(
                f"{field}({argument})",
                "has no value: it is neither a step, a setup nor a state of this workflow, and has no default",
            )
        if argument in workflow.__graph__.after and name not in workflow.__graph__.beyond(argument):
            raise InvalidInput(
                f"{field}({argument})",
                f"step {argument} may not be done by then; write @step({argument!r}), or give the argument a default",
            )
    return StepPlan(
        name=name,
        after=mark.names,
        prepared=prepared,
        taken=tuple(taken),
        tags=mark.tags,
        **{field: getattr(signature, field) for field in StepRole.__struct_fields__},
    )


def _prepared_type(hint: Any) -> type[Prepared] | None:
    """The prepared type that an argument is annotated with, also in `URL | None`."""
    for one in members_of(hint):
        if isinstance(one, type) and issubclass(one, Prepared):
            return one
    return None


def _prepared(wanted: type[Prepared], parameter: inspect.Parameter, *, field: str) -> Prepared:
    default = parameter.default
    if default is inspect.Parameter.empty:
        raise InvalidInput(field, f"a {wanted.__name__} is prepared before the load starts; give it a default value")
    # a URL is joined to the base URL of its workflow, which differs between workflows
    if isinstance(default, wanted) and not isinstance(default, URL):
        return default
    try:
        return wanted(default)
    except InvalidInput as error:
        raise InvalidInput(field, error.rule) from None
    except (TypeError, ValueError) as error:
        raise InvalidInput(field, f"{default!r} is not a valid {wanted.__name__} ({error})") from None


def _state(workflow: type[Workflow], name: str) -> StatePlan:
    field = f"{workflow.__name__}.{name}"
    function = getattr(workflow, name)
    provides = state_direction(function, field=field) == "provide"
    taken = tuple(inspect.signature(function).parameters)[1:]
    if provides and taken:
        raise InvalidInput(field, "a @state that provides a value takes no arguments; use self instead")
    return StatePlan(name=name, provides=provides, workflows=workflow.__marks__[name].names, taken=taken)


def check_states(blueprints: Mapping[str, Blueprint]) -> None:
    """Refuse a @state that names a workflow which the test does not have."""
    for blueprint in blueprints.values():
        for state in blueprint.states:
            for other in state.workflows:
                if other not in blueprints:
                    known = ", ".join(blueprints)
                    raise InvalidInput(
                        f"{blueprint.name}.{state.name}", f"there is no workflow {other!r} in this test; it has {known}"
                    )
