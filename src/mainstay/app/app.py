"""App: what users hold. Tasks are declared on it, jobs are submitted through it, workers are pointed at it."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, Unpack, overload
from zoneinfo import ZoneInfo

from ..batch import BatchMethods
from ..clock import Clock
from ..control import Control, Duty, decoded
from ..control.schedules import CatchUp, Overlap, ScheduleSpec, ScheduleView, When
from ..errors import InvalidInput, MainstayError, UnknownTask
from ..load import LoadMethods
from ..model import Settings, route_of
from ..stores import JobStore, shown_url, usual_settings
from ..task import BeforeSubmit, Call, Client, Codec, Handle, Task, TaskMethods
from ..task.drafts import check_hook
from ..task.returns import Returns
from ..task.storable import canonical
from ..worker import Context, Hook, Host, Work
from ..worker.app_import import loaded
from . import bulk, hooks
from .group import Group, submit_group, submit_group_within
from .kind_parts import KindParts
from .schedules import Schedules
from .settings import AppSettings

if TYPE_CHECKING:
    from ..batch.runners import Runner
    from ..load.sources import LoadJob, LoadTest

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G")
S = TypeVar("S", bound="Task[..., Any] | Call[Any] | LoadTest | LoadJob")
B = TypeVar("B", bound=BeforeSubmit)
M = TypeVar("M", bound=hooks.Manager)

DEFAULT_QUEUE = "default"


class App(TaskMethods, BatchMethods, LoadMethods):
    """Tasks, their settings, and the store their jobs are in.

    The store opens on first use. `async with app:` opens it now; the last one to leave closes it. Settings are keyword
    arguments (`App("sqlite:///jobs.db", lease="20s", retries=5)`), and otherwise come from the environment
    (`MAINSTAY_LEASE=20s`). Without a URL, MAINSTAY_STORE names the store.

    >>> import asyncio
    >>> app = App("memory:")
    >>> @app.task(queue="mail", retries=5)
    ... async def send(to: str, subject: str = "hello") -> int:
    ...     return len(to)
    >>> async def story():
    ...     async with app:
    ...         job = await send.submit("a@b.c", subject="hi")
    ...         return job.created, await job.status()
    >>> asyncio.run(story())
    (True, 'pending')
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        codec: Codec | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        audit_key: bytes | None = None,
        outputs: str | None = None,
        runners: Mapping[str, Runner] | None = None,
        **settings: Unpack[AppSettings],
    ) -> None:
        url = url if url is not None else os.environ.get("MAINSTAY_STORE")
        if not url:
            raise InvalidInput(
                "store", 'no store is named; write App("sqlite:///jobs.db"), or set MAINSTAY_STORE=sqlite:///jobs.db'
            )
        self.client = Client(
            url,
            Settings.from_env(os.environ, usual=usual_settings(url), **settings),
            codec=codec,
            clock=clock,
            rng=rng,
            audit_key=audit_key,
        )
        """what its tasks submit and read through"""
        self._parts = KindParts(
            Host(
                client=self.client,
                options={"outputs": outputs, "runners": runners},
                target=lambda: loaded(self),
            )
        )
        self._schedules = Schedules(self.client, self._parts)
        self._around: list[hooks.Opener] = []
        self._lifespan: hooks.Opener | None = None
        self._state: Any = _NOT_OPEN
        self._anything: Returns[Any] = Returns("a job", Any, self.client.sealer)

    # declare ----------------------------------------------------------------------------------------

    def schedule(
        self,
        when: str | timedelta | When,
        *,
        name: str | None = None,
        tz: str | ZoneInfo | None = None,
        catch_up: CatchUp = "once",
        catch_up_limit: int = 100,
        overlap: Overlap = "allow",
    ) -> Callable[[S], S]:
        """Submit a task at these times: `@app.schedule("*/5 * * * *", tz="Europe/Berlin")` above `@app.task`, or
        `app.schedule("15m")(task.job("with", "arguments"))`. Or run a load test of this app: `app.schedule("0 3 * *
        *")(shop)`, or `(shop.job(vus=500))`.

        `when` is a cron expression, an interval, or an object with `next(after)`. `catch_up` says what becomes of
        times when no worker was there (skip, once, all), `overlap` whether a job is made while an earlier one is not
        settled (allow, skip). The schedule is called like its task unless `name` is given.
        """

        def declare(what: S) -> S:
            self._schedules.declare(
                self._parts.scheduled(what),
                when,
                name=name,
                tz=tz,
                catch_up=catch_up,
                catch_up_limit=catch_up_limit,
                overlap=overlap,
            )
            return what

        return declare

    def before_submit(self, hook: B) -> B:
        """Have a function look at each job about to be submitted, and add to it: trace ids, tags, options. It gets a
        `Draft` and changes it, or answers with another. Runs for every submit there is: single, many, groups,
        schedules, follow-ups."""
        check_hook(hook)
        self.client.before_submit.append(hook)
        return hook

    def around_run(self, manager: M) -> M:
        """Have a context manager entered around each run. It gets the `Context`; write a `def` that yields once, or an
        `async def` that does. What it sets in context variables the task sees. The first one registered is the
        outermost.

        It runs where the task runs: on the loop for an `async def`, in the thread of a plain function (so that both
        have the same thread-locals), in the child process of a task with `process=True`. Only an `async def` hook
        around a plain function runs on the loop instead, outside of all plain hooks: use it for what must be awaited.
        """
        self._around.append(hooks.opener(manager, field="around_run"))
        return manager

    @overload
    def lifespan(self, /) -> AbstractAsyncContextManager[object]: ...
    @overload
    def lifespan(self, manager: M, /) -> M: ...
    def lifespan(self, manager: Any = None, /) -> Any:
        """Have a context manager entered once in each worker process, before its first job and left after its last:
        `@app.lifespan` above an `async def` that yields once. What it yields is `app.state`.

        Without an argument: that context manager, for a worker to enter.
        """
        if manager is None:
            return self._living()
        if self._lifespan is not None:
            raise InvalidInput("lifespan", "there is one already; do both in one function, and yield what both made")
        self._lifespan = hooks.opener(manager, field="lifespan")
        return manager

    def part(self, kind: str) -> Any:
        """What this app declares of a kind of job: an object of the class that the kind names. Kinds of other
        distributions are used through it: `app.part("survey").declare(...)`."""
        return self._parts[kind]

    # submit -----------------------------------------------------------------------------------------

    async def submit_many(
        self,
        jobs: Iterable[Call[R]] | AsyncIterable[Call[R]],
        *,
        chunk: int = 1000,
        progress: bulk.Progress | None = None,
        connection: Any = None,
    ) -> list[Handle[R]]:
        """Submit many jobs (`task.job(...)`), from any iterable, plain or async. Each chunk is stored whole or not at
        all; `progress` is called with the number stored so far after each. With a `connection` of yours, all of them
        are part of its transaction; see `task.transactional`."""
        return await bulk.submit_many(self.client, jobs, chunk=chunk, progress=progress, connection=connection)

    def submit_many_sync(
        self,
        jobs: Iterable[Call[R]],
        *,
        chunk: int = 1000,
        progress: bulk.Progress | None = None,
        connection: Any = None,
    ) -> list[Handle[R]]:
        """`submit_many`, for code without an event loop."""
        if connection is not None:
            return bulk.submit_many_within(self.client, jobs, chunk=chunk, progress=progress, connection=connection)
        return self.client.run(lambda: self.submit_many(jobs, chunk=chunk, progress=progress), what="submit_many_sync")

    async def group(
        self,
        members: Iterable[Call[G]],
        *,
        then: Call[R],
        when: Literal["succeeded", "settled"] = "succeeded",
        failed: Literal["skip", "fail"] = "skip",
        connection: Any = None,
    ) -> Group[G, R]:
        """Submit many jobs and one that runs once, when all of them have succeeded (or are settled), all or none. It
        reads what became of them with `context().inputs()`. When one fails, it is skipped, or fails if so told. With a
        `connection` of yours, it is part of its transaction; see `task.transactional`."""
        return await submit_group(self.client, members, then, when=when, failed=failed, connection=connection)

    def group_sync(
        self,
        members: Iterable[Call[G]],
        *,
        then: Call[R],
        when: Literal["succeeded", "settled"] = "succeeded",
        failed: Literal["skip", "fail"] = "skip",
        connection: Any = None,
    ) -> Group[G, R]:
        """`group`, for code without an event loop."""
        if connection is not None:
            return submit_group_within(self.client, members, then, when=when, failed=failed, connection=connection)
        return self.client.run(lambda: self.group(members, then=then, when=when, failed=failed), what="group_sync")

    def handle(self, job_id: str) -> Handle[Any]:
        """Any job, by id; its result is plain data. For a typed one: `task.handle(job_id)`."""
        return Handle(self.client, self._anything, job_id)

    # look -------------------------------------------------------------------------------------------

    @property
    def queues(self) -> Sequence[str]:
        """The queues its tasks go to: what a worker listens on unless it is told otherwise."""
        used = {*self._schedules.queues, *(queue for part in self._parts.values() for queue in part.queues)}
        return sorted(used) or [DEFAULT_QUEUE]

    @property
    def schedules(self) -> Mapping[str, ScheduleSpec]:
        """The schedules it declares, by name. What is stored, and when each ticks next, says `describe_schedules`."""
        return MappingProxyType(self._schedules.specs)

    @property
    def store_url(self) -> str:
        return self.client.url

    @property
    def settings(self) -> Settings:
        return self.client.settings

    @property
    def control(self) -> Control:
        """The rules on its open store, for everything that tasks and handles do not offer."""
        control = self.client.connection.control
        if control is None:
            raise MainstayError("the store is not open yet; write `async with app:`, or `await app.open()`")
        return control

    @property
    def state(self) -> Any:
        """What `lifespan` yielded in this process."""
        if self._state is _NOT_OPEN:
            raise MainstayError("app.state is there while a worker runs, and in `async with app.lifespan():`")
        return self._state

    # open and close ---------------------------------------------------------------------------------

    async def open(self) -> Control:
        """Open the store, if nobody has; the same control each time. It may be used from any loop and thread, and stays
        open until `close`; within `async with app:`, until that is left."""
        return await self.client.connection.keep()

    async def close(self) -> None:
        """Close the store, unless others use it: an `async with app:` that is not left yet, a worker of this process.
        The last of them closes it; a job never does. The next use opens it again."""
        await self.client.release()
        await self._close_parts()

    def close_sync(self) -> None:
        """`close`, for code without an event loop; ends the thread behind the `_sync` forms as well."""
        self.client.release_sync(what="close_sync")

    async def __aenter__(self) -> Self:
        await self.client.connection.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.leave()
        await self._close_parts()

    async def _close_parts(self) -> None:
        """With the store of the jobs, and not before: others use them, too."""
        if self.client.connection.control is None:
            for part in self._parts.values():
                await part.close()

    @contextmanager
    def using(self, store: JobStore) -> Iterator[Control]:
        """Use an open store instead of its own meanwhile: for tests. The store is not closed here."""
        control = self.client.control_of(store)
        with self.client.connection.instead(control):
            yield control

    # what a worker needs (mainstay.worker.Program) --------------------------------------------------

    def work(self, kind: str, name: str) -> Work:
        """What runs jobs of this kind and name; raises `UnknownTask`."""
        handlers = self._parts.handlers(kind)
        found = handlers.get(name)
        if found is None:
            raise UnknownTask(name, handlers)
        return found

    def offer(self) -> Mapping[str, Mapping[str, Any]]:
        """Everything that workers of this app can run, and the options that a submit by name takes from each task."""
        return {
            route_of(kind, name): part.defaults(name) for kind, part in self._parts.items() for name in part.handlers
        }

    def pack(self, value: Any) -> bytes:
        """Any data as it is stored, sealed if there is a codec: a checkpoint."""
        try:
            return self.client.sealer.seal(canonical(value))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput("data", f"cannot be stored as data: {error}") from None

    def unpack(self, data: bytes) -> Any:
        """The reverse."""
        return decoded(self.client.sealer.open(data, field="stored data"))

    def around(self, context: Context) -> Sequence[Hook]:
        """What `around_run` registered, for one run."""
        return hooks.around(self._around, context) if self._around else ()

    async def prepare(self, control: Control) -> None:
        """What every worker does when it starts: it stores the declared schedules, whoever leads."""
        await self._schedules.prepare(control)

    def duties(self, control: Control) -> Sequence[Duty]:
        """What the leader does for this app: it ticks the stored schedules and looks for late outputs of batches, those
        of other apps as well."""
        of_kinds = [duty for part in self._parts.values() for duty in part.duties(control)]
        return (self._schedules.duty(control), *of_kinds)

    async def sync_schedules(self) -> None:
        """Store the declared schedules now, to have them listed before any worker runs. A worker does it by itself
        when it starts."""
        await self._schedules.store(await self.client.open())

    async def describe_schedules(self) -> list[ScheduleView]:
        """The schedules of its store, by name: their times, their last job, what is wrong with one. Those it declares
        that are not stored yet have `registered` False."""
        return await self._schedules.describe(await self.client.open())

    async def run_schedule(self, name: str, *, actor: str = "client") -> Handle[Any]:
        """Submit the job of a schedule now, beside its ticks, with `before_submit` asked; also when it is paused. With
        overlap "skip" it may be the job that is not settled yet (`created` is False)."""
        made = await self._schedules.run_now(await self.client.open(), name, actor=actor)
        return Handle.of(self.client, self._anything, made)

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[object]:
        async with AsyncExitStack() as stack:
            # the worker's: nothing that its jobs do shall close the store it works on
            self.client.connection.hold()
            stack.callback(self.client.connection.let_go)
            state = None
            if self._lifespan is not None:
                state = await hooks.entered(stack, self._lifespan(), field="lifespan")
            self._state = state
            try:
                yield state
            finally:
                self._state = _NOT_OPEN

    def __repr__(self) -> str:
        return f"<App {shown_url(self.store_url)}: {len(self.tasks)} tasks>"


class _NotOpen:
    """Stands for the state before there is one; None may be one."""


_NOT_OPEN = _NotOpen()
