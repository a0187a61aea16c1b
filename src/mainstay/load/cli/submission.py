"""Submit a run of a load test with `mainstay submit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...control import InsertResult, JobRequest
from ...model import Job
from ...task.cli import TypedArguments
from ..app_methods import LoadMethods


class LoadMaker:
    """A load test of an app. The arguments are the fields of `LoadOptions` that differ from its classes."""

    validated = True

    def __init__(self, app: LoadMethods, name: str, options: Mapping[str, Any]) -> None:
        self._app = app
        self._name = name
        self._options = options

    def request(self, given: TypedArguments, *, key: str | None = None) -> JobRequest:
        """The request, checked by planning the run."""
        from ..plan import LoadOptions  # noqa: PLC0415 - an extra

        options = self._options if key is None else {**self._options, "key": key}
        planned = self._app.loads.plan(self._name, given.struct(LoadOptions, of=self._name))
        return self._app.loads.request(planned, options)

    async def result(self, job: Job) -> Any:
        """The summary without its curves, which are in the reports."""
        summary = await self._app.loads.handle(self._name, InsertResult(job.id, created=True)).result()
        return msgspec.to_builtins(msgspec.structs.replace(summary, points=[]))
