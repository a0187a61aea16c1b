"""A SQLite file with jobs of every fate, made once by the real parts, and ways to damage copies of it."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from mainstay.control import Completion, Control, Failure
from mainstay.control.check import Report, check
from mainstay.lifecycle import Chain
from mainstay.lifecycle.events import Event
from mainstay.model import ErrorInfo, IdSource, Job, Session
from mainstay.stores import JobStore, open_store
from mainstay.testing import VirtualClock, new_job

ERROR = ErrorInfo(type="ValueError", message="no luck")


async def people(control: Control, store: JobStore, clock: VirtualClock) -> dict[str, str]:
    """Jobs of every fate, by name."""
    ids: dict[str, str] = {}

    async def submitted(name: str, **options: Any) -> str:
        made = await control.jobs.submit("work.do", {"for": name}, **{"queue": name, **options})
        ids[name] = made.id
        return made.id

    async def claimed(name: str, session: str = "s1") -> Job:
        await submitted(name)
        [job] = await control.claims.claim([name], session, 1)
        await control.claims.start([job])
        clock.advance(1)
        return await control.jobs.get(job.id)

    await store.open_session(Session(id="s1", lease_s=1_000_000))
    await submitted("pending")
    await submitted("scheduled", delay="1h")
    await claimed("running")
    await control.attempts.complete([Completion(job=await claimed("succeeded"), result={"ok": True})])
    await control.attempts.fail([Failure(job=await claimed("retried"), error=ERROR)])
    hopeless = [await claimed("quarantined")]
    while hopeless:
        await control.attempts.fail([Failure(job=hopeless[0], error=ERROR)])
        clock.advance(600)
        hopeless = await control.claims.claim(["quarantined"], "s1", 1)
    await submitted("cancelled")
    await control.operations.cancel(ids["cancelled"], actor="ann")
    await control.operations.set_limit("one", 1)
    ids["first"] = (await control.jobs.submit("work.do", {}, queue="limited", concurrency_key="one")).id
    ids["blocked"] = (await control.jobs.submit("work.do", {}, queue="limited", concurrency_key="one")).id
    await control.claims.claim(["limited"], "s1", 2)
    units = IdSource(random.Random(3))
    parent = await claimed("parent")
    unit = new_job(clock, units, queue="units", parent=parent.id, unit="a", chain=store.chain)
    done = new_job(clock, units, queue="units", parent=parent.id, unit="b", chain=store.chain)
    await store.insert([unit, done])
    ids["unit"], ids["other_unit"] = unit.job.id, done.job.id
    return ids


class Files:
    """Copies of the file, opened and damaged at will."""

    def __init__(self, path: Path, clock: VirtualClock, ids: dict[str, str]) -> None:
        self.path = path
        self.clock = clock
        self.ids = ids
        self.chain = Chain()

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @asynccontextmanager
    async def store(self) -> AsyncIterator[JobStore]:
        store = await open_store(self.url, clock=self.clock)
        try:
            yield store
        finally:
            await store.close()

    def sql(self, statement: str, *values: Any) -> list[Any]:
        db = apsw.Connection(str(self.path))
        try:
            return list(db.execute(statement, values))
        finally:
            db.close()

    def set(self, name: str, /, **columns: Any) -> None:
        """Change columns of a row behind everybody's back."""
        changes = ", ".join(f'"{column}" = ?' for column in columns)
        self.sql(f"UPDATE jobs SET {changes} WHERE id = ?", *columns.values(), self.ids[name])

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
            self.sql(f"INSERT INTO events VALUES ({', '.join('?' * 11)})", job_id, seq, *body, head)
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


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, dict[str, str]]:
    path = tmp_path_factory.mktemp("template") / "jobs.db"
    clock = VirtualClock()

    async def make() -> dict[str, str]:
        store = await open_store(f"sqlite:///{path}", clock=clock)
        try:
            return await people(Control(store, rng=random.Random(1)), store, clock)
        finally:
            await store.close()

    ids = asyncio.run(make())
    return path, clock.now_ms(), ids


@pytest.fixture
def files(template: tuple[Path, int, dict[str, str]], tmp_path: Path) -> Files:
    path, now_ms, ids = template
    copy = tmp_path / "jobs.db"
    shutil.copy(path, copy)
    return Files(copy, VirtualClock(now_ms), dict(ids))
