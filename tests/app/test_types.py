"""What a type checker says about programs that use tasks: right ones pass, wrong ones fail where they are wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: a line that ends in `# E: code` must be refused with that code; all others must pass
PROGRAM = """
from collections.abc import AsyncIterator
from typing import assert_type

from mainstay import App, Call, Context, Draft, Every, Handle, Quarantine, Wait, context
from mainstay.app import Group
from mainstay.model import ErrorInfo, Job

app = App("sqlite:///jobs.db", lease="20s", retries=5)
App("memory:", leese="20s")  # E: call-arg


def patient(attempt: int, job: Job, error: ErrorInfo) -> Wait | Quarantine:
    return Wait(60) if attempt < 5 else Quarantine()


@app.task(retries=5, timeout="30s", queue="mail")
async def send(to: str, subject: str) -> int:
    context().progress(1, 2)
    return 1


@app.task
async def bare(n: int) -> list[str]:
    return [str(n)]


@app.task
def plain(x: float = 1.0, *rest: int, flag: bool = False) -> str:
    return str(x)


@app.schedule("*/5 * * * *", tz="Europe/Berlin", catch_up="once", overlap="skip")
@app.task(process=True, retry_on=(OSError,), give_up_on=ValueError)
def crunch() -> int:
    return 1


app.schedule(Every("15m"), name="bare")(bare.job(3))
app.schedule("15m")(len)  # E: type-var


@app.task(policy=patient, tags=["a"], unique=True)
def judged() -> None: ...


@app.task(retrys=5)  # E: call-overload untyped-decorator
def misspelt() -> None: ...


@app.task(key="x")  # E: call-overload untyped-decorator
def misplaced() -> None: ...


@app.before_submit
def trace(draft: Draft) -> None:
    draft.add_metadata(trace_id="1")


@app.around_run
async def around(running: Context) -> AsyncIterator[None]:
    yield


@app.lifespan
async def pools() -> AsyncIterator[dict[str, int]]:
    yield {}


async def right() -> None:
    job = await send.submit("a@b.c", subject="hi")
    assert_type(job, Handle[int])
    assert_type(await job.result(timeout="10s"), int)
    assert_type(await send("a", subject="b"), int)
    assert_type(plain(1.0, 2, flag=True), str)
    assert_type(await bare(1), list[str])
    assert_type(await send.options(delay="5m", key="welcome-42").submit("a@b.c", subject="hi"), Handle[int])
    assert_type(await app.submit_many(send.job(to, subject="hi") for to in ["a"]), list[Handle[int]])
    assert_type(plain.submit_sync(2.0).result_sync(), str)
    assert_type(bare.handle("id"), Handle[list[str]])
    group = await app.group([bare.job(n) for n in range(10)], then=crunch.job(), when="succeeded")
    assert_type(group, Group[list[str], int])
    await send.options(after=[job, "id", *group.members], after_when="settled").submit("a", subject="b")
    mixed: list[Call[object]] = [bare.job(1), crunch.job()]
    await app.submit_many(mixed)


async def wrong() -> None:
    await send.submit("a@b.c", 7)  # E: arg-type
    await send.submit("a@b.c")  # E: call-arg
    await send.submit("a@b.c", subject="x", body="y")  # E: call-arg
    await send("a")  # E: call-arg
    send.job(1, subject="x")  # E: arg-type
    send.submit_sync()  # E: call-arg
    plain(1.0, flag="yes")  # E: arg-type
    send.options(dellay="5m")  # E: call-arg
    send.options(timeout=30)  # E: typeddict-item arg-type
    send.options(retries="5")  # E: arg-type
    send.options(on_clash="explode")  # E: arg-type
    number: str = await (await send.submit("a", "b")).result()  # E: assignment
    await app.group([bare.job(1)], then=crunch)  # E: arg-type
    await app.group([bare.job(1)], then=crunch.job(), when="later")  # E: arg-type
"""


@pytest.mark.slow
def test_wrong_arguments_and_options_fail_in_the_type_checker(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    # with our own settings, so that what `make check` has found out about our modules need not be found out again
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(program)]

    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )

    said = done.stdout
    assert done.stderr == ""
    found: dict[int, set[str]] = {}
    for line, code in re.findall(r"program\.py:(\d+): error: .*\[([\w-]+)\]$", said, flags=re.MULTILINE):
        found.setdefault(int(line), set()).add(code)
    # where one mistake can be told in two ways, either will do
    expected = {
        number: set(mark[1].split())
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if (mark := re.search(r"# E: (.+)$", line))
    }
    assert found.keys() == expected.keys(), said
    assert all(found[line] <= expected[line] for line in expected), said
