"""The class of a node job: which of `local` and `leader` it has, and whether a worker can call them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any

from ..errors import InvalidInput
from ..task import Signature, is_async
from .results import LeaderRun, Node, NodeResult
from .spec import LEADER, LOCAL

_RESULTS = (list[NodeResult], Sequence[NodeResult])
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class NodeMethod:
    """One method of the class of a node job."""

    def __init__(self, owner: type, which: str, name: str) -> None:
        self.which = which
        self.field = f"{name}.{which}"
        self.function = _checked(owner, which, self.field)
        self.is_async = is_async(self.function)
        hints = _hints(self.function, self.field)
        _, *parameters = inspect.signature(self.function).parameters.values()
        self._check_first(parameters, hints)
        self.run_parameter = ""
        """the parameter that takes a `LeaderRun`; empty: it has none"""
        self.parameters: list[Parameter] = []
        """those that a submit gives"""
        for parameter in parameters[1:]:
            if hints.get(parameter.name) is LeaderRun:
                self._take_run(parameter)
            else:
                self.parameters.append(self._given(parameter, hints))
        self.hints = {p.name: hints[p.name] for p in self.parameters if p.name in hints}
        self.returns: Any = hints.get("return", Any)

    def _check_first(self, parameters: list[Parameter], hints: dict[str, Any]) -> None:
        wanted, annotations, written = (
            ("node", (Node,), "node: Node")
            if self.which == LOCAL
            else ("results", _RESULTS, "results: list[NodeResult]")
        )
        rule = f"its first parameter must be `{written}`: def {self.which}(self, {written}, ...)"
        if not parameters or parameters[0].name != wanted or parameters[0].kind not in _BY_NAME:
            raise InvalidInput(f"{self.field}.{wanted}", rule)
        if hints.get(wanted) not in annotations:
            raise InvalidInput(f"{self.field}.{wanted}", f"is not annotated so; {rule}")

    def _take_run(self, parameter: Parameter) -> None:
        if self.which != LEADER:
            raise InvalidInput(
                f"{self.field}.{parameter.name}", "only `leader` can take a LeaderRun; `node` has the id and the token"
            )
        if self.run_parameter:
            raise InvalidInput(f"{self.field}.{parameter.name}", f"`{self.run_parameter}` is the LeaderRun already")
        self.run_parameter = parameter.name

    def _given(self, parameter: Parameter, hints: dict[str, Any]) -> Parameter:
        if parameter.kind not in _BY_NAME:
            raise InvalidInput(f"{self.field}.{parameter.name}", "arguments are passed by name; name the parameters")
        if hints.get(parameter.name) in (Node, *_RESULTS):
            raise InvalidInput(f"{self.field}.{parameter.name}", "only the first parameter can have this type")
        return parameter.replace(annotation=hints.get(parameter.name, Parameter.empty))


class NodeMethods:
    """The methods of the class of a node job, and the arguments that both take."""

    def __init__(self, owner: type, name: str) -> None:
        self.owner = owner
        _check_constructor(owner, name)
        self.local = NodeMethod(owner, LOCAL, name) if hasattr(owner, LOCAL) else None
        self.leader = NodeMethod(owner, LEADER, name) if hasattr(owner, LEADER) else None
        methods = [method for method in (self.local, self.leader) if method is not None]
        if not methods:
            rule = "it has neither of the methods `local` and `leader`; write at least one of them"
            raise InvalidInput(name, f"{rule}: def local(self, node: Node, ...)")
        if self.local is not None and self.leader is not None:
            _check_same(self.local, self.leader)
        self.signature = Signature(_stub_of(methods[0]), name)

    @property
    def result_type(self) -> Any:
        """The declared type of the leader's result; Any without one."""
        return Any if self.leader is None else self.leader.returns


def _checked(owner: type, which: str, field: str) -> Callable[..., Any]:
    found = inspect.getattr_static(owner, which)
    if not inspect.isfunction(found):
        raise InvalidInput(field, f"must be a method: def {which}(self, ...)")
    if inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
        raise InvalidInput(field, "it yields, but it must return once; return a list")
    if not inspect.signature(found).parameters:
        raise InvalidInput(field, f"must take `self`: def {which}(self, ...)")
    return found


def _check_constructor(owner: type, name: str) -> None:
    """A worker makes an object of the class for every run, without arguments."""
    try:
        parameters = inspect.signature(owner).parameters.values()
    except (TypeError, ValueError):
        return  # the constructor of a built-in base: a run shows whether it works
    needed = [
        p.name
        for p in parameters
        if p.default is Parameter.empty and p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    if needed:
        rule = "an object of it is made for every run, without arguments; give them defaults, or pass them to a submit"
        raise InvalidInput(f"{name}.{needed[0]}", f"is needed to make an object of the class, but {rule}")


def _check_same(local: NodeMethod, leader: NodeMethod) -> None:
    """Both methods get the arguments of the submit."""
    ours, theirs = ({p.name: p for p in each.parameters} for each in (local, leader))
    for name in dict.fromkeys([*ours, *theirs]):
        if name not in theirs or name not in ours:
            has, lacks = (LOCAL, leader) if name in ours else (LEADER, local)
            raise InvalidInput(f"{lacks.field}.{name}", f"`{has}` takes it, so it must be a parameter of both")
        if ours[name].annotation != theirs[name].annotation:
            raise InvalidInput(f"{leader.field}.{name}", "has another type than in `local`; both get the same value")
        if not _same_default(ours[name].default, theirs[name].default):
            raise InvalidInput(f"{leader.field}.{name}", "has another default than in `local`; both get the same value")


def _same_default(one: Any, other: Any) -> bool:
    return one is other or (Parameter.empty not in (one, other) and bool(one == other))


def _stub_of(method: NodeMethod) -> Callable[..., dict[str, Any]]:
    """A function with the parameters that a submit gives; a call returns the arguments by name."""

    def stub(**arguments: Any) -> dict[str, Any]:
        return arguments

    stub.__annotations__ = dict(method.hints)
    # `inspect.signature` reads this attribute; the type of a function does not declare it
    stub.__signature__ = inspect.Signature(method.parameters)  # type: ignore[attr-defined]
    return stub


def _hints(function: Callable[..., Any], field: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        rule = f"the name {error.name!r} in its annotations is unknown when the job is declared; import it at the top"
        raise InvalidInput(field, f"{rule} of the module, and not only for type checkers") from None
    except (AttributeError, SyntaxError, TypeError) as error:
        raise InvalidInput(field, f"its annotations cannot be read: {error}") from None
