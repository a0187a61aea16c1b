"""The numbers of a load test over HTTP."""

from __future__ import annotations

import msgspec

from mainstay.control import Completion, Failure
from mainstay.load.stats.model import Summary
from mainstay.load.works import stored
from mainstay.model import ErrorInfo
from tests.report.load.runs import a_summary
from tests.web.conftest import Server


async def test_the_numbers_of_a_run_are_there_as_soon_as_some_are_stored(server: Server) -> None:
    made = await server.control.submit("shop", kind="load")
    path = f"/api/v1/jobs/{made.id}/summary"
    early = await server.client.get(path)
    assert (early.status_code, early.json()["type"]) == (409, "no_numbers_yet")
    session = await server.control.open_session(worker="w")
    (job,) = await server.control.claim(["default"], session.id, 1)
    await server.control.start([job])
    half, whole = a_summary(count=2000), a_summary()
    await server.control.report([server.control.progress(job, 1, 2, checkpoint=msgspec.msgpack.encode(half))])
    told = msgspec.convert((await server.client.get(path)).json(), Summary)
    assert told == msgspec.structs.replace(half, ended="running", verdict="running")
    await server.control.complete([Completion(job, result=msgspec.to_builtins(whole))])
    assert msgspec.convert((await server.client.get(path)).json(), Summary) == whole


async def test_another_job_is_no_load_test(server: Server) -> None:
    made = await server.control.submit("a")
    answer = await server.client.get(f"/api/v1/jobs/{made.id}/summary")
    assert answer.status_code == 422
    assert "not a load test" in answer.json()["detail"]


async def test_a_run_that_did_not_end_by_itself_is_never_told_as_passed(server: Server) -> None:
    control = server.control
    session = await control.open_session(worker="w")
    made = await control.submit("Shop", kind="load", queue="loads", retries=0)
    jobs = await control.claim(["loads"], session.id, 1)
    await control.start(jobs)
    # an earlier version stored this on the way
    await control.report([control.progress(jobs[0], 1.0, checkpoint=stored(a_summary(verdict="passed")))])
    path = f"/api/v1/jobs/{made.id}/summary"

    running = (await server.client.get(path)).json()
    await control.fail([Failure(jobs[0], ErrorInfo(type="WorkerLost", message="its worker died"))])
    lost = (await server.client.get(path)).json()

    assert (running["verdict"], running["ended"]) == ("running", "running")
    assert lost["verdict"] == "lost"
    assert lost["ended"].startswith(
        "lost: the job is quarantined (its worker died); the numbers are those of its first "
    )
    for page in ("/loads", f"/loads/{made.id}"):
        text = (await server.client.get(page)).text
        assert "✕</i> lost" in text
        assert "✓</i> passed" not in text
