"""The run that starts a batch: it plans small batches, and hands every batch over to its driver."""

from __future__ import annotations

from mainstay import App, Outputs
from mainstay.batch import UnitCounts
from mainstay.control import decoded
from mainstay.control.drivers import driver_id
from mainstay.stores import Query
from mainstay.testing import Harness


async def test_a_small_batch_takes_a_run_of_its_driver_less_for_it_is_planned_by_the_run_that_starts_it(
    app: App, box: Harness
) -> None:
    @app.batch(name="study", outputs={"result": "result.txt"})
    def study(seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=3)
    await box.drain()

    job = (await run.status()).job
    (driver,) = await box.store.get([driver_id(job)])
    assert driver is not None
    assert (job.status, job.token, driver.token) == ("succeeded", 1, 1)
    assert (await run.status()).units == UnitCounts(made=3, succeeded=3)
    reasons = [event.reason for event in await app.control.jobs.events(run.id)]
    assert "left to its units; 3 of 3 are to run" in reasons


async def test_a_driver_that_waits_from_the_start_still_comes_before_the_units_of_its_batch(
    app: App, box: Harness
) -> None:
    @app.batch(name="study", outputs={"result": "result.txt"}, priority=100)
    def study(seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    run = await app.submit_batch(study, seeds=3)
    await box.drain()

    (driver,) = await box.store.get([driver_id((await run.status()).job)])
    units = (await box.store.find(Query(parent=run.id), limit=10)).jobs
    assert driver is not None
    assert all(driver.rank <= unit.rank for unit in units)


async def test_a_forced_batch_is_planned_by_its_driver_because_the_release_before_forces_only_its_own_plan(
    app: App, box: Harness
) -> None:
    @app.batch(name="study", outputs={"result": "result.txt"})
    def study(seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    await (await app.submit_batch(study, seeds=3)).status()
    await box.drain()
    run = await app.submit_batch(study, seeds=3, force=True)
    await box.drain()

    job = (await run.status()).job
    (driver,) = await box.store.get([driver_id(job)])
    assert driver is not None
    assert decoded(driver.payload) is None
    assert (await run.status()).units == UnitCounts(made=3, succeeded=3)


async def test_a_driver_that_waits_has_a_checkpoint_because_the_release_before_reads_no_other_plan(
    app: App, box: Harness
) -> None:
    """Without one, it would withdraw running units and plan again."""

    @app.batch(name="study", outputs={"result": "result.txt"}, retries=9, backoff_base="1h", backoff_cap="1h")
    def study(seed: int, out: Outputs) -> None:
        raise ValueError("not yet")

    run = await app.submit_batch(study, seeds=3)
    await box.drain(until="30s")

    (driver,) = await box.store.get([driver_id((await run.status()).job)])
    assert driver is not None
    assert driver.checkpoint is not None
    assert decoded(driver.checkpoint)["planned"]
