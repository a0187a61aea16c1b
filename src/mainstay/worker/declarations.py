"""Declarations: the part of an app that belongs to one kind of job, as far as a worker needs it.

A kind names the callable that creates its part of an app (`mainstay.kinds.Kind.declarations`). The part is created on
first use; `App` asks every part for the handlers of jobs, their queues, and the duties of the leader.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ..bus import Admission, Bus
from ..control import Control, Duty
from ..control.schedules import ScheduledJob, ScheduleView
from ..model import Settings
from .program import Work
from .worker_options import WorkerOptions


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The app that a part belongs to, as far as the part may use it."""

    client: Any
    """submits and reads jobs: a `task.AppClient`"""
    options: Mapping[str, Any] = {}
    """arguments of the app that belong to a kind"""
    target: Callable[[], str] = lambda: ""
    """the `module:app` that the app was loaded from; empty if it was created in this process"""


class LeadHost(msgspec.Struct, frozen=True, kw_only=True):
    """The manager that leads jobs, as far as their handlers may use it."""

    control: Control
    bus: Bus
    data_bus: Bus
    """a second connection, for windows and printed lines: a flood of them ends this one only"""
    admission: Admission
    """how loaded it is, and what it sheds"""
    folder: Callable[[], Path]
    """where it may keep recordings"""
    rng: random.Random
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    """what its metrics count of the jobs that it leads: windows_late"""


class AppBase(ABC):
    """An app as the kinds and the commands see it; users make a `mainstay.App`.

    The methods that a kind adds to an app are in a subclass. `App` inherits from those of our own kinds.
    """

    client: Any
    """what jobs are submitted and read through: a `task.AppClient`"""

    @abstractmethod
    def part(self, kind: str) -> Any:
        """What the app declares of a kind."""

    @property
    @abstractmethod
    def store_url(self) -> str: ...

    @property
    @abstractmethod
    def settings(self) -> Settings: ...

    @property
    @abstractmethod
    def queues(self) -> Sequence[str]:
        """The queues of its jobs."""

    @property
    @abstractmethod
    def control(self) -> Control:
        """The rules on its open store."""

    @abstractmethod
    async def describe_schedules(self) -> list[ScheduleView]:
        """The schedules of its store."""

    @abstractmethod
    async def run_schedule(self, name: str, *, actor: str) -> Any:
        """Submit the job of a schedule now; returns its `task.Handle`."""

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Declarations:
    """The part of an app that belongs to one kind. Subclasses fill the handlers and override what they need."""

    worker: WorkerOptions | None = None
    """how the worker runs that this app is loaded in; None: it is not in an engine of a worker"""

    def __init__(self) -> None:
        self.handlers: dict[str, Work] = {}
        """the handlers of jobs that workers claim from their queues, by the name of the job"""
        self.placed_handlers: Mapping[str, Work] = {}
        """the handlers of jobs that are placed on nodes, by the name of the job"""

    @property
    def queues(self) -> Collection[str]:
        """The queues of its jobs: a worker listens on them by default."""
        return ()

    def defaults(self, name: str) -> Mapping[str, Any]:
        """The declared options, for a submit by name."""
        del name
        return {}

    def arguments(self, name: str, payload: bytes) -> dict[str, Any]:
        """The arguments in a stored payload, for hooks that inspect a job; raises `InvalidInput`."""
        del name, payload
        return {}

    def scheduled(self, what: object) -> ScheduledJob | None:
        """The job that a schedule of this object submits; None if the object is not of this kind."""
        del what
        return None

    def sealed_payload(self, payload: bytes, sealer: Any) -> bytes:
        """The payload of a scheduled job as an app with a codec stores it. `sealer` is a `task.Sealer`."""
        sealed: bytes = sealer.seal(payload)
        return sealed

    def opened_payload(self, payload: bytes, sealer: Any) -> bytes:
        """The payload before `sealed_payload`; raises `InvalidInput`."""
        opened: bytes = sealer.open(payload, field="payload")
        return opened

    def declares(self, name: str) -> bool:
        """Whether jobs of this name can be submitted; `handlers` may also have the names of units."""
        return name in self.handlers

    @property
    def submitted_names(self) -> list[str]:
        """The names of the jobs that can be submitted."""
        return [name for name in self.handlers if self.declares(name)]

    def duties(self, control: Control) -> Sequence[Duty]:
        """The duties of the leader for this kind."""
        del control
        return ()

    def placement_duties(self, control: Control, session_id: str) -> Sequence[Duty]:
        """What the holder of the lead `placement` does for this kind. The session is that of the node engine that
        holds it."""
        del control, session_id
        return ()

    async def close(self) -> None:
        """Release resources. The job store is closed before."""


__all__ = ["AppBase", "Declarations", "Host", "LeadHost"]
