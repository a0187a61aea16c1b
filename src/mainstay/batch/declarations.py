"""The batches of an app: their declarations, and how they are submitted."""

from __future__ import annotations

from typing import Any

from ..control import Control, Duty
from ..errors import InvalidInput
from ..task import AppClient, place_of
from ..worker import Declarations, Host
from .handle import BatchRun
from .handlers import works_of
from .locations import OutputStores
from .outside_job import OutsideLauncher
from .recheck import recheck_duty
from .runners import Runners
from .service import BatchService
from .study import Batch
from .submission import submit_batch


class Batches(Declarations):
    """The batches declared on an app."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        client: AppClient = host.client
        outputs: str | None = host.options.get("outputs")
        self._client = client
        self._outputs = outputs
        self.output_stores = OutputStores(client.clock, own=outputs)
        self.launcher = OutsideLauncher(Runners(host.options.get("runners")), client.url, host.target)
        self.studies: dict[str, Batch] = {}

    def declare(self, function: Any, options: Any) -> Batch:
        if isinstance(function, Batch):
            raise InvalidInput(function.name, "is a batch already; pass options to its @app.batch")
        study = Batch(self._client, function, **options)
        if (other := self.studies.get(study.name)) is not None:
            raise InvalidInput(
                study.name,
                f"is the name of another batch (at {place_of(other.unit.function)}); give one of them another: "
                '@app.batch(name="...")',
            )
        self.studies[study.name] = study
        self.handlers.update(works_of(study, self.output_stores, self.launcher))
        return study

    @property
    def queues(self) -> set[str]:
        return {study.queue for study in self.studies.values()}

    def declares(self, name: str) -> bool:
        return name in self.studies

    async def close(self) -> None:
        """Close the output stores."""
        await self.output_stores.close()

    def service(self, control: Control) -> BatchService:
        """The batch service of an open store."""
        client = self._client
        return BatchService(control, sealer=client.sealer, output_stores=self.output_stores, rng=client.rng)

    def duties(self, control: Control) -> list[Duty]:
        every_s = self._client.settings.recheck_s
        return [] if every_s is None else [recheck_duty(self.service(control), every_s)]

    def run(self, job_id: str) -> BatchRun:
        """A submitted batch by its id."""
        return BatchRun(self._client, job_id, service=self._opened)

    async def submit(self, study: Batch, *, outputs: str | None, runner: str, **given: Any) -> BatchRun:
        if not isinstance(study, Batch) or self.studies.get(study.name) is not study:
            raise InvalidInput("study", f"{study!r} is not a batch of this app; declare it with @app.batch")
        self.launcher.runners.check(runner)
        service = self.service(await self._client.open())
        submitted = await submit_batch(study, service, outputs=outputs or self._outputs, runner=runner, **given)
        return BatchRun(self._client, submitted.id, created=submitted.created, service=self._opened)

    def _opened(self) -> BatchService:
        control = self._client.connection.control
        assert control is not None, "its callers open the store first"
        return self.service(control)
