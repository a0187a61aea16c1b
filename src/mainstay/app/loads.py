"""Load tests of an app: what is declared, and what submits them.

What they need is an extra, so nothing of `mainstay.load` is imported before a test is declared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..control import Request
from ..errors import InvalidInput
from ..task import Client, Handle
from ..task.drafts import Draft, drafted
from ..task.returns import Returns
from ..worker import Work
from ..worker.state_folder import state_folder

if TYPE_CHECKING:
    from ..load.plan import LoadOptions
    from ..load.sources import LoadTest
    from ..load.stats.model import Summary
    from ..load.workflow import Workflow

DEFAULT_QUEUE = "default"


class Loads:
    """The load tests that are declared on an app."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.tests: dict[str, LoadTest] = {}
        self.queues_of: dict[str, str] = {}
        self.works: dict[str, Work] = {}
        self.folder: Callable[[], Path] = lambda: state_folder("load")
        """where the recorded streams go"""

    def declare(self, parts: tuple[type[Workflow] | LoadTest, ...], *, name: str | None, queue: str) -> LoadTest:
        from ..load.sources import LoadTest  # noqa: PLC0415 - an extra
        from ..load.works import LoadWork  # noqa: PLC0415 - an extra

        if not parts:
            raise InvalidInput("load", "of what? give workflows: app.load(Shop, Search)")
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
        self.works[what.name] = LoadWork(self._client, what, self._folder_now)
        return what

    def _folder_now(self) -> Path:
        return self.folder()

    @property
    def queues(self) -> set[str]:
        return set(self.queues_of.values())

    async def submit(self, test: LoadTest | str, options: LoadOptions, given: dict[str, Any]) -> Handle[Summary]:
        """Check everything that can be known now; then the job."""
        from ..load.running import Planned  # noqa: PLC0415 - an extra
        from ..load.stats.model import Summary  # noqa: PLC0415 - an extra
        from ..load.works import KIND, limits_of  # noqa: PLC0415 - an extra

        name = test if isinstance(test, str) else test.name
        known = self.tests.get(name)
        if known is None:
            told = ", ".join(self.tests) or "none"
            raise InvalidInput("load", f"{name!r} is no load test of this app; it has {told}")
        client = self._client
        planned = Planned(known, options)
        asked = {"queue": self.queues_of[name], **limits_of(planned), **given}
        if client.before_submit:
            draft = Draft(name=name, arguments=msgspec.to_builtins(options), options=asked)
            asked = drafted(client.before_submit, draft).options
        payload = msgspec.msgpack.encode(options)
        plan = msgspec.structs.replace(client.reader.read(asked), kind=KIND)
        request = Request(name, msgspec.Raw(client.sealer.seal(payload)), plan, content=payload)
        made = await (await client.open()).submit_request(request)
        return Handle.of(client, Returns(name, Summary, client.sealer), made)
