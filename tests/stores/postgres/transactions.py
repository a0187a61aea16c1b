"""Transactions as users have them: each kind of connection that jobs can be submitted on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

Ends = Callable[[bool], Any]


class Open:
    """An open transaction: what is passed on, and how it ends."""

    def __init__(self, connection: Any, commit: Any, rollback: Any, execute: Any) -> None:
        self.connection = connection
        self._commit, self._rollback, self._execute = commit, rollback, execute

    async def commit(self) -> None:
        await _done(self._commit())

    async def rollback(self) -> None:
        await _done(self._rollback())

    async def execute(self, sql: str) -> None:
        await _done(self._execute(sql))


async def _done(answer: Any) -> None:
    if hasattr(answer, "__await__"):
        await answer


def server(url: str) -> str:
    """The database without our options, as other programs name it."""
    return urlsplit(url)._replace(query="").geturl()


def _with_driver(url: str, driver: str) -> str:
    return server(url).replace("postgresql:", f"postgresql+{driver}:")


@asynccontextmanager
async def on_asyncpg(url: str) -> AsyncIterator[Open]:
    db = await asyncpg.connect(server(url))
    transaction = db.transaction()
    await transaction.start()
    try:
        yield Open(db, transaction.commit, transaction.rollback, db.execute)
    finally:
        await db.close()


@asynccontextmanager
async def on_asyncpg_pool(url: str) -> AsyncIterator[Open]:
    async with asyncpg.create_pool(server(url), min_size=1, max_size=1) as pool, pool.acquire() as db:
        transaction = db.transaction()
        await transaction.start()
        yield Open(db, transaction.commit, transaction.rollback, db.execute)


@asynccontextmanager
async def on_psycopg(url: str) -> AsyncIterator[Open]:
    with psycopg.connect(server(url)) as db:
        yield Open(db, db.commit, db.rollback, db.execute)


@asynccontextmanager
async def on_psycopg_async(url: str) -> AsyncIterator[Open]:
    async with await psycopg.AsyncConnection.connect(server(url)) as db:
        yield Open(db, db.commit, db.rollback, db.execute)


@asynccontextmanager
async def on_sqlalchemy(url: str) -> AsyncIterator[Open]:
    engine = create_engine(_with_driver(url, "psycopg"))
    with engine.connect() as db:
        yield Open(db, db.commit, db.rollback, db.exec_driver_sql)
    engine.dispose()


@asynccontextmanager
async def on_session(url: str) -> AsyncIterator[Open]:
    engine = create_engine(_with_driver(url, "psycopg"))
    with Session(engine) as session:
        yield Open(session, session.commit, session.rollback, lambda sql: session.connection().exec_driver_sql(sql))
    engine.dispose()


@asynccontextmanager
async def on_scoped_session(url: str) -> AsyncIterator[Open]:
    engine = create_engine(_with_driver(url, "psycopg"))
    session = scoped_session(sessionmaker(engine))
    try:
        yield Open(session, session.commit, session.rollback, lambda sql: session.connection().exec_driver_sql(sql))
    finally:
        session.remove()
        engine.dispose()


def on_async_sqlalchemy(driver: str) -> Callable[[str], AbstractAsyncContextManager[Open]]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Open]:
        engine = create_async_engine(_with_driver(url, driver))
        async with engine.connect() as db:
            yield Open(db, db.commit, db.rollback, db.exec_driver_sql)
        await engine.dispose()

    return opened


def on_async_session(driver: str) -> Callable[[str], AbstractAsyncContextManager[Open]]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Open]:
        engine = create_async_engine(_with_driver(url, driver))
        async with AsyncSession(engine) as session:

            async def execute(sql: str) -> None:
                await (await session.connection()).exec_driver_sql(sql)

            yield Open(session, session.commit, session.rollback, execute)
        await engine.dispose()

    return opened


ASYNC: dict[str, Callable[[str], AbstractAsyncContextManager[Open]]] = {
    "asyncpg": on_asyncpg,
    "asyncpg pool": on_asyncpg_pool,
    "psycopg async": on_psycopg_async,
    "SQLAlchemy AsyncConnection, asyncpg": on_async_sqlalchemy("asyncpg"),
    "SQLAlchemy AsyncConnection, psycopg": on_async_sqlalchemy("psycopg"),
    "SQLAlchemy AsyncSession, asyncpg": on_async_session("asyncpg"),
    "SQLAlchemy AsyncSession, psycopg": on_async_session("psycopg"),
}
SYNC: dict[str, Callable[[str], AbstractAsyncContextManager[Open]]] = {
    "psycopg": on_psycopg,
    "SQLAlchemy Connection": on_sqlalchemy,
    "SQLAlchemy Session": on_session,
    "SQLAlchemy scoped_session": on_scoped_session,
}
ALL = {**ASYNC, **SYNC}
