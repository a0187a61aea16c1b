"""A batch is a job like any other: its options, its secrets, its progress; and what happens when it loses a part."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mainstay import App, Outputs, grid
from mainstay.batch import BatchService, driver, validation as validating
from mainstay.errors import InvalidInput
from mainstay.outputs.layout import manifest_path
from mainstay.testing import Harness
from tests.batch.studies import all_rows, lacking, path, unit_rows
from tests.task.test_codec import Xor

FILE = {"result": "result.txt"}
SECRET = "attack at dawn"


def declared(app: App, **options: object) -> list[str]:
    """A study, and what it ran."""
    ran: list[str] = []

    @app.batch(name="study", outputs=FILE, version="1", retries=0, **options)  # type: ignore[arg-type]
    def study(params: dict, out: Outputs) -> None:
        ran.append(params["n"])
        out.save("result", str(params["n"]).encode())

    return ran


async def test_a_batch_waits_for_its_time_and_its_units_share_its_queue_and_priority(app: App, box: Harness) -> None:
    ran = declared(app)
    run = await app.submit_batch(
        app.batches["study"], params=grid(n=[1, 2]), delay="1h", queue="nights", priority=7, tags=["mine"]
    )
    await box.drain(until="59m")
    waiting = (await run.status()).job.status

    await box.drain()

    job = await run.wait()
    assert (waiting, job.status, job.options.tags) == ("scheduled", "succeeded", ("mine",))
    rows = await unit_rows(app.control, run.id)
    assert {(row.queue, row.priority) for row in rows} == {("nights", 7)}
    assert sorted(ran) == [1, 2]


async def test_what_is_stored_of_a_batch_is_sealed(root: Path) -> None:
    app = App("memory:", outputs=f"file://{root}?sync=off", codec=Xor(0x5A))
    ran = declared(app)
    with Harness(app) as box:
        run = await app.submit_batch(app.batches["study"], params=[{"n": SECRET}])
        await box.drain()

        assert ((await run.wait()).status, ran) == ("succeeded", [SECRET])
        rows = [await app.control.jobs.get(run.id), *await all_rows(app.control, run.id)]
        for row in rows:
            assert SECRET.encode() not in b"".join(part for part in (row.payload, row.result, row.checkpoint) if part)
        assert (await run.status()).units.succeeded == 1
        assert (await run.validate(force=True)).verdict == "succeeded"


async def test_its_progress_is_told_while_it_is_at_work(app: App) -> None:
    seen: list[tuple[int, int, int]] = []
    with Harness(app, concurrency=1) as box:

        @app.batch(name="study", outputs=FILE, version="1")
        async def study(params: dict, out: Outputs) -> None:
            status = await runs[0].status()
            seen.append((status.units.made, status.units.succeeded, status.outputs_there))
            out.save("result", b"done")

        runs = [await app.submit_batch(study, params=grid(n=[1, 2, 3]))]
        await box.drain()
        status = await runs[0].status()

    assert [made for made, _, _ in seen] == [3, 3, 3]
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert (status.units.succeeded, status.outputs_there, status.total) == (3, 3, 3)


async def test_outputs_are_read_a_page_at_a_time_in_the_order_of_the_manifest(app: App, box: Harness) -> None:
    declared(app, aggregate=sum_up)
    run = await app.submit_batch(app.batches["study"], params=grid(n=list(range(7))))
    await box.drain(until="0s")
    service = BatchService(app.control)

    pages, start = [], 0
    while start is not None:
        page, start = await service.outputs(run.id, start=start, limit=4)
        pages.append([one.unit for one in page])

    whole = [one.unit for one in await run.outputs()]
    assert [len(page) for page in pages] == [4, 4, 4, 2]
    assert [unit for page in pages for unit in page] == whole
    assert whole == [f"n={n}" for n in range(7)] * 2
    await service.close()


def sum_up(params: dict, runs: list) -> int:
    return len(runs)


async def test_a_batch_is_looked_after_without_the_program_that_made_it(app: App, box: Harness, root: Path) -> None:
    """An operator has the store and the outputs, and nothing of the study's code."""
    declared(app)
    run = await app.submit_batch(app.batches["study"], params=grid(n=[1, 2]))
    await box.drain()
    [file, _] = sorted(root.glob("v1/study/**/result.txt"))
    file.unlink()
    service = BatchService(app.control)

    found = await service.validate(run.id, force=True)
    resumed = await service.resume(run.id)

    assert (found.verdict, found.missing, resumed.how) == ("partial", 1, "linked")
    await box.drain()
    assert (await service.status(resumed.id)).job.status == "succeeded"
    await service.close()


