"""Connections of users to PostgreSQL: asyncpg, psycopg and SQLAlchemy, with and without an event loop, behind one face.

No driver is imported here: whoever has a connection has imported its driver.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ....errors import InvalidInput, MainstayError, StoreError, StoreLocked, StoreReadOnly
from ..write.steps import InsertClash, Rows, Statement, Steps

T = TypeVar("T")

_SUPPORTED = (
    "an asyncpg Connection, a psycopg Connection or AsyncConnection, or a SQLAlchemy Connection, Session, "
    "AsyncConnection or AsyncSession over one of these drivers"
)
#: what SQLAlchemy calls them
_DRIVERS = ("asyncpg", "psycopg", "psycopg_async")
_PLACE = re.compile(r"\$\d+")
_IDLE = 0


#: makes of a statement what a driver takes
Written = Callable[[Statement], Statement]


class SyncUserConnection:
    """A connection of code without a loop."""

    def __init__(self, run: Callable[[Statement], Rows], check: Callable[[], None]) -> None:
        self._run = run
        self._check = check

    def take(self, steps: Steps[T], written: Written) -> T:
        """Take the steps on the connection; what they come to. What goes wrong is told to them first."""
        try:
            asked = next(steps)
            while True:
                try:
                    rows = self._run(written(asked))
                    self._check()
                except Exception as error:  # noqa: BLE001 - the steps raise it, unless they know better
                    asked = steps.throw(_in_our_words(error))
                else:
                    asked = steps.send(rows)
        except StopIteration as done:
            answer: T = done.value
            return answer


class AsyncUserConnection:
    """A connection of code with a loop."""

    def __init__(self, run: Callable[[Statement], Awaitable[Rows]], check: Callable[[], None]) -> None:
        self._run = run
        self._check = check

    async def take(self, steps: Steps[T], written: Written) -> T:
        """Take the steps on the connection; what they come to. What goes wrong is told to them first."""
        try:
            asked = next(steps)
            while True:
                try:
                    rows = await self._run(written(asked))
                    self._check()
                except Exception as error:  # noqa: BLE001 - the steps raise it, unless they know better
                    asked = steps.throw(_in_our_words(error))
                else:
                    asked = steps.send(rows)
        except StopIteration as done:
            answer: T = done.value
            return answer


def user_connection(connection: Any) -> SyncUserConnection | AsyncUserConnection:
    """The face of a user's connection; what is none that we know is refused, with what there is."""
    for known in (_asyncpg, _psycopg, _sqlalchemy):
        if (face := known(connection)) is not None:
            return face
    given = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if type(connection).__name__.endswith(("Pool", "Engine", "sessionmaker")):
        given += " (it gives out connections, and is none itself)"
    raise InvalidInput("connection", f"{given} is not supported; pass {_SUPPORTED}")


# the drivers ---------------------------------------------------------------------------------------


def _asyncpg(connection: Any) -> AsyncUserConnection | None:
    driver: Any = sys.modules.get("asyncpg")
    if driver is None or not isinstance(connection, driver.Connection | driver.pool.PoolConnectionProxy):
        return None

    async def run(statement: Statement) -> Rows:
        return [tuple(row) for row in await connection.fetch(statement.sql, *statement.args)]

    return AsyncUserConnection(run, lambda: _check_asyncpg(connection))


def _psycopg(connection: Any) -> SyncUserConnection | AsyncUserConnection | None:
    driver: Any = sys.modules.get("psycopg")
    if driver is None:
        return None
    # made here, because what `connection.cursor()` makes may be the user's own kind
    if isinstance(connection, driver.Connection):

        def run(statement: Statement) -> Rows:
            with driver.Cursor(connection, row_factory=driver.rows.tuple_row) as cursor:
                cursor.execute(_with_percents(statement.sql), statement.args)
                rows: Rows = cursor.fetchall() if cursor.description else []
                return rows

        return SyncUserConnection(run, lambda: _check_psycopg(connection))
    if isinstance(connection, driver.AsyncConnection):

        async def run_async(statement: Statement) -> Rows:
            async with driver.AsyncCursor(connection, row_factory=driver.rows.tuple_row) as cursor:
                await cursor.execute(_with_percents(statement.sql), statement.args)
                rows: Rows = await cursor.fetchall() if cursor.description else []
                return rows

        return AsyncUserConnection(run_async, lambda: _check_psycopg(connection))
    return None


