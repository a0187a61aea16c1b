"""Batches of an app: what is declared, and what submits and looks after them."""

from __future__ import annotations

from typing import Any

from ..control import Control, Duty
from ..errors import InvalidInput
from ..task import AppClient
from ..task.task_name import place_of
from ..worker import Declarations, Host
from .handle import BatchRun
from .handlers import works_of
from .locations import Places
from .outside_job import Outsides
from .recheck import recheck_duty
from .runners import Runners
from .service import Desk
from .study import Batch
from .submission import submit_batch


class Batches(Declarations):
    """The batches that are declared on an app."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        client: AppClient = host.client
        outputs: str | None = host.options.get("outputs")
        self._client = client
        self._outputs = outputs
        self.places = Places(client.clock, own=outputs)
        self.outsides = Outsides(Runners(host.options.get("runners")), client.url, host.target)
        self.studies: dict[str, Batch] = {}

    def declare(self, function: Any, options: Any) -> Batch:
        if isinstance(function, Batch):
            raise InvalidInput(function.name, "is a batch already; put options into the @app.batch that made it")
        made = Batch(self._client, function, **options)
        if (other := self.studies.get(made.name)) is not None:
            raise InvalidInput(
                made.name,
                f"is the name of another batch (at {place_of(other.unit.function)}); give one of them another: "
                '@app.batch(name="...")',
            )
        self.studies[made.name] = made
        self.handlers.update(works_of(made, self.places, self.outsides))
        return made

    @property
    def queues(self) -> set[str]:
        return {study.queue for study in self.studies.values()}

    def declares(self, name: str) -> bool:
        return name in self.studies

    async def close(self) -> None:
        """Let go of the stores of outputs."""
        await self.places.close()

    def desk(self, control: Control) -> Desk:
        """What people do to batches, on an open store."""
        return Desk(control, sealer=self._client.sealer, places=self.places)

    def duties(self, control: Control) -> list[Duty]:
        every_s = self._client.settings.recheck_s
        return [] if every_s is None else [recheck_duty(self.desk(control), every_s)]

    def run(self, job_id: str) -> BatchRun:
        """One that was submitted, by its id."""
        return BatchRun(self._client, job_id, desk=self._opened)

    async def submit(self, study: Batch, *, outputs: str | None, runner: str, **given: Any) -> BatchRun:
        if not isinstance(study, Batch) or self.studies.get(study.name) is not study:
            raise InvalidInput("study", f"{study!r} is not a batch of this app; declare it with @app.batch")
        self.outsides.runners.check(runner)
        desk = self.desk(await self._client.open())
        made = await submit_batch(study, desk, outputs=outputs or self._outputs, runner=runner, **given)
        return BatchRun(self._client, made.id, created=made.created, desk=self._opened)

    def _opened(self) -> Desk:
        control = self._client.connection.control
        assert control is not None, "its callers open the store first"
        return self.desk(control)
