"""Submit within the user's transaction: `task.within(connection).submit(...)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from ..control import Enqueuer
from ..errors import InvalidInput
from ..stores import chain_of
from ..stores.postgres.enqueue import AsyncUserConnection, Steps, enqueue_into, user_connection
from .call import Call
from .client import AppClient
from .handle import Handle

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Transaction:
    """An open transaction of the user. It needs neither an open store nor another thread."""

    def __init__(self, client: AppClient, connection: Any) -> None:
        stored = client.connection.control if client.connection.is_replaced else None
        url = client.url if stored is None else stored.store.url
        clock = client.clock if stored is None else stored.store.clock
        chain = chain_of(client.audit_key) if stored is None else stored.store.chain
        enqueue = enqueue_into(url, clock=clock)
        self._written = enqueue.written
        self._enqueuer = Enqueuer(enqueue, client.factory, chain)
        self._connection = user_connection(connection)

    async def take(self, make: Callable[[Enqueuer], Steps[T]]) -> T:
        """Run steps on the connection. A synchronous connection blocks the loop, as all its other calls do."""
        steps = make(self._enqueuer)
        if isinstance(self._connection, AsyncUserConnection):
            return await self._connection.take(steps, self._written)
        return self._connection.take(steps, self._written)

    def take_sync(self, make: Callable[[Enqueuer], Steps[T]], *, what: str) -> T:
        """The same for code without a loop; `what` is the called method, for the message of an error."""
        if isinstance(self._connection, AsyncUserConnection):
            plain = what.removesuffix("_sync")
            raise InvalidInput("connection", f"is asynchronous; write `await {plain}(...)` with it")
        return self._connection.take(make(self._enqueuer), self._written)


class Within(Generic[P, R]):
    """Submits calls of one task within a transaction."""

    def __init__(self, transaction: Transaction, job: Callable[P, Call[R]]) -> None:
        self._transaction = transaction
        self._job = job

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit a call as part of the transaction. The handle works once that is committed."""
        call = self._job(*args, **kwargs)
        [submitted] = await self._transaction.take(lambda enqueuer: enqueuer.submit_many([call.ready()]))
        return Handle.of(call.client, call.returns, submitted)

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """`submit`, for code without an event loop."""
        call = self._job(*args, **kwargs)
        [submitted] = self._transaction.take_sync(lambda each: each.submit_many([call.ready()]), what="submit_sync")
        return Handle.of(call.client, call.returns, submitted)
