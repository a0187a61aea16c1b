"""An app under a real worker: supervisor, engine and children, in processes of their own."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

MODULE = "an_app_under_a_worker"
PROGRAM = """
import contextvars
import os
from collections.abc import AsyncIterator

from mainstay import App, Context, context

app = App("sqlite:///jobs.db", backoff_base="0s")
who = contextvars.ContextVar("who", default="nobody")


@app.lifespan
async def pools() -> AsyncIterator[str]:
    yield f"pool of {os.getpid()}"


@app.around_run
async def around(running: Context) -> AsyncIterator[None]:
    who.set(running.job.name)
    yield


def seen() -> tuple[str, bool, int]:
    return who.get(), app.state == f"pool of {os.getpid()}", os.getpid()


@app.task(name="loop")
async def loop() -> tuple[str, bool, int]:
    return seen()


@app.task(name="thread")
def thread() -> tuple[str, bool, int]:
    return seen()


@app.task(name="process", process=True)
def process() -> tuple[str, bool, int]:
    return seen()


@app.task(name="async-process", process=True)
async def async_process() -> tuple[str, bool, int]:
    return seen()


@app.task(name="nested", process=True)
def nested() -> str:
    context().submit(thread.options(tags=["followed"]).job())
    return thread.submit_sync().result_sync("20s")[0]


@app.task(name="picky", give_up_on=LookupError)
async def picky() -> None:
    raise KeyError("gone")
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program, with a worker of its own at work."""
    (tmp_path / f"{MODULE}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(MODULE)
    worker = subprocess.Popen([sys.executable, "-m", "mainstay", "worker", f"{MODULE}:app", "--log-level", "warning"])
    try:
        yield module
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0
    finally:
        worker.kill()
        worker.wait()
        module.app.close_sync()
        del sys.modules[MODULE]


@pytest.mark.slow
def test_every_mode_has_its_hooks_its_state_and_its_results(program: ModuleType) -> None:
    names = ["loop", "thread", "process", "async-process"]
    jobs = {name: program.app.tasks[name].submit_sync() for name in names}

    found = {name: job.result_sync("60s") for name, job in jobs.items()}

    assert {name: seen[:2] for name, seen in found.items()} == {name: (name, True) for name in names}
    pids = {name: seen[2] for name, seen in found.items()}
    assert pids["loop"] == pids["thread"]
    assert pids["loop"] not in (pids["process"], pids["async-process"])


@pytest.mark.slow
def test_a_function_in_a_child_process_submits_jobs_waits_for_them_and_leaves_others_to_follow(
    program: ModuleType,
) -> None:
    from mainstay.stores import Query

    job = program.app.tasks["nested"].submit_sync()

    assert job.result_sync("60s") == "thread"
    found = program.app.client.run(lambda: program.app.control.store.find(Query(tag="followed")), what="find")
    (followed,) = found.jobs
    assert program.app.handle(followed.id).result_sync("60s")[0] == "thread"


@pytest.mark.slow
def test_an_error_the_task_gives_up_on_is_not_tried_again(program: ModuleType) -> None:
    row = program.app.tasks["picky"].submit_sync().wait_sync("60s")

    assert (row.status, row.failures) == ("failed", 1)
