"""A batch and code that has changed since it was submitted: what is refused, what is run, and what is noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay import App, Batch, BatchRun, Outputs, grid
from mainstay.batch import study as declaring
from mainstay.batch.codes import Code
from mainstay.batch.report.model import batch_report
from mainstay.errors import InvalidInput, InvalidTransition
from mainstay.testing import Harness
from tests.batch.studies import delete, unit_rows

FILE = {"result": "result.txt"}


class Lab:
    """Declares a study, and declares it again with other code, as a program that is started again does."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._monkeypatch = monkeypatch
        self.ran: list[tuple[str, int]] = []
        self.bad: set[int] = set()
        self.app = App("memory:", outputs=f"file://{root}?sync=off")

    def study(self, source: str, version: str | None = None, *, outputs: dict[str, str] = FILE) -> Batch:
        def code_of(function: object, given: str | None, *, name: str) -> Code:
            return Code(given or source, source)

        self._monkeypatch.setattr(declaring, "code_of", code_of)
        batches = self.app._batches
        batches.studies.clear()

        def score(params: dict, runs: list) -> int:
            return len(runs)

        @self.app.batch(name="study", outputs=outputs, aggregate=score, retries=0, version=version)
        def study(params: dict, seed: int, out: Outputs) -> None:
            self.ran.append((source, seed))
            if seed in self.bad:
                raise ValueError("a bug")
            for name in outputs:
                out.save(name, f"{name} of {seed}".encode())

        return study

    async def submit(self, study: Batch) -> BatchRun:
        return await self.app.submit_batch(study, params=grid(beta=[0.2]), seeds=4)


@pytest.fixture
def lab(root: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(root, monkeypatch)


async def test_a_resume_by_mended_code_runs_what_is_missing_and_keeps_the_rest(lab: Lab) -> None:
    with Harness(lab.app) as box:
        lab.bad = {2}
        run = await lab.submit(lab.study("with-a-bug"))
        await box.drain()
        assert (await run.wait()).status == "partial"

        lab.bad = set()
        mended = lab.study("mended")
        await run.resume()
        await box.drain()
        errors = {row.error.code: row.error.message for row in await unit_rows(lab.app.control, run.id) if row.error}
        assert "--with-this-code" in errors["bad_arguments"], "units for other code are refused, with advice"
        assert lab.ran.count(("mended", 2)) == 0

        assert [one.unit for one in await run.to_run() if one.run] == ["beta=0.2-s2"]
        resumed = await run.resume(by=mended)
        await box.drain()

        linked = lab.app.batch_run(resumed.id)
        assert (resumed.how, resumed.units) == ("linked", 1)
        assert (await linked.wait()).status == "succeeded"
        assert [one for one in lab.ran if one[0] == "mended"] == [("mended", 2)]
        found = await run.validate()
        assert (found.verdict, found.other_code) == ("succeeded", 2), "the unit and the aggregation"
        assert found.mixed == "2 units were made by other code than the batch was submitted with"
        report = await batch_report(run._service(), run.id)
        assert report.mixed == found.mixed
        assert (await run.resume(by=mended)).how == "nothing"


async def test_another_code_than_the_one_named_is_refused(lab: Lab) -> None:
    with Harness(lab.app) as box:
        lab.bad = {2}
        run = await lab.submit(lab.study("one"))
        await box.drain()
        lab.bad = set()
        resumed = await run.resume(by=lab.study("two"))
        lab.study("three")
        await box.drain()

        assert (await lab.app.batch_run(resumed.id).wait()).status == "partial"
        assert {source for source, _ in lab.ran} == {"one"}


async def test_a_pinned_version_shares_outputs_and_says_that_other_code_made_them(lab: Lab) -> None:
    with Harness(lab.app) as box:
        await lab.submit(lab.study("before", version="1"))
        await box.drain()

        again = await lab.submit(lab.study("after", version="1"))
        await box.drain()

        assert (await again.wait()).status == "succeeded"
        assert {source for source, _ in lab.ran} == {"before"}
        status = await again.status()
        assert status.validation is not None
        assert status.validation.other_code == 4, "its aggregation has no version of its own and was made again"


async def test_a_study_that_makes_something_else_now_is_refused_and_so_is_a_batch_at_work(lab: Lab) -> None:
    with Harness(lab.app) as box:
        run = await lab.submit(lab.study("one"))
        with pytest.raises(InvalidTransition):
            await run.resume(by=lab.study("two"))
        lab.study("one")
        await box.drain()
        with pytest.raises(InvalidInput, match="declares other outputs or aggregations now"):
            await run.resume(by=lab.study("two", outputs={"other": "other.txt"}))


async def test_damage_after_success_is_repaired_by_the_code_at_hand(lab: Lab, root: Path) -> None:
    with Harness(lab.app) as box:
        run = await lab.submit(lab.study("one"))
        await box.drain()
        delete(next(root.glob("v1/study/*/*-s3-*/result.txt")))
        resumed = await run.resume(by=lab.study("two"))
        await box.drain()

        assert (await lab.app.batch_run(resumed.id).wait()).status == "succeeded"
        assert [seed for source, seed in lab.ran if source == "two"] == [3]
