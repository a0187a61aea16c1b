"""`Workflow`: the base class that describes what virtual users do."""

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
    from .stats.grammar import Threshold

#: names that steps cannot have: a virtual user has them already
_TAKEN = frozenset({"client", "context", "vu", "params", "count", "gauge", "rate_of", "trend"})


class Workflow:
    """The steps that a virtual user repeats. Subclass it; each user is an object of the class, with its own
    connections, cookies, row of data and context. Attributes that a method sets on `self` belong to that user.

    A submission can override the values below: `mainstay load run shop.py --vus 500 --duration 1m`.
    """

    # how much ---------------------------------------------------------------------------------------
    vus: ClassVar[int] = 1
    """virtual users"""
    duration: ClassVar[str] = "10s"
    iterations: ClassVar[int | None] = None
    """end after this many, over all users; `duration` is then the time limit (none unless set)"""
    stages: ClassVar[Sequence[tuple[str, int | str]] | None] = None
    """ramps: [("30s", 100), ("1m", 500)] goes to 100 users within 30 s, then to 500 within a minute. Rates ("2000/s")
    instead of numbers ramp an open model"""
    rate: ClassVar[str | None] = None
    """open model: iterations start at this rate, "2000/s" or "90/m", however long they take"""
    arrivals: ClassVar[str] = "constant"
    """or "poisson": random arrivals, `rate` on average"""
    max_in_flight: ClassVar[int | None] = None
    """open model: the most iterations under way; by default the arrivals of 10 seconds, at most 10,000"""
    catch_up: ClassVar[bool] = True
    """open model: a late iteration starts as soon as it can, and its delay is part of its response time; False: it is
    dropped and counted"""
    think: ClassVar[str | None] = None
    """pause after each iteration: "1s", or "1s-3s" for a random one"""
    pacing: ClassVar[str | None] = None
    """time between the starts of two iterations of a user, unless they take longer"""
    weight: ClassVar[float | None] = None
    """share of the users (or of the rate) when several workflows with weights run together; above 0"""

    # on what ----------------------------------------------------------------------------------------
    base_url: ClassVar[str] = ""
    """prefix of URLs that begin with /"""
    data: ClassVar[Feed | Iterable[Any] | None] = None
    """rows for `self.vu.data`: `Feed.csv("users.csv")`, or any iterable"""
    thresholds: ClassVar[Sequence[str | Threshold]] = ()
    tags: ClassVar[Mapping[str, str]] = {}
    """of all its steps; reports and thresholds can select by them"""
    new_session: ClassVar[bool] = False
    """each iteration is a new visitor, without the connections and cookies of the one before"""
    timeout: ClassVar[str | None] = None
    """of a whole call; 60 s unless set"""
    drain: ClassVar[str] = "30s"
    """how long iterations under way may take when the test ends"""

    __depends__: ClassVar[tuple[str, ...]] = ()
    __marks__: ClassVar[Mapping[str, MethodMark]] = {}
    __graph__: ClassVar[Graph] = Graph({})

    # what a virtual user has ------------------------------------------------------------------------
    client: Clients
    """by protocol: `self.client.http.get(...)`"""
    vu: User
    """the user itself: `self.vu.id`, its row of data, its iteration"""
    context: dict[str, Any]
    """results of earlier steps by name, and the values of setups and states; new for each iteration"""
    params: Mapping[str, str]
    """values of `--set name=value`"""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # not inherited: the dependencies of a base class are its own
        cls.__depends__ = ()
        marks: dict[str, MethodMark] = {}
        for owner in reversed(cls.__mro__):
            for name, value in vars(owner).items():
                if hasattr(value, MARK):
                    marks[name] = mark_of(value)
                elif name in marks:
                    raise InvalidInput(
                        cls.__qualname__,
                        f"{name} overrides a {marks[name].role} of a base class without its decorator; "
                        f"write @{marks[name].role} above it, or give it another name",
                    )
        for name in marks:
            if name in _TAKEN or hasattr(Workflow, name):
                raise InvalidInput(cls.__qualname__, f"{name} is a reserved name of workflows; rename the step")
        steps = {name: mark.names for name, mark in marks.items() if mark.role == "step"}
        cls.__marks__ = marks
        cls.__graph__ = graph_of(steps, field=cls.__qualname__, what="step")

    # metrics of its own -----------------------------------------------------------------------------

    def count(self, name: str, n: float = 1, *, tags: Mapping[str, str] | None = None) -> None:
        """Add to a counter."""
        self.vu.metrics.add(name, "counter", n, tags)

    def gauge(self, name: str, value: float, *, tags: Mapping[str, str] | None = None) -> None:
        """Set the current value of a gauge."""
        self.vu.metrics.add(name, "gauge", value, tags)

    def rate_of(self, name: str, hit: object, *, tags: Mapping[str, str] | None = None) -> None:
        """Add a hit or a miss to a rate: the metric is the share of hits."""
        self.vu.metrics.add(name, "rate", bool(hit), tags)

    def trend(self, name: str, value: float, *, tags: Mapping[str, str] | None = None) -> None:
        """Add a value to a distribution."""
        self.vu.metrics.add(name, "trend", value, tags)


#: similarity; a lower one would take `date` for `rate`
_SIMILAR = 0.8
#: names of our options in other load tools
_OTHER_NAMES = {
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
    """Attributes whose name resembles an option, with that option: likely typing errors.

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
        if name.lower() in _OTHER_NAMES:
            yield name, _OTHER_NAMES[name.lower()]
            continue
        for option in difflib.get_close_matches(name.lower(), options, n=1, cutoff=_SIMILAR):
            yield name, option


def slips_of(workflows: Mapping[str, type[Workflow]]) -> list[str]:
    """Warnings about such attributes of several classes."""
    return [
        f"{name}.{given} is not an option of a workflow and changes nothing; did you mean {option}?"
        for name, workflow in workflows.items()
        for given, option in nearly_options(workflow)
    ]