def _sqlalchemy(connection: Any) -> SyncUserConnection | AsyncUserConnection | None:
    """Statements go through SQLAlchemy itself: it begins its transaction with the first, as with any other."""
    orm, engine, aio = (sys.modules.get(f"sqlalchemy.{name}") for name in ("orm", "engine", "ext.asyncio"))
    got: Any = connection
    if aio is not None and isinstance(got, aio.AsyncSession | aio.async_scoped_session | aio.AsyncConnection):
        of_session = not isinstance(got, aio.AsyncConnection)
        found: list[Any] = [] if of_session else [got]

        async def run_async(statement: Statement) -> Rows:
            if not found:
                found.append(await got.connection())
            sql = _for_sqlalchemy(found[0].dialect, statement.sql)
            return _rows_of(await found[0].exec_driver_sql(sql, statement.args))

        return AsyncUserConnection(run_async, lambda: _check_driver(found[0].sync_connection))
    is_session = orm is not None and isinstance(got, orm.Session | orm.scoped_session)
    if not is_session and (engine is None or not isinstance(got, engine.Connection)):
        return None
    opened: list[Any] = [] if is_session else [got]

    def run(statement: Statement) -> Rows:
        if not opened:
            opened.append(got.connection())
        sql = _for_sqlalchemy(opened[0].dialect, statement.sql)
        return _rows_of(opened[0].exec_driver_sql(sql, statement.args))

    return SyncUserConnection(run, lambda: _check_driver(opened[0]))


def _rows_of(result: Any) -> Rows:
    return [tuple(row) for row in result.all()] if result.returns_rows else []


def _for_sqlalchemy(dialect: Any, sql: str) -> str:
    if dialect.driver not in _DRIVERS:
        raise InvalidInput(
            "connection",
            f"SQLAlchemy uses {dialect.name}+{dialect.driver} here, which is not supported; use {_SUPPORTED}",
        )
    return sql if dialect.driver == "asyncpg" else _with_percents(sql)


def _with_percents(sql: str) -> str:
    """Each argument is named once, in order, so its number says nothing.

    >>> _with_percents("SELECT f($1::text[], $2)")
    'SELECT f(%s::text[], %s)'
    """
    return _PLACE.sub("%s", sql.replace("%", "%%"))


# whether a transaction is open ---------------------------------------------------------------------


def _check_asyncpg(connection: Any) -> None:
    if not connection.is_in_transaction():
        raise _no_transaction("async with connection.transaction(): ...")


def _check_psycopg(connection: Any) -> None:
    if connection.info.transaction_status == _IDLE:
        raise _no_transaction("with connection.transaction(): ..., or turn autocommit off")


def _check_driver(connection: Any) -> None:
    driver = connection.connection.driver_connection
    in_transaction = driver.is_in_transaction() if hasattr(driver, "is_in_transaction") else None
    if in_transaction is None:
        in_transaction = driver.info.transaction_status != _IDLE
    if not in_transaction:
        raise _no_transaction("give up the isolation level AUTOCOMMIT")


def _no_transaction(how: str) -> InvalidInput:
    # nothing of the job has been sent by then: the first statement only looks around
    return InvalidInput(
        "connection",
        "no transaction is open on it (it is in autocommit), so there is nothing for the job to share the fate of; "
        f"open one ({how}), or submit without the connection",
    )


# what goes wrong -----------------------------------------------------------------------------------


def _in_our_words(error: Exception) -> Exception:
    """What we can say more about than the driver. Whatever else happens on a user's connection is told in the driver's
    own errors, which is what the code around expects."""
    origin = getattr(error, "orig", None) or error
    made = _TROUBLE.get(str(getattr(origin, "sqlstate", "") or ""))
    if made is None or isinstance(error, MainstayError):
        return error
    ours = made((str(origin).splitlines() or [""])[0])
    ours.__cause__ = error
    return ours


def _not_set_up(said: str) -> StoreError:
    return StoreError(
        f"the store is not set up in the database of this connection, or not in this version ({said}); run "
        "`mainstay store migrate URL`, and check that the connection goes to the database of the store"
    )


_TROUBLE: dict[str, Callable[[str], MainstayError]] = {
    "3F000": _not_set_up,
    "42P01": _not_set_up,
    "42883": _not_set_up,
    "42703": _not_set_up,
    "42501": lambda said: StoreError(
        f"the role of this connection may not submit jobs ({said}); grant it what docs/transactions.md lists"
    ),
    "23505": lambda said: InsertClash(
        f"another transaction stored the same in this moment ({said}); roll back and try again"
    ),
    "25P02": lambda _: StoreError(
        "the transaction of this connection has failed already, and takes nothing more; roll it back"
    ),
    "25006": lambda said: StoreReadOnly(f"the transaction of this connection cannot write ({said})"),
    "55P03": lambda said: StoreLocked(
        f"another transaction that is not finished submits with the same key or waits for the same jobs ({said}); roll "
        "back and try again"
    ),
}