async def test_what_is_asked_of_a_batch_is_refused_for_another_job(app: App, box: Harness) -> None:
    @app.task(name="plain")
    async def plain() -> None: ...

    handle = await plain.submit()

    with pytest.raises(InvalidInput, match="is not a batch"):
        await app.batch_run(handle.id).status()


async def test_a_batch_whose_manifest_is_gone_is_failed_and_says_so(app: App, box: Harness, root: Path) -> None:
    ran = declared(app)
    run = await app.submit_batch(app.batches["study"], params=grid(n=[1, 2]))
    (root / manifest_path(run.id)).unlink()

    await box.drain()

    job = await run.wait()
    assert (job.status, ran) == ("failed", [])
    assert job.reason is not None
    assert job.reason.startswith("the manifest cannot be read")


async def test_a_driver_that_cannot_go_on_gives_up_in_the_end_and_takes_its_batch_along(
    app: App, box: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unforeseen error in every run: a batch never stops without a word."""
    ran = declared(app)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("an unforeseen error")

    monkeypatch.setattr(driver, "planned_units", broken)
    run = await app.submit_batch(app.batches["study"], params=grid(n=[1]))
    await box.drain()

    job = await run.wait()
    assert job.error is not None
    assert (job.status, job.error.code) == ("failed", "driver_lost")
    monkeypatch.undo()
    await run.resume()
    await box.drain()
    assert ((await run.wait()).status, ran) == ("succeeded", [1])


async def test_a_long_list_of_what_lacks_is_kept_in_pages(
    app: App, box: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validating, "PAGE", 10)

    @app.batch(name="study", outputs=FILE, version="1", retries=0)
    def study(seed: int, out: Outputs) -> None:
        if seed:
            raise ValueError("only the first")
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=36)
    await box.drain()

    service = run._service()
    pages = [len(await service.lacking(run.id, page=page)) for page in range(5)]
    assert (pages, len(await lacking(run))) == ([10, 10, 10, 5, 0], 35)
    validation = (await run.status()).validation
    assert validation is not None
    assert len(validation.first) == 20, "the row itself holds the first few"


async def test_a_batch_is_used_from_code_without_an_event_loop(app: App, box: Harness) -> None:
    declared(app)

    def script() -> tuple[str, bytes, str]:
        run = app.submit_batch_sync(app.batches["study"], params=grid(n=[1, 2]))
        box.drain_sync()
        return run.wait_sync().status, run.read_sync("result", {"n": 2}), run.resume_sync().how

    assert await asyncio.to_thread(script) == ("succeeded", b"2", "nothing")


async def test_a_resumed_batch_keeps_its_whole_story(app: App, box: Harness, root: Path) -> None:
    broken = [True]

    @app.batch(name="study", outputs=FILE, version="1", retries=0)
    def study(seed: int, out: Outputs) -> None:
        if broken and seed:
            raise ValueError("not yet")
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=2)
    await box.drain()
    broken.clear()
    await run.resume(reason="the solver was mended")
    await box.drain()

    assert await path(app.control, run.id) == [
        "pending", "running", "finalizing", "validating", "partial",
        "pending", "running", "finalizing", "validating", "succeeded",
    ]  # fmt: skip
    story = "\n".join(await run.story())
    assert "1 of 2 outputs are present, 1 missing" in story
    assert "the solver was mended" in story
