"""Options as users write them: for a task, and for one submit.

They are typed dictionaries, so that editors complete them and type checkers refuse unknown ones. docs/control.md says
what they mean; control reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ..clock import exact_duration
from ..control import Decide
from ..errors import InvalidInput, UnknownOption
from ..stores import Durability
from .retry_rules import Errors

if TYPE_CHECKING:
    from .handle import Handle

#: "30s", "1h30m" or a timedelta
Duration = str | timedelta


class CommonOptions(TypedDict, total=False):
    """Options of a task that a submit can override."""

    queue: str | None
    priority: int | None
    retries: int | None
    backoff: Literal["exponential", "linear", "fixed"] | None
    backoff_base: Duration | None
    backoff_cap: Duration | None
    jitter: bool | None
    crash_budget: int | None
    timeout: Duration
    queue_deadline: Duration | datetime | None
    stall_timeout: Duration
    on_stall: Literal["retry", "hold"] | None
    grace: Duration | None
    unique: str | Literal[True] | None
    on_clash: Literal["return", "refuse", "replace"] | None
    concurrency_key: str | None
    tags: Sequence[str] | AbstractSet[str] | None
    metadata: Mapping[str, str] | None
    keep: Duration | None


class SubmitOptions(CommonOptions, total=False):
    """Options of one submit: `task.options(delay="5m").submit(...)`."""

    delay: Duration | None
    run_at: datetime | None
    key: str | None
    key_ttl: Duration | None
    after: Sequence[str | Handle[Any]] | None
    after_when: Literal["succeeded", "settled"] | None
    after_failed: Literal["skip", "fail"] | None
    durability: Durability | None


class TaskOptions(CommonOptions, total=False):
    """Options of a task: `@app.task(retries=5)`."""

    name: str | None
    process: bool
    retry_on: Errors | None
    give_up_on: Errors | None
    policy: Decide | None


_OF_A_SUBMIT = frozenset(SubmitOptions.__annotations__) - frozenset(CommonOptions.__annotations__)
_OF_A_TASK = frozenset(TaskOptions.__annotations__) - frozenset(CommonOptions.__annotations__)
#: options where None could also mean "no limit"; the reader of options refuses it
_SAY_OFF = frozenset({"timeout", "stall_timeout"})


def check_task_options(given: Mapping[str, Any]) -> None:
    """Refuse options that a task cannot have."""
    for name in given:
        if name in _OF_A_SUBMIT:
            raise InvalidInput(
                name, f"belongs to one submit, not to the task; write task.options({name}=...).submit(...)"
            )
        if name not in TaskOptions.__annotations__:
            raise UnknownOption(name, TaskOptions.__annotations__)


def merge_options(task: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a task, overridden by those of a submit; tags and metadata are added."""
    merged_options = dict(task)
    for name, value in given.items():
        if name in _OF_A_TASK:
            raise InvalidInput(name, f"belongs to the task, not to one submit; write @app.task({name}=...)")
        if name not in SubmitOptions.__annotations__:
            raise UnknownOption(name, SubmitOptions.__annotations__)
        if value is None and name not in _SAY_OFF:
            continue
        if name == "tags" and "tags" in merged_options and isinstance(value, list | tuple | set | frozenset):
            merged_options[name] = [*merged_options[name], *value]
        elif name == "metadata" and "metadata" in merged_options and isinstance(value, Mapping):
            merged_options[name] = {**merged_options[name], **value}
        elif name == "after":
            merged_options[name] = _ids(value)
        else:
            merged_options[name] = value
    return merged_options


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a task as plain data, in the form that the HTTP API takes.

    >>> plain({"timeout": timedelta(days=1, hours=2, minutes=3), "tags": {"b", "a"}, "retries": 2})
    {'timeout': '1d2h3m', 'tags': ['a', 'b'], 'retries': 2}
    """
    merged_options: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, timedelta):
            merged_options[name] = exact_duration(value)
        elif isinstance(value, datetime):
            merged_options[name] = value.isoformat()
        elif isinstance(value, AbstractSet):
            merged_options[name] = sorted(value)
        elif isinstance(value, Mapping):
            merged_options[name] = dict(value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            merged_options[name] = list(value)
        else:
            merged_options[name] = value
    return merged_options


def _ids(after: Any) -> Any:
    if isinstance(after, list | tuple):
        return [getattr(each, "id", each) for each in after]
    if isinstance(getattr(after, "id", None), str):
        raise InvalidInput("after", f"{after!r} is one job; write after=[...]")
    return after
