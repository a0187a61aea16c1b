"""The parts of an app: one for each kind of job, made when the app first uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..control.schedules import ScheduledJob
from ..errors import InvalidInput
from ..kinds import kind_named, kind_names, own_kind_names, part
from ..worker import Declarations, Host, Work


class KindParts(Mapping[str, Declarations]):
    """The declarations of an app by kind. `parts["survey"]` makes the part of that kind if there is none yet."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._made: dict[str, Declarations] = {}
        for name in own_kind_names():
            self[name]

    def __getitem__(self, name: str) -> Declarations:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self._make(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def handlers(self, kind: str) -> Mapping[str, Work]:
        """What runs the jobs of a kind, by name; empty for a kind that is not declared."""
        found = self._made.get(kind)
        return {} if found is None else found.handlers

    def declaring(self, name: str) -> Declarations | None:
        """The first part that declares jobs of this name."""
        return next((part for part in self._made.values() if part.declares(name)), None)

    def scheduled(self, what: object) -> ScheduledJob:
        """The job that a schedule of this object submits."""
        for each in self._made.values():
            if (found := each.scheduled(what)) is not None:
                return found
        rule = "is not a task or a load test; put @app.schedule(...) above @app.task, or call it with app.load(...)"
        raise InvalidInput("schedule", f"{what!r} {rule}")

    def _make(self, name: str) -> Declarations:
        kind = kind_named(name)
        if kind is None or not kind.declarations:
            raise InvalidInput("kind", f"unknown kind {name!r} (installed: {', '.join(kind_names())})")
        made: Declarations = part(kind.declarations)(self._host)
        return made


__all__ = ["KindParts"]
