"""The parts of an app: one for each kind of job, made when the app first uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..control.schedules import ScheduledJob
from ..errors import InvalidInput, UnknownTask
from ..kinds import kind_named, kind_names, own_kind_names, part as named_part
from ..worker import Declarations, Host, Work, WorkerOptions


class KindParts(Mapping[str, Declarations]):
    """The declarations of an app by kind. `parts["survey"]` makes the part of that kind if there is none yet."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._parts: dict[str, Declarations] = {}
        for name in own_kind_names():
            self[name]

    def __getitem__(self, name: str) -> Declarations:
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = self._make(name)
        return part

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def handler(self, kind: str, name: str) -> Work:
        """The handler of jobs of this kind and name, claimed or placed; raises `UnknownTask`."""
        part = self._parts.get(kind)
        if part is None:
            raise UnknownTask(name, ())
        for handlers in (part.handlers, part.placed_handlers):
            if (handler := handlers.get(name)) is not None:
                return handler
        raise UnknownTask(name, (*part.handlers, *part.placed_handlers))

    def use_worker(self, options: WorkerOptions) -> None:
        """The app is loaded in an engine of a worker that runs so."""
        for part in self._parts.values():
            part.worker = options

    def declaring(self, name: str) -> Declarations | None:
        """The first part that declares jobs of this name."""
        return next((part for part in self._parts.values() if part.declares(name)), None)

    def scheduled(self, what: object) -> ScheduledJob:
        """The job that a schedule of this object submits."""
        for each in self._parts.values():
            if (job := each.scheduled(what)) is not None:
                return job
        rule = "is not a task or a load test; put @app.schedule(...) above @app.task, or call it with app.load(...)"
        raise InvalidInput("schedule", f"{what!r} {rule}")

    def _make(self, name: str) -> Declarations:
        kind = kind_named(name)
        if kind is None or not kind.declarations:
            raise InvalidInput("kind", f"unknown kind {name!r} (installed: {', '.join(kind_names())})")
        declarations: Declarations = named_part(kind.declarations)(self._host)
        return declarations


__all__ = ["KindParts"]
