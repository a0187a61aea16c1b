"""What a worker runs: the interface between the worker and the kinds of job above it.

A *program* is the object that `module:app` names. It finds the *work* for a job by kind and name; a work turns stored
bytes into arguments, arguments into a call, and its result into stored bytes. Nothing here knows what a task is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Literal, Protocol, cast, runtime_checkable

import msgspec

from ..control import Control, Decide, Duty
from ..errors import InvalidInput
from ..model import Offer, Settings
from .app_import import find_target
from .job_context import Context
from .worker_options import NODE_STORE, WorkerOptions

#: where the call is made: on the engine's loop, in one of its threads, or in a child process
Mode = Literal["loop", "thread", "process"]

#: a context manager that is entered around a run
Hook = AbstractAsyncContextManager[Any] | AbstractContextManager[Any]


class Work(Protocol):
    """How jobs of one name are run. One object per name, used for all its jobs."""

    @property
    def mode(self) -> Mode: ...

    @property
    def is_async(self) -> bool:
        """Whether `call` returns a coroutine. A child process runs both kinds of function."""
        ...

    @property
    def decide(self) -> Decide | None:
        """Its own retry policy; None: the policy stored with the job."""
        ...

    def unpack(self, payload: bytes) -> Any:
        """The arguments of a job; raises `BadArguments` naming the field when they no longer fit."""
        ...

    def call(self, arguments: Any) -> Any:
        """Make the call: the coroutine of a coroutine function, or the result of a plain function."""
        ...

    def pack(self, result: Any) -> msgspec.Raw | None:
        """The result as it is stored; raises `BadResult` if it cannot be stored or is not of the declared type."""
        ...


def supervises(work: Work) -> bool:
    """Whether a work only supervises processes of its own: its attribute `supervises` is true.

    Its runs take no slot of their engine and begin at once, also beside a job that runs alone. They run in the engine
    whatever was lost with them before, without the hooks of the program, and are not blamed if it dies. They store
    themselves that they have started (`Claims.start`), because they may prepare for long before that.
    """
    return getattr(work, "supervises", False)


def keeps_time(work: Work) -> bool:
    """Whether a work counts its run timeout itself, and raises `OutOfTime` at its end: its attribute `keeps_time` is
    true. Its time goes on from one claim to the next."""
    return getattr(work, "keeps_time", False)


@runtime_checkable
class Program(Protocol):
    """What a worker runs. `App` is one."""

    @property
    def store_url(self) -> str: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def queues(self) -> Sequence[str]:
        """The queues of its tasks: a worker listens on them by default."""
        ...

    async def open(self) -> Control:
        """Open the store for this process; the same control each time."""
        ...

    async def close(self) -> None: ...

    def work(self, kind: str, name: str) -> Work:
        """Raises `UnknownTask`."""
        ...

    def pack(self, value: Any) -> bytes:
        """Any data in its stored form (a checkpoint)."""
        ...

    def unpack(self, data: bytes) -> Any:
        """The reverse, without a declared type."""
        ...

    def lifespan(self) -> AbstractAsyncContextManager[object]:
        """Entered once per process before its first job, left after its last."""
        ...

    def around(self, context: Context) -> Sequence[Hook]:
        """The hooks around each run, the outermost first. They run where the task runs: on the loop for an `async def`,
        in its thread for a plain function; in its child process if it has one."""
        ...

    async def prepare(self, control: Control) -> None:
        """Called once in each engine, before its first job: stores what this program declares."""
        ...

    def duties(self, control: Control) -> Sequence[Duty]:
        """What the leader does for this program, beside what it does for every store."""
        ...


@runtime_checkable
class Offering(Protocol):
    """A program that can say what it has. `App` is one; the sessions of another are given every job of their queues."""

    def offer(self) -> Mapping[str, Mapping[str, Any]]:
        """Everything it can run, by `model.route_of`, with the options that a submit by name takes from it."""
        ...


@runtime_checkable
class Placing(Protocol):
    """A program with jobs that are placed on nodes. `App` is one."""

    def placed_offer(self) -> Mapping[str, Mapping[str, Any]]:
        """As `Offering.offer`: what a node that runs this program can be given."""
        ...

    def placement_duties(self, control: Control, session_id: str) -> Sequence[Duty]:
        """What the holder of the lead `placement` does for this program; the session is that of its node engine."""
        ...


@runtime_checkable
class Movable(Protocol):
    """A program that can use another store than the one it names. `App` is one."""

    def use_store(self, url: str) -> None:
        """Use the store of this URL. Called before the store is opened."""
        ...


@runtime_checkable
class WorkerAware(Protocol):
    """A program that needs to know how its worker runs. `App` is one."""

    def use_worker(self, options: WorkerOptions) -> None:
        """The worker that runs it was started so. Called before the store is opened."""
        ...


def offer_of(program: Program, queues: Sequence[str]) -> Offer | None:
    """What a session for this program serves; None: the program does not say."""
    return Offer(queues=tuple(queues), tasks=program.offer()) if isinstance(program, Offering) else None


def placed_offer_of(program: Program, *, cores: int = 0) -> Offer | None:
    """What the session of a node engine serves: no queue, and the placed jobs of the program. `cores`: how many of its
    node are for slices of load tests."""
    return Offer(tasks=program.placed_offer(), cores=cores) if isinstance(program, Placing) else None


def load_for(options: WorkerOptions) -> Program:
    """The program of a worker. That of a node which has joined a cluster reaches its store through a manager."""
    try:
        program = load(options.target)
    except InvalidInput as error:
        if not options.bundle:
            raise
        what = f"the program is bundle {options.bundle}: install what it needs on this node, or push it again"
        raise InvalidInput(error.field, f"{error.rule}; {what}") from error.__cause__
    if options.joined:
        if not isinstance(program, Movable):
            raise InvalidInput("app", f"{options.target} cannot use another store; a node needs a mainstay.App")
        program.use_store(os.environ[NODE_STORE])
    if isinstance(program, WorkerAware):
        program.use_worker(options)
    return program


def load(target: str) -> Program:
    """The program that `module:attribute` names.

    >>> load("mainstay")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: app: 'mainstay' does not say which object is the app; did you mean mainstay:app?
    """
    return cast("Program", find_target(target, lambda found: isinstance(found, Program)))
