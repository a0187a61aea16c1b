"""The numbers of a load test over HTTP."""

from __future__ import annotations

import msgspec

from mainstay.control import Completion
from mainstay.load.stats.model import Summary
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
    assert msgspec.convert((await server.client.get(path)).json(), Summary) == half
    await server.control.complete([Completion(job, result=msgspec.to_builtins(whole))])
    assert msgspec.convert((await server.client.get(path)).json(), Summary) == whole


async def test_another_job_is_no_load_test(server: Server) -> None:
    made = await server.control.submit("a")
    answer = await server.client.get(f"/api/v1/jobs/{made.id}/summary")
    assert answer.status_code == 422
    assert "not a load test" in answer.json()["detail"]
