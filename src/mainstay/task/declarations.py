"""The tasks that are declared on an app."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..control.schedules import ScheduledJob
from ..errors import InvalidInput
from ..worker import Declarations, Host
from .call import Call
from .client import AppClient
from .options import TaskOptions
from .task import AsyncTask, PlainTask, Task
from .task_name import is_async, place_of


class Tasks(Declarations):
    """The tasks that are declared on an app."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._client: AppClient = host.client
        self.tasks: dict[str, Task[..., Any]] = {}

    def declare(self, function: Any, options: TaskOptions) -> Task[..., Any]:
        if isinstance(function, Task):
            raise InvalidInput(function.name, "is a task already; put options into the @app.task that made it")
        kind = AsyncTask if callable(function) and is_async(function) else PlainTask
        task: Task[..., Any] = kind(self._client, function, **options)
        if (other := self.tasks.get(task.name)) is not None:
            raise InvalidInput(
                task.name,
                f"is the name of another task (at {place_of(other.function)}); give one of them another name: "
                '@app.task(name="...")',
            )
        self.tasks[task.name] = self.handlers[task.name] = task
        return task

    @property
    def queues(self) -> set[str]:
        return {task.queue for task in self.tasks.values()}

    def defaults(self, name: str) -> Mapping[str, Any]:
        return self.tasks[name].plain_defaults

    def arguments(self, name: str, payload: bytes) -> dict[str, Any]:
        return self.tasks[name].arguments(payload)

    def scheduled(self, what: object) -> ScheduledJob | None:
        if isinstance(what, Task):
            if what.required:
                needs, short = ", ".join(what.required), what.name.rpartition(".")[2]
                raise InvalidInput("schedule", f"{what.name} needs {needs}; write app.schedule(...)({short}.job(...))")
            what = what.job()
        if not isinstance(what, Call):
            return None
        # on_clash of a task is about submits; a tick submits nothing while a unique job is unsettled
        options = {option: value for option, value in what.written.items() if option != "on_clash"}
        return ScheduledJob(name=what.name, payload=bytes(what.payload), options=options)


__all__ = ["Tasks"]
