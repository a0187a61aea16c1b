"""Connections of users to PostgreSQL: asyncpg, psycopg and SQLAlchemy, with and without an event loop, behind one
interface.

No driver is imported here: a program with a connection has imported its driver.
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
#: the names that SQLAlchemy has for them
_DRIVERS = ("asyncpg", "psycopg", "psycopg_async")
_PLACE = re.compile(r"\$\d+")
_IDLE = 0


#: converts a statement for the driver
Written = Callable[[Statement], Statement]


class SyncUserConnection:
    """A connection of code without an event loop."""

    def __init__(self, run: Callable[[Statement], Rows], check: Callable[[], None]) -> None:
        self._run = run
        self._check = check

    def take(self, steps: Steps[T], written: Written) -> T:
        """Run the steps on the connection; returns their result. An error is thrown into the steps first."""
        try:
            statement = next(steps)
            while True:
                try:
                    rows = self._run(written(statement))
                    self._check()
                except Exception as error:  # noqa: BLE001 - the steps raise it, unless they handle it
                    statement = steps.throw(_in_our_words(error))
                else:
                    statement = steps.send(rows)
        except StopIteration as done:
            answer: T = done.value
            return answer


class AsyncUserConnection:
    """A connection of code with an event loop."""

    def __init__(self, run: Callable[[Statement], Awaitable[Rows]], check: Callable[[], None]) -> None:
        self._run = run
        self._check = check

    async def take(self, steps: Steps[T], written: Written) -> T:
        """Run the steps on the connection; returns their result. An error is thrown into the steps first."""
        try:
            statement = next(steps)
            while True:
                try:
                    rows = await self._run(written(statement))
                    self._check()
                except Exception as error:  # noqa: BLE001 - the steps raise it, unless they handle it
                    statement = steps.throw(_in_our_words(error))
                else:
                    statement = steps.send(rows)
        except StopIteration as done:
            answer: T = done.value
            return answer


def user_connection(connection: Any) -> SyncUserConnection | AsyncUserConnection:
    """The interface to a user's connection. Refuses other objects with a list of the supported ones."""
    for known in (_asyncpg, _psycopg, _sqlalchemy):
        if (wrapped := known(connection)) is not None:
            return wrapped
    given = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if type(connection).__name__.endswith(("Pool", "Engine", "sessionmaker")):
        given += " (a source of connections, not a connection)"
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
    # not by `connection.cursor()`, which may return a class of the user
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
    """Statements go through SQLAlchemy itself, which begins its transaction with the first one, as usual."""
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
    """The same statement with `%s`: each argument is used once, in order, so the numbers are not needed.

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
    # nothing of the job has been sent by then: the first statement only reads
    return InvalidInput(
        "connection",
        "no transaction is open on it (it is in autocommit), so the job could not be part of one; "
        f"open one ({how}), or submit without the connection",
    )


# errors --------------------------------------------------------------------------------------------


def _in_our_words(error: Exception) -> Exception:
    """A more helpful error of ours, if there is one. All other errors on a user's connection stay those of the driver,
    which the surrounding code expects."""
    origin = getattr(error, "orig", None) or error
    translate = _TRANSLATIONS.get(str(getattr(origin, "sqlstate", "") or ""))
    if translate is None or isinstance(error, MainstayError):
        return error
    ours = translate((str(origin).splitlines() or [""])[0])
    ours.__cause__ = error
    return ours


def _not_set_up(line: str) -> StoreError:
    return StoreError(
        f"the store is not set up in the database of this connection, or not in this version ({line}); run "
        "`mainstay store migrate URL`, and check that the connection goes to the database of the store"
    )


_TRANSLATIONS: dict[str, Callable[[str], MainstayError]] = {
    "3F000": _not_set_up,
    "42P01": _not_set_up,
    "42883": _not_set_up,
    "42703": _not_set_up,
    "42501": lambda line: StoreError(
        f"the role of this connection may not submit jobs ({line}); grant the privileges that docs/transactions.md "
        "lists"
    ),
    "23505": lambda line: InsertClash(
        f"another transaction stored the same key at the same time ({line}); roll back and try again"
    ),
    "25P02": lambda _: StoreError("the transaction of this connection has already failed; roll it back"),
    "25006": lambda line: StoreReadOnly(f"the transaction of this connection cannot write ({line})"),
    "55P03": lambda line: StoreLocked(
        f"another transaction, still open, submits with the same key or waits for the same jobs ({line}); roll back "
        "and try again"
    ),
}
