"""Batches whose units run outside, from end to end: real workers, real outside jobs, real kills."""

from __future__ import annotations

import asyncio
import json
import signal
import socket

import pytest

from mainstay.batch.runners import ProcessRunner
from mainstay.control.check import check
from mainstay.errors import InvalidInput
from mainstay.stores import Query
from tests.batch.runners.conftest import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: runs what it is to run until there is a file `enough`, and then ends it; its own exit code is always 0
CUT_SHORT = """exec:sh -c '{line} --grace 0s & pid=$!
while kill -0 $pid 2>/dev/null && [ ! -e enough ]; do sleep 0.05; done
kill $pid 2>/dev/null; wait $pid; exit 0'"""


@pytest.mark.parametrize("runner", ["exec:nice -n 1 {command}", "spool"])
async def test_a_batch_runs_outside_and_its_handle_is_in_its_story_and_can_be_searched_for(
    lab: Lab, runner: str
) -> None:
    async with lab.worker():
        run = await lab.submit(runner)
        job = await run.wait("200s")

    assert job.status == "succeeded"
    assert await lab.who_ran(run) == {"exec"}
    outside = (await run.status()).outside
    assert outside is not None
    assert (outside.name, outside.state, outside.exit_code) == (f"mainstay-{run.id}-1", "exited", 0)
    assert await lab.told(run, f"outside job {outside.name} ({outside.handle}) exited with 0")
    found = await lab.control.store.find(Query(text=f"({outside.handle})"))
    assert [found.id for found in found.jobs] == [run.id]


@pytest.mark.parametrize("runner", ["process-killed", "spool-killed"])
async def test_a_worker_killed_between_the_start_and_the_note_of_it_makes_no_second_outside_job(
    lab: Lab, runner: str
) -> None:
    async with lab.worker():
        run = await lab.submit(runner)
        job = await run.wait("200s")

    assert job.status == "succeeded"
    assert (lab.folder / "killed").exists()
    begun = len(list((lab.folder / "state" / "runners").glob("*.json"))) if runner == "process-killed" else 0
    assert begun + lab.spool.log().count("submit") == 1


async def test_an_exit_code_other_than_zero_is_told_and_the_outputs_decide(lab: Lab) -> None:
    async with lab.worker():
        run = await lab.submit("exec:sh -c '{line}; exit 3'")
        job = await run.wait("200s")

    assert job.status == "succeeded"
    assert await lab.told(run, "exited with 3")


async def test_an_exit_code_of_zero_without_all_outputs_is_partial_and_a_resume_starts_another(lab: Lab) -> None:
    async with lab.worker():
        run = await lab.submit(CUT_SHORT, waits=2)
        await lab.until_done(run, 3)
        (lab.folder / "enough").touch()
        job = await run.wait("200s")
        first = (job.status, job.failures, await lab.told(run, f"mainstay-{run.id}-1 ("))

        (lab.folder / "enough").unlink()
        lab.go()
        await run.resume()
        await lab.until_told(run, "-> running")
        done = await run.wait("200s")

    assert first == ("partial", 0, True)
    assert "3 of 5 outputs are present" in str(job.reason)
    assert done.status == "succeeded"
    assert await lab.told(run, f"mainstay-{run.id}-2 (")


async def test_sigterm_gives_units_back_without_a_failure_and_the_next_one_finishes_them(lab: Lab) -> None:
    (lab.spool.folder / "hold").touch()
    async with lab.worker():
        run = await lab.submit("spool", waits=2)
        await lab.until_told(run, "was started by spool")
        evicted = await lab.execute(run, "--grace", "0s")
        await lab.until_done(run, 3)
        await lab.until(lambda: _runs(lab, run.id))
        evicted.send_signal(signal.SIGTERM)
        code = await evicted.wait()
        rows = (await lab.control.store.find(Query(parent=run.id, status=("pending",)), limit=9)).jobs
        (given_back,) = (row for row in rows if row.name == "lab:unit")

        lab.go()
        await (await lab.execute(run)).wait()
        job = await run.wait("200s")

    assert code == 1
    assert (given_back.failures, given_back.crashes, given_back.releases) == (0, 0, 1)
    assert job.status == "succeeded"
    assert await lab.told(run, "is no longer needed and was stopped")
    assert lab.spool.status("100").startswith("CANCELLED")


async def _runs(lab: Lab, job_id: str) -> bool:
    rows = (await lab.control.store.find(Query(parent=job_id, status=("running",)), limit=9)).jobs
    return any(row.started_ms is not None and row.name == "lab:unit" for row in rows)


