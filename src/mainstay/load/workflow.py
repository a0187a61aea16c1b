"""Workflow: what virtual users do, as a class."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import InvalidInput
from .graph import Graph, graph_of
from .hooks import MARK, MethodMark, mark_of

if TYPE_CHECKING:
    from .clients.all import Clients
    from .engine.user import User
    from .feeders import Feed
    from .stats.thresholds import Threshold

#: names that steps cannot have: a virtual user has them already
_TAKEN = frozenset({"client", "context", "vu", "params", "count", "gauge", "rate_of", "trend"})


class Workflow:
    """What a virtual user does, again and again. Subclass it; each user is an object of the class, with its own
    connections, cookies, row of data and context. What a method keeps on `self` stays with that user.

    Everything below can be overridden when a test is submitted: `mainstay load run shop.py --vus 500 --duration 1m`.
    """

    # how much ---------------------------------------------------------------------------------------
    vus: ClassVar[int] = 1
    """virtual users; with `rate`, those that are there at the start"""
    duration: ClassVar[str] = "10s"
    iterations: ClassVar[int | None] = None
    """end after so many, over all users; `duration` is then the longest that it may take (no limit unless set)"""
    stages: ClassVar[Sequence[tuple[str, int | str]] | None] = None
    """ramps: [("30s", 100), ("1m", 500)] goes to 100 users within 30 s, then to 500 within a minute. With rates instead
    of numbers ("2000/s"), an open model that ramps"""
    rate: ClassVar[str | None] = None
    """open model: iterations start at this rate, "2000/s" or "90/m", however long they take"""
    arrivals: ClassVar[str] = "constant"
    """or "poisson": at random, `rate` on average"""
    max_in_flight: ClassVar[int | None] = None
    """open model: iterations under way at most; by default 10 seconds' worth, and no more than 10,000"""
    catch_up: ClassVar[bool] = True
    """open model: what could not start in time starts as soon as it can, and its wait is part of its response time;
    False: it is dropped and counted"""
    think: ClassVar[str | None] = None
    """a pause after each iteration: "1s", or "1s-3s" for a random one"""
    pacing: ClassVar[str | None] = None
    """iterations of a user start this far apart, if they do not take longer"""
    weight: ClassVar[float | None] = None
    """share of the users (or of the rate) when several workflows with weights run together; above 0"""

    # on what ----------------------------------------------------------------------------------------
    base_url: ClassVar[str] = ""
    """what URLs that begin with / are joined to"""
    data: ClassVar[Feed | Iterable[Any] | None] = None
    """rows for `self.vu.data`: `Feed.csv("users.csv")`, or any iterable"""
    thresholds: ClassVar[Sequence[str | Threshold]] = ()
    tags: ClassVar[Mapping[str, str]] = {}
    """of all its steps; reports and thresholds can be cut by them"""
    new_session: ClassVar[bool] = False
    """each iteration is a new visitor: connections and cookies are not kept from one to the next"""
    timeout: ClassVar[str | None] = None
    """for a whole call; 60 s unless set"""
    drain: ClassVar[str] = "30s"
    """how long iterations under way may take to finish when the test ends"""

    __depends__: ClassVar[tuple[str, ...]] = ()
    __marks__: ClassVar[Mapping[str, MethodMark]] = {}
    __graph__: ClassVar[Graph] = Graph({})

    # what a virtual user has ------------------------------------------------------------------------
    client: Clients
    """by protocol: `self.client.http.get(...)`"""
    vu: User
    """who it is: `self.vu.id`, its row of data, its iteration"""
    context: dict[str, Any]
    """results of earlier steps by name, and what was set up or provided; new for each iteration"""
    params: Mapping[str, str]
    """what `--set name=value` gave"""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # a class that depends on others says so itself; what its base depends on is the base's business
        cls.__depends__ = ()
        marks: dict[str, MethodMark] = {}
        for owner in reversed(cls.__mro__):
            for name, value in vars(owner).items():
                if hasattr(value, MARK):
                    marks[name] = mark_of(value)
                elif name in marks:
                    raise InvalidInput(
                        cls.__qualname__,
                        f"{name} is a {marks[name].role} of a base class, and something else here; "
                        f"mark it with @{marks[name].role}, or give it another name",
                    )
        for name in marks:
            if name in _TAKEN or hasattr(Workflow, name):
                raise InvalidInput(cls.__qualname__, f"{name} cannot be the name of a step; a workflow has it already")
        steps = {name: mark.names for name, mark in marks.items() if mark.role == "step"}
        cls.__marks__ = marks
        cls.__graph__ = graph_of(steps, field=cls.__qualname__, what="step")

    # metrics of its own -----------------------------------------------------------------------------

    def count(self, name: str, n: float = 1, *, tags: Mapping[str, str] | None = None) -> None:
        """Add to a counter."""
        self.vu.metrics.add(name, "counter", n, tags)

    def gauge(self, name: str, value: float, *, tags: Mapping[str, str] | None = None) -> None:
        """Say how much it is now."""
        self.vu.metrics.add(name, "gauge", value, tags)

    def rate_of(self, name: str, hit: object, *, tags: Mapping[str, str] | None = None) -> None:
        """Count whether it was so: the metric is the part that was."""
        self.vu.metrics.add(name, "rate", bool(hit), tags)

    def trend(self, name: str, value: float, *, tags: Mapping[str, str] | None = None) -> None:
        """Add a value to a distribution."""
        self.vu.metrics.add(name, "trend", value, tags)


#: how alike; less than elsewhere would doubt a `date`, because there is a `rate`
_NEARLY = 0.8
#: how other load tools call an option
_OTHERWISE_CALLED = {
    "users": "vus",
    "virtual_users": "vus",
    "user_count": "vus",
    "concurrency": "vus",
    "run_time": "duration",
    "think_time": "think",
    "wait_time": "think",
    "ramp": "stages",
    "rps": "rate",
    "arrival_rate": "rate",
}


def nearly_options(workflow: type[Workflow]) -> Iterator[tuple[str, str]]:
    """Values of a class that have nearly the name of an option, and that option: a slip, or the user's own.

    >>> class Shop(Workflow):
    ...     vuss = 4
    ...     article = "pen"
    >>> list(nearly_options(Shop))
    [('vuss', 'vus')]
    """
    options = [name for name, value in vars(Workflow).items() if not name.startswith("_") and not callable(value)]
    own = {name: value for owner in workflow.__mro__ if owner is not Workflow for name, value in vars(owner).items()}
    for name, value in own.items():
        if name in options or name.startswith("_") or callable(value) or hasattr(value, "__get__"):
            continue
        if name.lower() in _OTHERWISE_CALLED:
            yield name, _OTHERWISE_CALLED[name.lower()]
            continue
        for option in difflib.get_close_matches(name.lower(), options, n=1, cutoff=_NEARLY):
            yield name, option


def slips_of(workflows: Mapping[str, type[Workflow]]) -> list[str]:
    """The same of several classes, in words."""
    return [
        f"{name}.{given} is not an option of a workflow and changes nothing; did you mean {option}?"
        for name, workflow in workflows.items()
        for given, option in nearly_options(workflow)
    ]
