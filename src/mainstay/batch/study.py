"""The declaration of a study: a function for many parameter sets and seeds, and its aggregations."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Unpack

import msgspec

from ..control import Decide, check_name
from ..errors import InvalidInput, UnknownOption
from ..outputs import Verify, files_of
from ..task import AppClient, CommonOptions, merge_options, name_of
from ..worker import Mode
from .codes import code_of
from .functions import Function
from .spec import DRIVER, UNIT, row_name

Over = Literal["set", "all"]


class BatchOptions(CommonOptions, total=False):
    """The options of a batch. The options of a task apply to each unit."""

    outputs: Mapping[str, str] | Iterable[str]
    aggregate: Callable[..., Any] | Aggregate | None
    overall: Callable[..., Any] | Aggregate | None
    name: str | None
    version: str | None
    failure_budget: float | None
    verify: Verify
    process: bool | None
    policy: Decide | None


class Aggregate(msgspec.Struct, frozen=True):
    """An aggregation that writes its own files. A plain function is enough if it returns its result, which is stored as
    JSON in a file with the function's name."""

    function: Callable[..., Any]
    outputs: Mapping[str, str] | Iterable[str] | None = None
    version: str | None = None


class Aggregation:
    """A function over the results of the units of each set, or over everything."""

    def __init__(self, given: Callable[..., Any] | Aggregate, over: Over, *, study: str) -> None:
        declared = given if isinstance(given, Aggregate) else Aggregate(given)
        function = declared.function
        self.over = over
        self.name = check_name(getattr(function, "__name__", "") or "aggregate")
        if self.name in (DRIVER, UNIT):
            raise InvalidInput(self.name, "is a reserved name; rename the function")
        title = check_name(row_name(study, self.name))
        offered = ("params", "runs", "out") if over == "set" else ("sets", "out")
        self.function = Function(function, title, offered=offered)
        self.returns_data = declared.outputs is None
        """its return value is its output"""
        self.outputs = files_of([f"{self.name}.json"] if declared.outputs is None else declared.outputs)
        if self.returns_data and "out" in self.function.takes:
            raise InvalidInput(
                title, 'it takes `out`, so declare its outputs: aggregate=Aggregate(function, outputs={"name": "file"})'
            )
        self.code, self.source = code_of(function, declared.version, name=title)


class Batch:
    """A study: declared by `@app.batch`, submitted by `app.submit_batch`.

    Calling it calls the function itself, as tests do.
    """

    def __init__(self, client: AppClient, function: Callable[..., Any], **given: Unpack[BatchOptions]) -> None:
        for name in given:
            if name not in BatchOptions.__annotations__:
                raise UnknownOption(name, BatchOptions.__annotations__)
            if name in ("unique", "on_clash", "queue_deadline"):
                raise InvalidInput(name, f"belongs to a submit; write app.submit_batch(..., {name}=...)")
        self.name = name_of(function, given.get("name"), kind="batch")
        self.unit = Function(function, self.name, offered=("params", "seed", "out"))
        if "out" not in self.unit.takes:
            raise InvalidInput(self.name, "it must take `out` to write outputs: def f(params, out): ...")
        if not given.get("outputs"):
            raise InvalidInput("outputs", f'{self.name} declares none; write @app.batch(outputs={{"result": "a.npy"}})')
        self.outputs = files_of(given["outputs"])
        check_name(row_name(self.name, DRIVER))
        self.code, self.source = code_of(function, given.get("version"), name=self.name)
        self.failure_budget = check_failure_budget(given.get("failure_budget"))
        self.verify: Verify = given.get("verify") or "content"
        if self.verify not in ("size", "content"):
            raise InvalidInput("verify", f"{self.verify!r} is neither 'size' nor 'content'")
        self._process = given.get("process")
        if not isinstance(self._process, bool | None):
            raise InvalidInput("process", f"{self._process!r} is neither True nor False")
        self.decide = given.get("policy")
        aggregates: tuple[tuple[Any, Over], ...] = ((given.get("aggregate"), "set"), (given.get("overall"), "all"))
        self.aggregations = tuple(Aggregation(one, over, study=self.name) for one, over in aggregates if one)
        if len({one.name for one in self.aggregations}) < len(self.aggregations):
            raise InvalidInput(
                "overall", f"has the same name as `aggregate`: {self.aggregations[0].name}; rename one of them"
            )
        own = set(BatchOptions.__annotations__) - set(CommonOptions.__annotations__)
        self.options = merge_options({}, {name: value for name, value in given.items() if name not in own})
        """of each unit"""
        self.client = client
        self.plan = client.reader.read(self.options)
        functools.update_wrapper(self, function, updated=())

    def mode_of(self, function: Function) -> Mode:
        """Where a worker runs one of its functions. By default in a child process, one unit at a time: code that
        seeds a generator of the whole process (`random.seed`, `numpy.random.seed`), changes the working directory or
        sets an environment variable would affect units in other threads, and no output would show it."""
        if self._process is None:
            return "loop" if function.is_async else "process"
        return "process" if self._process else "loop" if function.is_async else "thread"

    @property
    def sources(self) -> tuple[str, ...]:
        """Digests of the source of the unit's function and of each aggregation; empty: it cannot be read."""
        return self.source, *(one.source for one in self.aggregations)

    @property
    def fingerprint(self) -> str:
        """A digest of all its code, for a batch that is resumed with other code than it was submitted with."""
        parts = [self.code, *self.sources, *(one.code for one in self.aggregations)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]

    @property
    def queue(self) -> str:
        return self.plan.queue

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.unit.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<batch {self.name}>"


def check_failure_budget(budget: float | None) -> float | None:
    """A share of the units: 0.1 is one in ten."""
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 <= budget <= 1:
        raise InvalidInput("failure_budget", f"{budget!r} is not a share from 0 to 1; 0.1 means 10 %")
    return float(budget)