async def test_a_cancel_stops_the_outside_job_first(lab: Lab) -> None:
    async with lab.worker():
        run = await lab.submit("exec:{command} --grace 0s", waits=2)
        await lab.until_done(run, 3)
        await run.cancel("wrong beta")
        job = await run.wait("200s")
        seen = await ProcessRunner().look("", f"mainstay-{run.id}-1")

    assert job.status == "cancelled"
    assert str(job.reason).startswith("wrong beta; outside job mainstay-")
    assert seen.state == "exited"


async def test_a_stop_that_fails_is_told_and_tried_again_and_the_batch_is_not_cancelled_before(lab: Lab) -> None:
    async with lab.worker():
        run = await lab.submit("spool", waits=2)
        await lab.until_done(run, 3)
        (lab.spool.folder / "refuse").touch()
        await run.cancel("wrong beta")
        await lab.until_told(run, "cannot be stopped: ")

        async def again() -> bool:
            return lab.spool.log().count("cancel") > 2

        await lab.until(again)
        waiting = (await run.status()).job.status
        (lab.spool.folder / "refuse").unlink()
        job = await run.wait("200s")

    assert waiting == "cancelling"
    assert job.status == "cancelled"
    assert lab.spool.status("100").startswith("CANCELLED")


async def test_an_outside_job_that_vanished_leaves_its_batch_as_it_is_and_is_reported(lab: Lab) -> None:
    async with lab.worker():
        run = await lab.submit("spool", waits=2)
        await lab.until_done(run, 3)
        (lab.spool.folder / "lose").touch()
        await lab.until_told(run, "is gone (the scheduler does not know it)")
        status = await run.status()
        code, said = await lab.said("jobs", "sync", "--app", "lab:app", "--json")
        findings = await check(lab.control.store)
        lab.go()
        job = await run.wait("200s")

    assert (status.job.status, status.outside and status.outside.state) == ("running", "gone")
    (synced,) = json.loads(said)["outside"]
    assert (code, synced["job"], synced["state"], synced["fine"]) == (1, run.id, "gone", False)
    assert f"run `mainstay batch exec {run.id}` somewhere, or cancel it" in synced["text"]
    assert not findings.violations
    # whoever holds units goes on with them, seen or not
    assert job.status == "succeeded"


async def test_sync_records_an_exit_code_while_no_worker_is_there_and_the_next_one_goes_on(lab: Lab) -> None:
    async with lab.worker():
        run = await lab.submit(CUT_SHORT.replace("exit 0", "exit 7"), waits=2)
        await lab.until_done(run, 3)
    (lab.folder / "enough").touch()

    async def exited() -> bool:
        return (await ProcessRunner().look("", f"mainstay-{run.id}-1")).over

    await lab.until(exited)
    code, said = await lab.said("jobs", "sync", run.id, "--store", lab.app.store_url)
    recorded = await lab.told(run, "exited with 7")
    async with lab.worker():
        job = await run.wait("200s")

    assert (code, recorded) == (0, True)
    assert f"{socket.gethostname()}:" in said
    assert "exited (7)" in said
    assert job.status == "partial"


async def test_sync_finishes_a_batch_whose_units_are_done_while_no_worker_is_there(lab: Lab) -> None:
    async with lab.worker():
        run = await lab.submit("exec:nice -n 1 {command}", waits=2, study="plain")
        await lab.until_done(run, 3)
    lab.go()

    async def exited() -> bool:
        return (await ProcessRunner().look("", f"mainstay-{run.id}-1")).over

    await lab.until(exited)
    code, said = await lab.said("jobs", "sync", "--store", lab.app.store_url)

    job = await lab.control.jobs.get(run.id)
    assert (code, job.status) == (0, "succeeded")
    assert "succeeded" in said
    findings = await check(lab.control.store)
    assert not findings.violations
    async with lab.worker():

        async def driver_has_ended() -> bool:
            return not await lab.units(run, "pending", "running")

        await lab.until(driver_has_ended)
    assert (await lab.control.jobs.get(run.id)).version == job.version


async def test_exec_refuses_a_batch_that_runs_on_workers_and_a_submit_a_runner_that_is_not_there(lab: Lab) -> None:
    run = await lab.submit("local")
    process = await lab.execute(run)

    assert await process.wait() == 2
    with pytest.raises(InvalidInput, match="did you mean 'spool'"):
        await lab.submit("spol")


async def test_a_batch_that_is_over_leaves_exec_nothing_to_do(lab: Lab) -> None:
    run = await lab.submit("spool")
    await run.cancel()
    process = await lab.execute(run)

    assert await asyncio.wait_for(process.wait(), 200) == 0
