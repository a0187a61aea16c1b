"""Submit a node job with `mainstay submit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...control import Control, JobRequest
from ...model import Job
from ...task.cli import TypedArguments
from ...worker import AppBase
from ..declarations import NodeJobs
from ..node_job import check_nodes, is_for_later


class NodeJobMaker:
    """A node job of an app. The arguments are those of its methods."""

    validated = True

    def __init__(self, app: AppBase, name: str, options: Mapping[str, Any]) -> None:
        declared: NodeJobs = app.part("node")
        self._job = declared.jobs[name]
        self._options = options
        self._submits = self._job.options(**options)

    def request(self, given: TypedArguments, *, key: str | None = None) -> JobRequest:
        """The request, after the hooks of the app."""
        submits = self._submits if key is None else self._job.options(**{**self._options, "key": key})
        return submits.job(**given.typed(self._job.signature)).request()

    async def check(self, request: JobRequest, control: Control) -> None:
        """Refuse labels that no active node has, and a quorum above the number of active nodes."""
        if not is_for_later(request):
            await check_nodes(control, self._submits.policy)

    async def result(self, job: Job) -> Any:
        """Its result, with the value of the leader phase in its declared type."""
        return msgspec.to_builtins(await self._job.handle(job.id).result(), enc_hook=str)
