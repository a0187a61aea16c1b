"""The node jobs that are declared on an app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..control import Control, Duty
from ..control.schedules import ScheduledJob
from ..errors import InvalidInput
from ..task import AppClient, Sealer
from ..worker import Declarations, Host, Work
from .handlers import LeaderWork, LocalWork
from .node_job import NodeCall, NodeJob
from .placement_duty import PlacementDuty
from .service import NodeJobService
from .spec import LEADER, LOCAL, NodeSpec, opened_arguments, row_name, stored_arguments


class NodeJobs(Declarations):
    """The node jobs that are declared on an app."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.placed_handlers: dict[str, Work] = {}
        self._client: AppClient = host.client
        self.jobs: dict[str, NodeJob] = {}

    def declare(self, owner: Any, options: Mapping[str, Any]) -> NodeJob:
        if isinstance(owner, NodeJob):
            raise InvalidInput(owner.name, "is a node job already; put options into the @app.node_job that made it")
        job = NodeJob(self._client, owner, **options)
        if (other := self.jobs.get(job.name)) is not None:
            raise InvalidInput(
                job.name,
                f"is the name of another node job ({other.owner.__module__}.{other.owner.__qualname__}); give one of "
                'them another name: @app.node_job(name="...")',
            )
        self.jobs[job.name] = job
        if job.methods.local is not None:
            self.placed_handlers[row_name(job.name, LOCAL)] = LocalWork(job, job.methods.local, job.local_returns)
        if job.methods.leader is not None:
            self.placed_handlers[row_name(job.name, LEADER)] = LeaderWork(job, job.methods.leader, job.returns.value)
        return job

    def declares(self, name: str) -> bool:
        return name in self.jobs

    @property
    def submitted_names(self) -> list[str]:
        return list(self.jobs)

    def arguments(self, name: str, payload: bytes) -> dict[str, Any]:
        sealer = self._client.sealer
        spec = _decoded(sealer.open(payload, field="payload"))
        return self.jobs[name].signature.given(opened_arguments(spec.arguments, sealer))

    def scheduled(self, what: object) -> ScheduledJob | None:
        if isinstance(what, NodeJob):
            if what.required:
                needs, short = ", ".join(what.required), what.name.rpartition(".")[2]
                raise InvalidInput("schedule", f"{what.name} needs {needs}; write app.schedule(...)({short}.job(...))")
            what = what.job()
        return what.scheduled() if isinstance(what, NodeCall) else None

    def sealed_payload(self, payload: bytes, sealer: Sealer) -> bytes:
        """Only the arguments are sealed, as in a submit: they are copied into the units, and a leader of another
        program, without the codec, can place the job."""
        spec = _decoded(payload)
        arguments = stored_arguments(bytes(spec.arguments), sealer)
        return msgspec.msgpack.encode(msgspec.structs.replace(spec, arguments=arguments))

    def opened_payload(self, payload: bytes, sealer: Sealer) -> bytes:
        spec = _decoded(payload)
        arguments = msgspec.Raw(opened_arguments(spec.arguments, sealer))
        return msgspec.msgpack.encode(msgspec.structs.replace(spec, arguments=arguments))

    def placement_duties(self, control: Control, session_id: str) -> Sequence[Duty]:
        """What the placement leader does for the node jobs of the store, also those of other apps."""
        return PlacementDuty(control, session_id, self._client.sealer).duties()

    def service(self, control: Control) -> NodeJobService:
        """The operations on the node jobs of an open store."""
        return NodeJobService(control, self._client.sealer)


def _decoded(payload: bytes) -> NodeSpec:
    try:
        return msgspec.msgpack.decode(payload, type=NodeSpec)
    except msgspec.DecodeError as error:
        raise InvalidInput("payload", f"is not one of a node job: {error}") from None


__all__ = ["NodeJobs"]
