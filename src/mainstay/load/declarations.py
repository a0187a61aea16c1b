"""The load tests of an app: declaring and submitting them.

They need an extra, so the rest of `mainstay.load` is imported only when a test is declared.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..control import Control, Duty, InsertResult, JobRequest, Plan
from ..control.schedules import ScheduledJob
from ..errors import InvalidInput
from ..task import AppClient, Draft, Handle, Returns, drafted
from ..worker import Declarations, Host, Work, WorkerOptions, state_folder
from .extra import extra_installed
from .kind import SLICE
from .placement import RunPlacementDuty

if TYPE_CHECKING:
    from .fleet import FleetDemand
    from .plan import LoadOptions
    from .planned_run import PlannedRun
    from .sources import LoadTest
    from .stats.model import Summary
    from .workflow import Workflow

log = logging.getLogger("mainstay.load")

DEFAULT_QUEUE = "default"


class PlacedSlices(Mapping[str, Work]):
    """The handler of slices, which every app has on a node with cores for them and the extra. It is imported for the
    first slice."""

    def __init__(self, client: AppClient, worker: Callable[[], WorkerOptions | None]) -> None:
        self._client = client
        self._worker = worker
        self._handler: Work | None = None

    def __getitem__(self, name: str) -> Work:
        if name != SLICE or not self:
            raise KeyError(name)
        if self._handler is None:
            from .fleet.slice_handler import SliceHandler  # noqa: PLC0415 - an extra

            self._handler = SliceHandler(self._client, self._worker)
        return self._handler

    def __iter__(self) -> Iterator[str]:
        return iter((SLICE,) if self else ())

    def __len__(self) -> int:
        worker = self._worker()
        return int(worker is not None and worker.cores > 0 and extra_installed())


class Loads(Declarations):
    """The load tests that are declared on an app."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._client: AppClient = host.client
        self.tests: dict[str, LoadTest] = {}
        self.queues_of: dict[str, str] = {}
        self.placed_handlers = PlacedSlices(self._client, lambda: self.worker)
        self.folder: Callable[[], Path] = lambda: state_folder("load")
        """where runs are recorded"""

    def declare(self, parts: tuple[type[Workflow] | LoadTest, ...], *, name: str | None, queue: str) -> LoadTest:
        from .handler import LoadWork  # noqa: PLC0415 - an extra
        from .sources import LoadTest  # noqa: PLC0415 - an extra

        if not parts:
            raise InvalidInput("load", "no workflows given; write app.load(Shop, Search)")
        if len(parts) == 1 and isinstance(parts[0], LoadTest):
            given = parts[0]
            test = LoadTest(name or given.name, given.workflows.values(), source=given.source)
        else:
            workflows = [one for one in parts if not isinstance(one, LoadTest)]
            if len(workflows) < len(parts):
                raise InvalidInput("load", "got a load test together with others; declare each one separately")
            test = LoadTest(name or workflows[0].__name__, workflows)
        if test.name in self.tests:
            raise InvalidInput(test.name, "is the name of another load test; rename one of them: name=...")
        self.tests[test.name] = test
        self.queues_of[test.name] = queue
        self.handlers[test.name] = LoadWork(self._client, test, self._recording_folder)
        return test

    def _recording_folder(self) -> Path:
        return self.folder()

    @property
    def queues(self) -> set[str]:
        return set(self.queues_of.values())

    def plan(self, test: LoadTest | str, options: LoadOptions) -> PlannedRun:
        """Plan a run of a declared test; raises `InvalidInput` for everything that can be known to fail."""
        from .planned_run import PlannedRun  # noqa: PLC0415 - an extra

        name = test if isinstance(test, str) else test.name
        declared = self.tests.get(name)
        if declared is None:
            rule = f"{name!r} is not a load test of this app; it has {', '.join(self.tests) or 'none'}"
            raise InvalidInput("load", f"{rule}. Declare it with app.load(...)")
        return PlannedRun(declared, options)

    async def submit(self, planned: PlannedRun, options: Mapping[str, Any]) -> Handle[Summary]:
        """Submit a planned run. `options` are those of the job."""
        request = self.request(planned, options)
        return self.handle(request.name, await (await self._client.open()).jobs.submit_request(request))

    async def submit_on_nodes(
        self, planned: PlannedRun, demand: FleetDemand, options: Mapping[str, Any]
    ) -> Handle[Summary]:
        """Submit a planned run to the nodes of the cluster whose store this app has."""
        return await self.insert_on_nodes(await self.prepare_on_nodes(planned, demand, options))

    async def prepare_on_nodes(
        self,
        planned: PlannedRun,
        demand: FleetDemand,
        options: Mapping[str, Any],
        *,
        by: str = "client",
        on_note: Callable[[str], None] = log.warning,
    ) -> JobRequest:
        """Check a run on nodes, wait for nodes that are still starting, and publish its code. There is no job yet."""
        from .fleet.submission import FleetSubmitter, run_job  # noqa: PLC0415 - an extra

        client, name = self._client, planned.test.name
        if client.sealer.seals:
            raise InvalidInput(
                "codec", "managers lead a run on nodes, and they have no codec; submit it with an App that has none"
            )
        if "queue" in options:
            raise InvalidInput("queue", "a run on nodes waits in a queue of its own; leave it out")
        from .handler import limits_on_nodes  # noqa: PLC0415 - an extra

        # a submit whose answer is lost is sent again, and must not run twice
        given = {**limits_on_nodes(planned.plan), "key": secrets.token_hex(16), **options}
        job_options = self._job_options(planned, given)
        plan = self._plan(name, planned.options, job_options)
        submitter = FleetSubmitter(await client.open(), by=by, on_note=on_note, rng=client.rng)
        request = await submitter.prepare(planned, demand, key=plan.key, durability=plan.durability)
        return run_job(request, name, plan)

    async def insert_on_nodes(self, request: JobRequest) -> Handle[Summary]:
        """Insert the job of a prepared run."""
        from .fleet.submission import FleetSubmitter  # noqa: PLC0415 - an extra

        submitter = FleetSubmitter(await self._client.open(), rng=self._client.rng)
        return self.handle(request.name, await submitter.insert(request))

    def request(self, planned: PlannedRun, options: Mapping[str, Any]) -> JobRequest:
        """The request for control, after the hooks of the app."""
        job = self._job(planned, options)
        plan = self._plan(job.name, planned.options, job.options)
        return JobRequest(job.name, msgspec.Raw(self._client.sealer.seal(job.payload)), plan, content=job.payload)

    def _plan(self, name: str, load: LoadOptions, options: dict[str, Any]) -> Plan:
        """The options of a job as they are stored, after the hooks of the app."""
        client = self._client
        if client.before_submit:
            draft = Draft(name=name, arguments=msgspec.to_builtins(load), options=options)
            options = drafted(client.before_submit, draft).options
        return client.reader.read(options)

    def _job(self, planned: PlannedRun, options: Mapping[str, Any]) -> ScheduledJob:
        name = planned.test.name
        return ScheduledJob(
            name=name,
            payload=msgspec.msgpack.encode(planned.options),
            options=self._job_options(planned, {"queue": self.queues_of[name], **options}),
        )

    def _job_options(self, planned: PlannedRun, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a submit, with those that follow from the plan."""
        from .handler import KIND, limits_of  # noqa: PLC0415 - an extra

        return {**limits_of(planned.plan), **given, "kind": KIND}

    def arguments(self, name: str, payload: bytes) -> dict[str, Any]:
        del name
        options: dict[str, Any] = msgspec.msgpack.decode(self._client.sealer.open(payload, field="payload"))
        return options

    def scheduled(self, what: object) -> ScheduledJob | None:
        """The job that a schedule of a load test submits; None for anything else."""
        if not self.tests:
            return None  # the extra is not imported for apps without load tests
        from .plan import LoadOptions  # noqa: PLC0415 - an extra
        from .sources import LoadJob, LoadTest  # noqa: PLC0415 - an extra

        if isinstance(what, LoadTest):
            what = LoadJob(what, LoadOptions())
        if not isinstance(what, LoadJob):
            return None
        return self._job(self.plan(what.test, what.options), {})

    def placement_duties(self, control: Control, session_id: str) -> Sequence[Duty]:
        """What the placement leader does for the runs on nodes of the store, also those of other apps."""
        del session_id
        return RunPlacementDuty(control).duties()

    def handle(self, name: str, submitted: InsertResult) -> Handle[Summary]:
        """The handle of a submitted run."""
        from .stats.model import Summary  # noqa: PLC0415 - an extra

        return Handle.of(self._client, Returns(name, Summary, self._client.sealer), submitted)
