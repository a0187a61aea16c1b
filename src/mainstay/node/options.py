"""The options of a node job as users write them, and what is made of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ..clock import seconds
from ..control import Decide, OptionReader, Plan
from ..errors import InvalidInput, UnknownOption
from ..task import SubmitOptions, merge_options
from .spec import KIND, NodePolicy, OnNoQuorum, Quorum, Require

#: 1 to 64 characters: keys and values of labels
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}")


class PolicyOptions(TypedDict, total=False):
    """The options of a node job about its nodes, which a submit can override."""

    quorum: Quorum
    quorum_wait: Any
    on_no_quorum: OnNoQuorum
    require: Require
    stragglers: Any
    late_nodes: bool
    labels: Mapping[str, str] | None
    deadline: Any


class NodeSubmitOptions(SubmitOptions, PolicyOptions, total=False):
    """The options of one submit of a node job: `Compact.options(delay="5m").submit(...)`."""


class NodeJobOptions(NodeSubmitOptions, total=False):
    """The options of `@app.node_job`. Those of a task apply to the unit of each node, and to the leader phase."""

    name: str
    process: bool
    policy: Decide | None


_OF_POLICY = frozenset(PolicyOptions.__annotations__) - {"deadline"}
_OF_UNITS = frozenset(
    {
        "retries", "backoff", "backoff_base", "backoff_cap", "jitter", "crash_budget", "timeout", "stall_timeout",
        "on_stall", "grace",
    }
)  # fmt: skip
_OF_CLASS = frozenset({"name", "process", "policy"})
#: options of a submit that make no sense for a declaration
_OF_SUBMIT = frozenset(
    {"delay", "run_at", "key", "key_ttl", "after", "after_when", "after_failed", "durability", "queue_deadline"}
)
_NOT_HERE = {
    "queue": "the placement leader assigns node jobs, so they have no queue",
    "concurrency_key": "a node job runs on every node at once",
}


class NodeOptions:
    """Options of a declaration, or of a declaration and a submit, by what they belong to."""

    def __init__(self, given: Mapping[str, Any], *, base: NodeOptions | None = None, declared: bool = False) -> None:
        _check_names(given, declared=declared)
        of_policy = {name: value for name, value in given.items() if name in _OF_POLICY}
        deadline = given.get("deadline")
        own = (*_OF_POLICY, *_OF_CLASS, "deadline")
        rest = {name: value for name, value in given.items() if name not in own}
        self.policy: dict[str, Any] = {**(base.policy if base else {}), **of_policy}
        self.deadline: Any = _checked_deadline(deadline) or (base.deadline if base else None)
        self.rest: dict[str, Any] = merge_options(base.rest if base else {}, rest)

    def read_policy(self, *, has_local: bool, has_leader: bool) -> NodePolicy:
        """The policy; raises `InvalidInput` with the option."""
        if not has_local and self.policy:
            raise InvalidInput(next(iter(self.policy)), "has no effect without a method `local`")
        return NodePolicy(has_local=has_local, has_leader=has_leader, **_checked_policy(self.policy))

    def read_units(self, reader: OptionReader) -> Plan:
        """The options of each unit."""
        return reader.read({name: value for name, value in self.rest.items() if name in (*_OF_UNITS, "priority")})

    def of_job(self) -> dict[str, Any]:
        """The options of the job itself, as control takes them: retries and timeouts belong to its units."""
        mine = {name: value for name, value in self.rest.items() if name not in _OF_UNITS or name == "grace"}
        limits = {"retries": 0, "timeout": "off" if self.deadline is None else self.deadline, "stall_timeout": "off"}
        return {**limits, **mine, "kind": KIND}


def _check_names(given: Mapping[str, Any], *, declared: bool) -> None:
    known = NodeJobOptions.__annotations__ if declared else NodeSubmitOptions.__annotations__
    for name in given:
        if name in _NOT_HERE:
            raise InvalidInput(name, f"{_NOT_HERE[name]}; leave it out")
        if declared and name in _OF_SUBMIT:
            raise InvalidInput(name, f"belongs to one submit; write Job.options({name}=...).submit(...)")
        if not declared and name in _OF_CLASS:
            raise InvalidInput(name, f"belongs to the job, not to one submit; write @app.node_job({name}=...)")
        if name not in known:
            raise UnknownOption(name, known)


def _checked_policy(given: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name == "quorum":
            checked[name] = _quorum(value)
        elif name in ("quorum_wait", "stragglers"):
            checked[f"{name}_s"] = seconds(value, field=name)
        elif name == "on_no_quorum":
            checked[name] = _one_of(name, value, "proceed", "wait", "fail")
        elif name == "require":
            checked[name] = _one_of(name, value, "quorum", "all")
        elif name == "late_nodes":
            if not isinstance(value, bool):
                raise InvalidInput(name, f"{value!r} is neither True nor False")
            checked[name] = value
        else:
            checked[name] = check_labels(value)
    return checked


def _checked_deadline(value: Any) -> Any:
    if value is not None and value != "off" and seconds(value, field="deadline") <= 0:
        raise InvalidInput("deadline", f"{value!r} must be longer than zero; write 'off' for no limit")
    return value


def _quorum(value: Any) -> Quorum:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise InvalidInput("quorum", f"{value} is not a number of nodes; it must be at least 1")
        return value
    named: Literal["majority", "all"] | None = value if value in ("majority", "all") else None
    if named is None:
        raise InvalidInput("quorum", f"{value!r} is not one of majority, all, or a number of nodes")
    return named


def _one_of(name: str, value: Any, *choices: str) -> str:
    if value not in choices:
        raise InvalidInput(name, f"{value!r} is not one of {', '.join(choices)}")
    return str(value)


def check_labels(labels: Any) -> dict[str, str]:
    """Check the labels that select nodes."""
    if not isinstance(labels, Mapping):
        raise InvalidInput("labels", f'{labels!r} is not a mapping of text to text; write {{"zone": "a"}}')
    for name, value in labels.items():
        for text, field in ((name, "labels"), (value, f"labels.{name}")):
            if not isinstance(text, str) or not _LABEL.fullmatch(text):
                raise InvalidInput(field, f"{text!r} is not 1 to 64 of letters, digits, '.', '_' and '-'")
    return dict(labels)
