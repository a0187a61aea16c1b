"""A database to command, and a way to command it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app
from mainstay.control import Control
from mainstay.model import Job
from mainstay.stores import open_store

T = TypeVar("T")


class Shell:
    """Runs commands on one database, as a shell would where MAINSTAY_STORE names it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self._runner = CliRunner()
        self._seed = 0

    def run(self, *words: str, columns: int | None = 100, typed: str | None = None, **environ: str) -> Result:
        env: dict[str, str | None] = {"MAINSTAY_STORE": self.url, **environ}
        env["COLUMNS"] = None if columns is None else str(columns)
        return self._runner.invoke(app, list(words), input=typed, catch_exceptions=False, env=env)

    def json(self, *words: str, code: int = 0) -> Any:
        done = self.run(*words, "--json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    def lines(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self.run(*words).stdout.splitlines()]

    def does(self, work: Callable[[Control], Awaitable[T]]) -> T:
        """Do something to the database, as a program beside the command would."""

        async def do() -> T:
            store = await open_store(self.url)
            self._seed += 1
            try:
                return await work(Control(store, rng=random.Random(self._seed), actor="ann"))
            finally:
                await store.close()

        return asyncio.run(do())

    def submit(self, name: str = "mail.send", n: int = 1, **options: Any) -> list[str]:
        async def work(control: Control) -> list[str]:
            return [(await control.jobs.submit(name, {"n": i}, **options)).id for i in range(n)]

        return self.does(work)

    def get(self, job_id: str) -> Job:
        return self.does(lambda control: control.jobs.get(job_id))

    def statuses(self, ids: Iterable[str]) -> list[str]:
        async def work(control: Control) -> list[str]:
            return ["gone" if job is None else job.status for job in await control.store.get(list(ids))]

        return self.does(work)

    def sql(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        db = apsw.Connection(str(self.path))
        db.execute(statement, values)
        db.close()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path / "jobs.db")
    shell.submit(n=0)
    return shell
