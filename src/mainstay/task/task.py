"""Task: a function that workers run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from ..control import Decide, Plan
from ..errors import BadArguments, InvalidInput
from ..worker import Mode
from .call import Call
from .client import AppClient
from .current_client import enter_job
from .handle import Handle
from .options import SubmitOptions, TaskOptions, check_task_options, merge_options, plain
from .retry_rules import RetryRules
from .returns import Returns
from .signature import Arguments, Signature
from .task_name import check_function, is_async, name_of
from .transactional import Transaction, Within

P = ParamSpec("P")
R = TypeVar("R")


class Submits(Generic[P, R]):
    """Submits calls of one task, with one set of options."""

    def __init__(
        self,
        client: AppClient,
        signature: Signature,
        returns: Returns[R],
        options: dict[str, Any],
        plan: Plan,
    ) -> None:
        self._client = client
        self._signature = signature
        self._returns = returns
        self._options = options
        self._plan = plan

    def options(self, **options: Unpack[SubmitOptions]) -> Submits[P, R]:
        """The same task with other options, for one submit or many. Tags and metadata are added to those of the task;
        other options override it, and None leaves an option as it is."""
        all_options = merge_options(self._options, options)
        plan = self._client.reader.read(all_options)
        return Submits(self._client, self._signature, self._returns, all_options, plan)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A checked call for `app.submit_many`, `app.group` or `context().submit`."""
        payload = self._signature.pack(args, kwargs)
        return Call(
            self._signature.name,
            msgspec.Raw(payload),
            self._plan,
            client=self._client,
            signature=self._signature,
            returns=self._returns,
            written=self._options,
        )

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit a call; returns when it is stored. Raises `InvalidInput` for arguments that do not fit."""
        call, client = self.job(*args, **kwargs), self._client
        if client.before_submit or client.sealer.seals:
            call = call.ready()
        control = client.connection.control or await client.open()
        return Handle.of(client, self._returns, await control.jobs.submit_request(call))

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """`submit`, for code without an event loop."""
        return self._client.run(lambda: self.submit(*args, **kwargs), what="submit_sync")

    def within(self, connection: Any) -> Within[P, R]:
        """Submit within your own transaction: `await task.within(connection).submit(...)`, or `.submit_sync(...)`.
        After a rollback the job was never submitted; after a commit a worker claims it at once.

        Takes connections of asyncpg and psycopg, and connections and sessions of SQLAlchemy, to the database of a
        PostgreSQL store. A connection without an open transaction is refused."""
        return Within(Transaction(self._client, connection), self.job)


class Task(Submits[P, R]):
    """A function that workers run. Made by `@app.task`.

    Calling it calls the function directly, as tests do. `submit` hands the call to a worker.

    >>> from mainstay import App
    >>> app = App("memory:")
    >>> @app.task(name="double")
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> double(4), double.options(delay="5m").submit_sync(4).status_sync()
    (8, 'scheduled')
    >>> app.close_sync()
    """

    def __init__(self, client: AppClient, function: Callable[P, Any], **given: Unpack[TaskOptions]) -> None:
        check_task_options(given)
        self.name = name_of(function, given.get("name"))
        check_function(function, self.name)
        self.function = function
        self.is_async = is_async(function)
        self.mode: Mode = "process" if given.get("process") else "loop" if self.is_async else "thread"
        self.decide: Decide | None = given.get("policy")
        """its custom retry policy"""
        self._retry_rules = RetryRules.of(given.get("retry_on"), given.get("give_up_on"))
        if self.decide is not None and (self._retry_rules is not None or not callable(self.decide)):
            raise InvalidInput("policy", "must be a function, and decides alone; leave out retry_on and give_up_on")
        signature = Signature(function, self.name)
        returns: Returns[R] = Returns(self.name, signature.returns, client.sealer)
        options = merge_options({}, _common(given))
        super().__init__(client, signature, returns, options, client.reader.read(options))
        functools.update_wrapper(self, function, updated=())

    @property
    def queue(self) -> str:
        """The queue of its jobs, unless a submit overrides it."""
        return self._plan.queue

    @property
    def required(self) -> tuple[str, ...]:
        """The parameters without a default."""
        return self._signature.required

    @property
    def defaults(self) -> dict[str, Any]:
        """The options it was given."""
        return dict(self._options)

    @property
    def plain_defaults(self) -> dict[str, Any]:
        """The options as plain data, with the queue, for a submit by name."""
        return {**plain(self._options), "queue": self.queue}

    @property
    def signature(self) -> Signature:
        """How its arguments are bound and stored."""
        return self._signature

    def annotation(self, name: str) -> Any:
        """The declared type of an argument; Any without one."""
        return self._signature.annotation(name)

    @property
    def returns(self) -> Any:
        """The declared return type; Any without one."""
        return self._signature.returns

    def handle(self, job_id: str) -> Handle[R]:
        """One of its jobs, by id."""
        return Handle(self._client, self._returns, job_id)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    # for workers --------------------------------------------------------------------------------

    def unpack(self, payload: bytes) -> Arguments:
        """The stored arguments; raises `BadArguments` if they do not fit the current function."""
        try:
            opened = self._client.sealer.open(payload, field=f"{self.name}: the payload")
        except InvalidInput as error:
            raise BadArguments(error.field, error.rule) from error.__cause__
        return self._signature.unpack(opened)

    def arguments(self, payload: bytes) -> dict[str, Any]:
        """The given arguments of a payload, by name."""
        return self._signature.given(self._client.sealer.open(payload, field=f"{self.name}: the payload"))

    def call(self, arguments: Arguments) -> Any:
        """Make the call."""
        enter_job(self._client)
        rules = self._retry_rules
        if rules is None:
            return self._signature.call(arguments)
        if self.is_async:
            return rules.wait(self._signature.call(arguments))
        return rules.call(lambda: self._signature.call(arguments))

    def pack(self, result: Any) -> msgspec.Raw | None:
        """The result as it is stored; raises `BadResult`."""
        return self._returns.pack(result)


class AsyncTask(Task[P, R]):
    """A task made from an `async def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return coroutine


class PlainTask(Task[P, R]):
    """A task made from a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function(*args, **kwargs)
        return result


def _common(given: TaskOptions) -> dict[str, Any]:
    """The options that control reads, without those of the task itself."""
    own = ("name", "process", "retry_on", "give_up_on", "policy")
    return {name: value for name, value in given.items() if name not in own}
