"""The numbers of a load test over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay.control import Completion, Failure
from mainstay.load.handler import stored
from mainstay.load.report.compare import as_run
from mainstay.load.stats.model import CheckSummary, MetricSummary, OutputOutcome, SliceReport, Summary, Trust
from mainstay.model import ErrorInfo
from mainstay.worker.state_files import state_folder
from tests.load.report.runs import a_summary
from tests.web.conftest import Server, serving


async def test_the_numbers_of_a_run_are_there_as_soon_as_some_are_stored(server: Server) -> None:
    made = await server.control.jobs.submit("shop", kind="load")
    path = f"/api/v1/jobs/{made.id}/summary"
    early = await server.client.get(path)
    assert (early.status_code, early.json()["type"]) == (409, "no_numbers_yet")
    session = await server.control.claims.open_session(worker="w")
    (job,) = await server.control.claims.claim(["default"], session.id, 1)
    await server.control.claims.start([job])
    half, whole = a_summary(count=2000), a_summary()
    await server.control.claims.report(
        [server.control.claims.progress(job, 1, 2, checkpoint=msgspec.msgpack.encode(half))]
    )
    told = msgspec.convert((await server.client.get(path)).json(), Summary)
    assert told == msgspec.structs.replace(half, ended="running", verdict="running")
    await server.control.attempts.complete([Completion(job, result=msgspec.to_builtins(whole))])
    assert msgspec.convert((await server.client.get(path)).json(), Summary) == whole


async def test_another_job_is_no_load_test(server: Server) -> None:
    made = await server.control.jobs.submit("a")
    answer = await server.client.get(f"/api/v1/jobs/{made.id}/summary")
    assert answer.status_code == 422
    assert "not a load test" in answer.json()["detail"]


async def test_a_run_that_did_not_end_by_itself_is_never_told_as_passed(server: Server) -> None:
    control = server.control
    session = await control.claims.open_session(worker="w")
    made = await control.jobs.submit("Shop", kind="load", queue="loads", retries=0)
    jobs = await control.claims.claim(["loads"], session.id, 1)
    await control.claims.start(jobs)
    # an earlier version stored this on the way
    await control.claims.report([control.claims.progress(jobs[0], 1.0, checkpoint=stored(a_summary(verdict="passed")))])
    path = f"/api/v1/jobs/{made.id}/summary"

    running = (await server.client.get(path)).json()
    await control.attempts.fail([Failure(jobs[0], ErrorInfo(type="WorkerLost", message="its worker died"))])
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


def telling() -> Summary:
    """A summary with something to hide in each of its texts."""
    summary = a_summary()
    said = "hunter2222 is refused by https://bob:pa55word@example.org"
    return msgspec.structs.replace(
        summary,
        header=msgspec.structs.replace(
            summary.header,
            tags={"api_key": "sk-live-1", "team": "hunter2222"},
            workflows=[
                {"name": "Shop", "tags": {"token": "tok-1"}, "steps": [{"name": "buy", "tags": {"pwd": "p-1"}}]}
            ],
        ),
        ended=f"failed: {said}",
        trust=Trust(
            ok=False,
            reasons=[
                f"3 users could not begin (on_start raised ValueError: {said}): too few",
                f"slice 1 (n2) was lost, while it was under load: {said}",
            ],
        ),
        slices=[SliceReport(slice=1, node="n2", processes=2, loss=said)],
        examples={"ValueError": said},
        steps=[msgspec.structs.replace(one, examples={"ValueError": said}) for one in summary.steps],
        checks=[CheckSummary(workflow="Shop", step="buy", passed=1, failed=2, reasons={said: 2})],
        metrics=[MetricSummary(name="m", type="counter", tags={"password": "pass-1"}, value=1.0)],
        skipped={"Other": said},
        outputs=[OutputOutcome(name="csv", error=said)],
        stream="/srv/private/run.ndjson.zst",
    )


SECRETS = ("hunter2222", "pa55word", "sk-live-1", "tok-1", "p-1", "pass-1")


@pytest.mark.parametrize("shows", [True, False])
async def test_the_texts_of_a_load_test_are_masked_and_left_out_where_no_payloads_are_shown(shows: bool) -> None:
    async with serving(show_payloads=shows) as server:
        control = server.control
        made = await control.jobs.submit("shop", {"password": "hunter2222"}, kind="load")
        other = await control.jobs.submit("shop", {"password": "hunter2222"}, kind="load")
        session = await control.claims.open_session(worker="w")
        for job in await control.claims.claim(["default"], session.id, 2):
            await control.claims.start([job])
            await control.attempts.complete([Completion(job, result=msgspec.to_builtins(telling()))])
        told = (await server.client.get(f"/api/v1/jobs/{made.id}/summary")).json()
        pages = [f"/loads/{made.id}", "/loads", f"/loads/compare?run={made.id}&run={other.id}"]
        answers = [await server.client.get(path) for path in pages]
    assert [answer.status_code for answer in answers] == [200] * 3
    text = msgspec.json.encode(told).decode() + "".join(answer.text for answer in answers)
    assert [secret for secret in SECRETS if secret in text] == []
    said = "*** is refused by https://bob:***@example.org" if shows else "***"
    assert told["examples"] == {"ValueError": said}
    assert {one["examples"]["ValueError"] for one in told["steps"]} == {said}
    assert told["checks"][0]["reasons"] == {said: 2}
    assert told["header"]["tags"] == {"api_key": "***", "team": "***"}
    assert told["ended"] == f"failed: {said}"
    raised = f"ValueError: {said}" if shows else "***"
    assert told["trust"]["reasons"] == [
        f"3 users could not begin (on_start raised {raised}): too few",
        f"slice 1 (n2) was lost, while it was under load: {said}",
    ]
    assert told["slices"][0]["loss"] == said
    assert told["stream"] == ("/srv/private/run.ndjson.zst" if shows else "")
    assert ("is refused" in text) is shows


async def test_a_comparison_opens_no_file_but_the_recordings_of_its_jobs(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSTAY_STATE", str(tmp_path / "state"))
    opened: list[Path] = []

    def read(path: Any) -> Any:
        opened.append(path)
        return as_run(a_summary())

    monkeypatch.setattr("mainstay.load.report.recorded.read_result", read)
    control = server.control
    session = await control.claims.open_session(worker="w")
    folder = state_folder("load")

    async def run(name: str, place: Path = folder) -> str:
        made = await control.jobs.submit("shop", kind="load")
        (job,) = await control.claims.claim(["default"], session.id, 1)
        await control.claims.start([job])
        path = place / name.format(id=job.id)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}")
        summary = msgspec.structs.replace(a_summary(), stream=str(path))
        await control.attempts.complete([Completion(job, result=msgspec.to_builtins(summary))])
        return made.id

    outside = [
        await run("{id}-1.ndjson.zst", tmp_path),
        await run("other.ndjson.zst"),
        await run("{id}-1.ndjson", folder / "deep"),
    ]
    linked = await run("{id}-1.ndjson.zst")
    (folder / f"{linked}-1.ndjson.zst").rename(tmp_path / "elsewhere")
    (folder / f"{linked}-1.ndjson.zst").symlink_to(tmp_path / "elsewhere")
    outside.append(linked)
    own = await run("{id}-1.ndjson.zst")
    for each in outside:
        assert (await server.client.get(f"/loads/compare?run={each}&run={own}")).status_code == 200
    assert [path.name for path in opened] == [f"{own}-1.ndjson.zst"] * len(outside)
