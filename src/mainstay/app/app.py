"""App: users declare tasks on it and submit jobs through it; a worker runs the jobs of one app."""

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
from ..errors import InvalidInput, MainstayError
from ..load import LoadMethods
from ..model import Settings, route_of
from ..node import NodeJobMethods
from ..stores import JobStore, shown_url, usual_settings
from ..task import AppClient, BeforeSubmit, Call, Codec, Handle, Returns, Task, TaskMethods, canonical, check_hook
from ..worker import Context, Hook, Host, Work, WorkerOptions, target_of
from . import bulk, hooks
from .group import Group, submit_group, submit_group_within
from .kind_parts import KindParts
from .schedules import Schedules
from .settings import AppSettings

if TYPE_CHECKING:
    from ..batch.runners import Runner
    from ..load import LoadJob, LoadTest
    from ..node import NodeCall, NodeJob

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G")
S = TypeVar("S", bound="Task[..., Any] | Call[Any] | LoadTest | LoadJob | NodeJob | NodeCall")
B = TypeVar("B", bound=BeforeSubmit)
M = TypeVar("M", bound=hooks.Manager)

DEFAULT_QUEUE = "default"


class App(TaskMethods, BatchMethods, LoadMethods, NodeJobMethods):
    """Tasks, their settings, and the store of their jobs.

    The store opens on first use. `async with app:` opens it now; the last block to end closes it. Settings are keyword
    arguments (`App("sqlite:///jobs.db", lease="20s", retries=5)`) or come from the environment (`MAINSTAY_LEASE=20s`).
    Without a URL, MAINSTAY_STORE names the store.

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
                "store", 'no store is given; write App("sqlite:///jobs.db"), or set MAINSTAY_STORE=sqlite:///jobs.db'
            )
        self.client = AppClient(
            url,
            Settings.from_env(os.environ, usual=usual_settings(url), **settings),
            codec=codec,
            clock=clock,
            rng=rng,
            audit_key=audit_key,
        )
        """submits and reads its jobs"""
        self._parts = KindParts(
            Host(
                client=self.client,
                options={"outputs": outputs, "runners": runners},
                target=lambda: target_of(self),
            )
        )
        self._schedules = Schedules(self.client, self._parts)
        self._around: list[hooks.Opener] = []
        self._lifespan: hooks.Opener | None = None
        self._state: Any = _NOT_OPEN
        self._untyped: Returns[Any] = Returns("a job", Any, self.client.sealer)

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

        `when` is a cron expression, an interval, or an object with `next(after)`. `catch_up` says what to do about
        ticks without a live worker (skip, once, all), `overlap` what to do while an earlier job is not settled (allow,
        skip). The schedule has the name of its task unless `name` is given.
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
        """Register a function that sees each job before it is submitted, and can add trace ids, tags or options. It
        gets a `Draft` and changes it, or returns another. It runs for every submit: single, many, groups, schedules,
        follow-ups."""
        check_hook(hook)
        self.client.before_submit.append(hook)
        return hook

    def around_run(self, manager: M) -> M:
        """Register a context manager around each run: a `def` or an `async def` that yields once. It gets the
        `Context`. The task sees the context variables that it sets. The first one registered is the outermost.

        It runs where the task runs: on the loop for an `async def`, in the thread of a plain function (with the same
        thread-locals), in the child process of a task with `process=True`. Only an `async def` hook around a plain
        function runs on the loop instead, outside of all plain hooks: use it for code that must be awaited.
        """
        self._around.append(hooks.opener(manager, field="around_run"))
        return manager

    @overload
    def lifespan(self, /) -> AbstractAsyncContextManager[object]: ...
    @overload
    def lifespan(self, manager: M, /) -> M: ...
    def lifespan(self, manager: Any = None, /) -> Any:
        """Register a context manager for each worker process, entered before its first job and left after its last:
        `@app.lifespan` above an `async def` that yields once. The yielded value is `app.state`.

        Without an argument: returns that context manager, for a worker to enter.
        """
        if manager is None:
            return self._living()
        if self._lifespan is not None:
            raise InvalidInput("lifespan", "the app already has one; do both in one function, and yield both values")
        self._lifespan = hooks.opener(manager, field="lifespan")
        return manager

    def part(self, kind: str) -> Any:
        """The declarations of this app for a kind of job: an object of the class that the kind names. Use kinds of
        other distributions through it: `app.part("survey").declare(...)`."""
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
        """Submit many jobs (`task.job(...)`) from any iterable, plain or async. Each chunk is stored whole or not at
        all; after each, `progress` is called with the number of stored jobs. With your own `connection`, all of them
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
        """Submit many jobs and a callback that runs once, when all of them have succeeded (or are settled), all or
        none. It reads their results with `context().inputs()`. If one fails, the callback is skipped, or fails with
        `failed="fail"`. With your own `connection`, it is part of its transaction; see `task.transactional`."""
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
        return Handle(self.client, self._untyped, job_id)

    # look -------------------------------------------------------------------------------------------

    @property
    def queues(self) -> Sequence[str]:
        """The queues of its jobs: a worker listens on them by default."""
        used = {*self._schedules.queues, *(queue for part in self._parts.values() for queue in part.queues)}
        return sorted(used) or [DEFAULT_QUEUE]

    @property
    def schedules(self) -> Mapping[str, ScheduleSpec]:
        """The schedules it declares, by name. `describe_schedules` reads the stored ones, with their next ticks."""
        return MappingProxyType(self._schedules.specs)

    @property
    def store_url(self) -> str:
        return self.client.url

    @property
    def settings(self) -> Settings:
        return self.client.settings

    @property
    def control(self) -> Control:
        """The rules on its open store, for what tasks and handles do not offer."""
        control = self.client.connection.control
        if control is None:
            raise MainstayError("the store is not open yet; write `async with app:`, or `await app.open()`")
        return control

    @property
    def state(self) -> Any:
        """What `lifespan` yielded in this process."""
        if self._state is _NOT_OPEN:
            raise MainstayError("app.state exists only in a running worker, and in `async with app.lifespan():`")
        return self._state

    def use_store(self, url: str) -> None:
        """Use the store of this URL instead of its own. For nodes, which reach the store through a manager; only before
        the store is opened."""
        self.client.use_store(url)

    def use_worker(self, options: WorkerOptions) -> None:
        """Say how the worker runs that this app is loaded in. Called by its engines before they open the store."""
        self._parts.use_worker(options)

    # open and close ---------------------------------------------------------------------------------

    async def open(self) -> Control:
        """Open the store if it is not open; returns the same control each time. It may be used from any loop and
        thread, and stays open until `close`, or until the end of `async with app:`."""
        return await self.client.connection.keep()

    async def close(self) -> None:
        """Close the store, unless it has other users: an open `async with app:`, a worker in this process. The last
        user closes it; a job never does. The next use opens it again."""
        await self.client.release()
        await self._close_parts()

    def close_sync(self) -> None:
        """`close`, for code without an event loop; also ends the thread of the `_sync` methods."""
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
        """Close the parts with the store, not before: they may have other users."""
        if self.client.connection.control is None:
            for part in self._parts.values():
                await part.close()

    @contextmanager
    def using(self, store: JobStore) -> Iterator[Control]:
        """Use another open store within the block, for tests. The store is not closed."""
        control = self.client.control_of(store)
        with self.client.connection.instead(control):
            yield control

    # for workers (mainstay.worker.Program) ----------------------------------------------------------

    def work(self, kind: str, name: str) -> Work:
        """The handler of jobs of this kind and name; raises `UnknownTask`."""
        return self._parts.handler(kind, name)

    def offer(self) -> Mapping[str, Mapping[str, Any]]:
        """Everything that workers of this app can claim, with the options for a submit by name."""
        return {
            route_of(kind, name): part.defaults(name) for kind, part in self._parts.items() for name in part.handlers
        }

    def placed_offer(self) -> Mapping[str, Mapping[str, Any]]:
        """Everything that nodes with this app can be given."""
        return {
            route_of(kind, name): part.defaults(name)
            for kind, part in self._parts.items()
            for name in part.placed_handlers
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
        """The hooks of `around_run` for one run."""
        return hooks.around(self._around, context) if self._around else ()

    async def prepare(self, control: Control) -> None:
        """Store the declared schedules; every worker does so when it starts."""
        await self._schedules.prepare(control)

    def duties(self, control: Control) -> Sequence[Duty]:
        """The duties of the leader: it ticks the stored schedules and checks for late outputs of batches, also those of
        other apps."""
        of_kinds = [duty for part in self._parts.values() for duty in part.duties(control)]
        return (self._schedules.duty(control), *of_kinds)

    def placement_duties(self, control: Control, session_id: str) -> Sequence[Duty]:
        """What the holder of the lead `placement` does for the kinds whose jobs are placed on nodes."""
        return [duty for part in self._parts.values() for duty in part.placement_duties(control, session_id)]

    async def sync_schedules(self) -> None:
        """Store the declared schedules now, so that they are listed before a worker runs. A worker does so when it
        starts."""
        await self._schedules.store(await self.client.open())

    async def describe_schedules(self) -> list[ScheduleView]:
        """The schedules of its store, by name: their times, their last job, their problem. Declared ones that are not
        stored yet have `registered` False."""
        return await self._schedules.describe(await self.client.open())

    async def run_schedule(self, name: str, *, actor: str = "client") -> Handle[Any]:
        """Submit the job of a schedule now, in addition to its ticks, after the hooks of `before_submit`, even if it is
        paused. With overlap "skip" it may be the job that is not settled yet (`created` is False)."""
        submitted = await self._schedules.run_now(await self.client.open(), name, actor=actor)
        return Handle.of(self.client, self._untyped, submitted)

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[object]:
        async with AsyncExitStack() as stack:
            # jobs must not close the store of their worker
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
    """The value of a state that is not set; None is a valid state."""


_NOT_OPEN = _NotOpen()
