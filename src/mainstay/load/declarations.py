"""Load tests of an app: what is declared, and what submits them.

What they need is an extra, so nothing of `mainstay.load` is imported before a test is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..control import JobRequest, Submitted
from ..control.schedules import ScheduledJob
from ..errors import InvalidInput
from ..task import AppClient, Handle
from ..task.drafts import Draft, drafted
from ..task.returns import Returns
from ..worker import Declarations, Host
from ..worker.state_folder import state_folder

if TYPE_CHECKING:
    from .plan import LoadOptions
    from .sources import LoadTest
    from .stats.model import Summary
    from .workflow import Workflow

DEFAULT_QUEUE = "default"


class Loads(Declarations):
    """The load tests that are declared on an app."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._client: AppClient = host.client
        self.tests: dict[str, LoadTest] = {}
        self.queues_of: dict[str, str] = {}
        self.folder: Callable[[], Path] = lambda: state_folder("load")
        """where the recorded streams go"""

    def declare(self, parts: tuple[type[Workflow] | LoadTest, ...], *, name: str | None, queue: str) -> LoadTest:
        from .handler import LoadWork  # noqa: PLC0415 - an extra
        from .sources import LoadTest  # noqa: PLC0415 - an extra

        if not parts:
            raise InvalidInput("load", "no workflows given; write app.load(Shop, Search)")
        if len(parts) == 1 and isinstance(parts[0], LoadTest):
            given = parts[0]
            what = LoadTest(name or given.name, given.workflows.values(), source=given.source)
        else:
            workflows = [one for one in parts if not isinstance(one, LoadTest)]
            if len(workflows) < len(parts):
                raise InvalidInput("load", "is given a load test beside others; declare each of them by itself")
            what = LoadTest(name or workflows[0].__name__, workflows)
        if what.name in self.tests:
            raise InvalidInput(what.name, "is the name of another load test; give one of them another: name=...")
        self.tests[what.name] = what
        self.queues_of[what.name] = queue
        self.handlers[what.name] = LoadWork(self._client, what, self._folder_now)
        return what

    def _folder_now(self) -> Path:
        return self.folder()

    @property
    def queues(self) -> set[str]:
        return set(self.queues_of.values())

    async def submit(self, test: LoadTest | str, options: LoadOptions, given: dict[str, Any]) -> Handle[Summary]:
        """Check everything that can be known now; then the job."""
        request = self.request(test, options, given)
        return self.handle(request.name, await (await self._client.open()).jobs.submit_request(request))

    def request(self, test: LoadTest | str, options: LoadOptions, given: Mapping[str, Any]) -> JobRequest:
        """What control is given: checked, seen by the hooks of the app, and sealed."""
        client = self._client
        name, payload, asked = self.job(test, options, given)
        if client.before_submit:
            draft = Draft(name=name, arguments=msgspec.to_builtins(options), options=asked)
            asked = drafted(client.before_submit, draft).options
        plan = client.reader.read(asked)
        return JobRequest(name, msgspec.Raw(client.sealer.seal(payload)), plan, content=payload)

    def job(
        self, test: LoadTest | str, options: LoadOptions, given: Mapping[str, Any]
    ) -> tuple[str, bytes, dict[str, Any]]:
        """The name, the payload and the options of a run's job, checked."""
        from .handler import KIND, limits_of  # noqa: PLC0415 - an extra
        from .run import Planned  # noqa: PLC0415 - an extra

        name = test if isinstance(test, str) else test.name
        known = self.tests.get(name)
        if known is None:
            rule = f"{name!r} is not a load test of this app; it has {', '.join(self.tests) or 'none'}"
            raise InvalidInput("load", f"{rule}. Declare it with app.load(...)")
        planned = Planned(known, options)
        asked = {"queue": self.queues_of[name], **limits_of(planned), **given, "kind": KIND}
        return name, msgspec.msgpack.encode(options), asked

    def arguments(self, name: str, payload: bytes) -> dict[str, Any]:
        del name
        found: dict[str, Any] = msgspec.msgpack.decode(self._client.sealer.open(payload, field="payload"))
        return found

    def scheduled(self, what: object) -> ScheduledJob | None:
        """What a schedule of a load test submits; None for what is neither a load test nor a run of one."""
        if not self.tests:
            return None  # nothing of `mainstay.load` is imported for apps without load tests
        from .plan import LoadOptions  # noqa: PLC0415 - an extra
        from .sources import LoadJob, LoadTest  # noqa: PLC0415 - an extra

        if isinstance(what, LoadTest):
            what = LoadJob(what, LoadOptions())
        if not isinstance(what, LoadJob):
            return None
        name, payload, options = self.job(what.test, what.options, {})
        return ScheduledJob(name=name, payload=payload, options=options)

    def handle(self, name: str, made: Submitted) -> Handle[Summary]:
        """A run that was submitted."""
        from .stats.model import Summary  # noqa: PLC0415 - an extra

        return Handle.of(self._client, Returns(name, Summary, self._client.sealer), made)
