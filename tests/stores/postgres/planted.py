"""A schema with jobs of every fate, made once by the real parts, and ways to damage it with plain SQL.

It has the face of the `Files` that the check's own tests damage, so that the same damages can be planted here.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import psycopg

from mainstay.control import Control
from mainstay.control.check import Report, check
from mainstay.lifecycle import Chain, Event
from mainstay.model import Job, Options
from mainstay.stores import JobStore, open_store
from mainstay.testing import VirtualClock
from tests.control.check.conftest import people

_TEXTS = ("options", "error", "progress")
#: counters are integers of four bytes, and a length is a difference of two of them
_MOST = 2**30


class Template:
    """What every test starts from: a schema as the real parts left it, and a copy of all its tables."""

    def __init__(self, server: str, schema: str) -> None:
        self.url = f"{server}?schema={schema}&auto_migrate=on"
        self.db = psycopg.connect(server, autocommit=True, options=f"-c search_path={schema}")
        self._schema = schema
        self.drop()
        clock = VirtualClock()
        self.ids = asyncio.run(self._made(clock))
        self.now_ms = clock.now_ms()
        self.db.execute(f"CREATE SCHEMA {schema}_saved")
        self._tables = [
            row[0] for row in self.db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema])
        ]
        for table in self._tables:
            self.db.execute(f"CREATE TABLE {schema}_saved.{table} AS TABLE {schema}.{table}")  # type: ignore[arg-type]

    def restore(self) -> None:
        with self.db.transaction():
            self.db.execute(f"TRUNCATE {', '.join(self._tables)}")  # type: ignore[arg-type]
            for table in self._tables:
                self.db.execute(f"INSERT INTO {table} SELECT * FROM {self._schema}_saved.{table}")  # type: ignore[arg-type]

    def drop(self) -> None:
        self.db.execute(f"DROP SCHEMA IF EXISTS {self._schema}, {self._schema}_saved CASCADE")  # type: ignore[arg-type]

    async def _made(self, clock: VirtualClock) -> dict[str, str]:
        store = await open_store(self.url, clock=clock)
        try:
            return await people(Control(store, rng=random.Random(1)), store, clock)
        finally:
            await store.close()


class Planted:
    """The schema as a test finds it, opened and damaged at will."""

    def __init__(self, template: Template) -> None:
        template.restore()
        self.url = template.url
        self.clock = VirtualClock(template.now_ms)
        self.ids = dict(template.ids)
        self.chain = Chain()
        self._db = template.db

    @asynccontextmanager
    async def store(self) -> AsyncIterator[JobStore]:
        store = await open_store(self.url, clock=self.clock)
        try:
            yield store
        finally:
            await store.close()

    def sql(self, statement: str, *values: Any) -> list[Any]:
        cursor = self._db.execute(statement.replace("?", "%s"), values)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []

    def set(self, name: str, /, **columns: Any) -> None:
        """Change columns of a row behind everybody's back, as far as the types of the columns let it be changed."""
        values = [_as_stored(column, value) for column, value in columns.items()]
        changes = ", ".join(f'"{column}" = ?' for column in columns)
        self.sql(f"UPDATE jobs SET {changes} WHERE id = ?", *values, self.ids[name])

    def set_event(self, name: str, seq: int, **columns: Any) -> None:
        changes = ", ".join(f'"{column}" = ?' for column in columns)
        self.sql(f"UPDATE events SET {changes} WHERE job_id = ? AND seq = ?", *columns.values(), self.ids[name], seq)

    def forge(self, name: str, *steps: dict[str, Any], **row: Any) -> None:
        """Append events as one who knows how digests are made, and make the row fit them."""
        job_id = self.ids[name]
        [(seq, head, status, token)] = self.sql("SELECT version, head, status, token FROM jobs WHERE id = ?", job_id)
        for step in steps:
            seq += 1
            told = {"at_ms": self.clock.now_ms(), "source": status, "actor": "mallory", "reason": None, "token": token}
            told |= {"flag": "", "details": None} | step
            body = [told[field] for field in Event.__struct_fields__[2:-1]]
            head = self.chain.digest(head, (job_id, seq, *body))
            status, token = told["to"], told["token"]
            names = ", ".join(f'"{field}"' for field in Event.__struct_fields__)
            self.sql(f"INSERT INTO events ({names}) VALUES ({', '.join('?' * 11)})", job_id, seq, *body, head)
        self.set(name, version=seq, head=head, token=token, **{"status": status, **row})

    async def check(self, *, repair: bool = False) -> Report:
        async with self.store() as store:
            return await check(store, repair=repair)

    async def row(self, name: str) -> Job:
        async with self.store() as store:
            [job] = await store.get([self.ids[name]])
        assert job is not None
        return job

    async def events(self, name: str) -> list[Event]:
        async with self.store() as store:
            return await store.events(self.ids[name])

    def codes(self, report: Report, name: str) -> AbstractSet[str]:
        return {found.code for found in report.violations if found.job_id == self.ids[name]}


def _as_stored(column: str, value: Any) -> Any:
    if column == "options":
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.json.encode(msgspec.msgpack.decode(value, type=Options)).decode()
    if isinstance(value, bytes) and column in _TEXTS:
        return value.replace(b"\0", b"").decode("latin-1")
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return int(value) if column.endswith("_ms") or column == "rank" else max(-_MOST, min(int(value), _MOST))
