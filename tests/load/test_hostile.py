"""What a test does that its author did not mean to: the run survives it, and says what happened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstay.clock import SystemClock
from mainstay.load.generator_process import Limits
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run import LoadRun
from mainstay.load.stats.model import Moment, Window
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.trials import GET, ran, run_of, until, written

pytestmark = pytest.mark.slow


@pytest.fixture
async def target() -> AsyncIterator[TargetServer]:
    async with TargetServer(TargetOptions(seed=1)) as found:
        yield found


def one_step(body: str, *, more: str = "") -> str:
    return f"class Shop(Workflow):\n    @step()\n    async def act(self) -> None:\n        {body}\n{more}"


async def test_steps_that_never_wait_leave_others_their_turn(tmp_path: Path) -> None:
    summary = await ran(written(tmp_path, one_step("self.count('turns')")), vus=3, duration="500ms")

    assert summary.ended == "finished"
    assert summary.elapsed_s < 60
    assert summary.metrics[0].value == summary.iterations > 100


async def test_a_step_that_holds_the_process_for_ever_is_ended_and_where_it_was_is_told(tmp_path: Path) -> None:
    test = written(tmp_path, one_step("while True: pass"))
    run = run_of(test, limits=Limits(overtime_s=1.0, tick_s=0.1), duration="200ms", drain="200ms", processes=2, vus=2)

    summary = await run.run()

    assert "did not finish" in summary.ended
    assert 'shop.py", line' in summary.ended
    assert "in act" in summary.ended


async def test_a_step_that_holds_the_process_is_ended_after_a_stop(tmp_path: Path) -> None:
    began = tmp_path / "began"
    run = run_of(
        written(tmp_path, one_step(f"open({str(began)!r}, 'w').close()\n        while True: pass")),
        limits=Limits(overtime_s=0.5, tick_s=0.1),
        iterations=1,
        drain="100ms",
    )
    task = asyncio.ensure_future(run.run())
    await until(began.exists, task)
    run.stop("interrupted")

    summary = await asyncio.wait_for(task, 60)

    assert "did not finish" in summary.ended


@pytest.mark.parametrize("error", ["SystemExit(3)", "asyncio.CancelledError"])
async def test_a_step_that_wants_to_leave_is_counted_and_the_user_goes_on(tmp_path: Path, error: str) -> None:
    summary = await ran(written(tmp_path, one_step(f"raise {error}")), vus=2, iterations=6)

    kind = error.split("(", maxsplit=1)[0].removeprefix("asyncio.")
    assert summary.iterations == 6
    assert summary.errors == {kind: 6}


@pytest.mark.parametrize("model", [{"vus": 5}, {"rate": "50/s"}])
async def test_users_that_cannot_start_end_the_run_with_the_reason(
    target: TargetServer, tmp_path: Path, model: dict[str, object]
) -> None:
    text = GET + "\n    @on_start\n    async def come(self):\n        raise LookupError('no account')\n"

    summary = await ran(written(tmp_path, text), duration="300ms", processes=2, base_url=target.url, **model)

    assert target.counts().begun == 0
    assert summary.errors["on_start LookupError"] >= 5
    assert "no account" in summary.examples["on_start LookupError"]
    assert summary.ended == ("failed: Shop: no iteration was made; users could not begin: LookupError: no account")


async def test_arrivals_of_a_process_whose_users_cannot_start_are_not_blamed_on_the_generator(
    target: TargetServer, tmp_path: Path
) -> None:
    hook = "\n    @on_start\n    async def come(self):\n        assert self.vu.process == 0, 'no account'\n"

    summary = await ran(written(tmp_path, GET + hook), rate="100/s", duration="400ms", processes=2, base_url=target.url)

    assert (summary.arrivals, summary.iterations, summary.dropped, summary.unbegun) == (40, 20, 20, 20)
    assert {one.step: (one.requests, one.raised) for one in summary.steps} == {"browse": (20, 0), "on_start": (0, 20)}
    assert summary.trust.reasons[0].startswith("20 of 40 arrivals found no user that could begin (on_start raised Ass")
    assert not any("too many iterations" in one for one in summary.trust.reasons)


async def test_iterations_that_users_could_not_begin_fail_the_run(target: TargetServer, tmp_path: Path) -> None:
    hook = "\n    @on_start\n    async def come(self):\n        assert self.vu.process == 0, 'no account'\n"

    summary = await ran(written(tmp_path, GET + hook), iterations=40, vus=4, processes=2, base_url=target.url)

    assert summary.iterations == target.counts().completed == 20
    why = "20 of 40 iterations were not made; users could not begin: AssertionError: no account"
    assert (summary.ended, summary.verdict) == (f"failed: Shop: {why}", "failed")


async def test_a_user_that_cannot_start_closes_what_it_had_opened(target: TargetServer, tmp_path: Path) -> None:
    text = GET + "\n    @on_start\n    async def come(self):\n        await self.client.http.get('/')\n        1 / 0\n"
    run = run_of(written(tmp_path, text), vus=4, duration="300ms", base_url=target.url)
    summary = await run.run()

    assert summary.errors == {"on_start ZeroDivisionError": 4}
    assert target.counts().open == 0


async def test_an_on_stop_that_hangs_or_raises_keeps_nobody(tmp_path: Path) -> None:
    text = one_step("await asyncio.sleep(0.01)", more="    @on_stop\n    async def go(self):\n        sys.exit(9)\n")

    summary = await ran(written(tmp_path, text), vus=3, duration="100ms")

    assert summary.ended == "finished"
    assert summary.errors == {"on_stop SystemExit": 3}


async def test_more_processes_than_users_is_no_problem(target: TargetServer, tmp_path: Path) -> None:
    summary = await ran(written(tmp_path, GET), vus=1, duration="300ms", processes=3, base_url=target.url)

    assert summary.requests == target.counts().completed > 0
    assert (summary.users, summary.ended) == (1, "finished")


async def test_big_answers_are_counted_to_the_byte(target: TargetServer, tmp_path: Path) -> None:
    test = written(tmp_path, GET.replace('"/"', '"/?size=8MiB"'))

    summary = await ran(test, iterations=3, vus=2, base_url=target.url)

    counts = target.counts()
    assert (summary.requests, summary.failed) == (3, 0)
    assert summary.received == counts.sent > 3 * 8 * 1024 * 1024


async def test_names_may_be_in_any_script(target: TargetServer, tmp_path: Path) -> None:
    text = """
    class Größe(Workflow):
        thresholds = ["p95 of 'größe' < 10s", "requests of {ä:ö} == 2", "counter zähler of {é:ñ} == 2"]
        tags = {"Stadt": "Köln"}
        @step(tags={"ä": "ö"})
        async def größe(self, url: URL = "/?q=ü") -> HTTPResponse:
            self.count("zähler", tags={"é": "ñ"})
            return await self.client.http.get(url)
    """
    summary = await ran(written(tmp_path, text), iterations=2, base_url=target.url)

    assert (summary.requests, summary.failed, summary.verdict) == (2, 0, "passed")
    assert summary.steps[0].step == "größe"
    assert summary.metrics[0].tags == {"é": "ñ"}
    assert [(one.tag, one.value, one.requests) for one in summary.by_tag] == [("Stadt", "Köln", 2), ("ä", "ö", 2)]


async def test_a_workflow_and_a_step_of_one_name_are_told_apart(target: TargetServer, tmp_path: Path) -> None:
    text = """
    class browse(Workflow):
        @step()
        async def browse(self, url: URL = "/") -> HTTPResponse:
            return await self.client.http.get(url)

    class Other(Workflow):
        thresholds = ["requests of browse.browse == 2", "requests of Other.browse == 3"]
        iterations = 3
        @step()
        async def browse(self, url: URL = "/") -> HTTPResponse:
            return await self.client.http.get(url)
    """
    test = written(tmp_path, text.replace("class browse(Workflow):", "class browse(Workflow):\n        iterations = 2"))

    summary = await ran(test, base_url=target.url)

    assert [(one.workflow, one.requests) for one in summary.steps] == [("browse", 2), ("Other", 3)]
    assert summary.verdict == "passed", summary.thresholds


async def test_each_iteration_can_be_a_new_visitor(target: TargetServer, tmp_path: Path) -> None:
    text = """
    class Shop(Workflow):
        new_session = True
        @step()
        async def first(self, url: URL = "/cookies?seen=yes") -> HTTPResponse:
            return await self.client.http.get(url)

        @step("first")
        async def none_before(self, first: HTTPResponse) -> Check:
            return Check(first.json()["cookies"] == {}, f"cookies {first.json()}")
    """
    summary = await ran(written(tmp_path, text), vus=2, iterations=8, base_url=target.url)

    assert (summary.checks[0].passed, summary.checks[0].failed) == (8, 0), summary.checks[0].reasons
    assert target.counts().connections == 8 + 1


async def test_think_time_and_pacing_are_kept_and_cut_short_at_the_end(target: TargetServer, tmp_path: Path) -> None:
    began = time.monotonic()
    paced = await ran(written(tmp_path, GET), vus=2, duration="500ms", pacing="100ms", base_url=target.url)
    thoughtful = await ran(written(tmp_path, GET), vus=2, duration="300ms", think="1h", base_url=target.url)

    assert 2 <= paced.iterations <= 10
    assert thoughtful.iterations == 2
    assert time.monotonic() - began < 200


async def test_users_come_and_go_in_stages(target: TargetServer, tmp_path: Path) -> None:
    test = written(tmp_path, GET.replace('"/"', '"/?delay=5ms"'))

    summary = await ran(test, stages="300ms:20,700ms:20,300ms:0", processes=2, base_url=target.url)

    assert 10 < summary.users <= 20
    assert summary.requests == target.counts().completed
    assert 1.2 < summary.elapsed_s < 60
    assert summary.ended == "finished"


async def test_a_rate_can_rise_in_stages(target: TargetServer, tmp_path: Path) -> None:
    summary = await ran(written(tmp_path, GET), stages="500ms:100/s,500ms:100/s", processes=2, base_url=target.url)

    assert summary.arrivals == 75 == summary.requests + summary.dropped


async def test_arrivals_by_chance_are_the_same_with_the_same_seed(target: TargetServer, tmp_path: Path) -> None:
    def once(seed: int) -> object:
        return ran(
            written(tmp_path, GET), rate="100/s", arrivals="poisson", duration="500ms", seed=seed, base_url=target.url
        )

    first, again, other = [(await once(seed)).arrivals for seed in (1, 1, 2)]  # type: ignore[misc, attr-defined]

    assert first == again
    assert 20 < other < 90


async def test_an_output_that_fails_does_not_fail_the_run(target: TargetServer, tmp_path: Path) -> None:
    class Broken:
        name = "broken"

        async def start(self, header: object) -> None: ...

        def add(self, moment: object) -> None:
            raise OSError("disk full")

        async def stop(self, summary: object) -> None: ...

    planned = PlannedRun(written(tmp_path, GET), LoadOptions(duration="200ms", processes=1, base_url=target.url))
    summary = await LoadRun(planned.spec(), "run-1", clock=SystemClock(), outputs=[Broken()]).run()

    assert summary.requests == target.counts().completed > 0
    assert [(one.name, one.error) for one in summary.outputs] == [("broken", "OSError: disk full")]


async def test_names_and_messages_that_are_no_text_do_not_end_the_run(tmp_path: Path) -> None:
    text = """
    class Silent(Exception):
        def __str__(self):
            raise ValueError("not even that")

    class Shop(Workflow):
        @step()
        async def metric(self) -> Metric[Counter]:
            return Metric(1, tags={"code": 200, 5: None})

        @step()
        async def result(self) -> CustomResult:
            return CustomResult(started=1.0, ended=2.0, status=[] and 1 or ("a", 1), failure=404)

        @step()
        async def named(self) -> None:
            self.count(5)

        @step()
        async def silent(self) -> None:
            raise Silent

        @step()
        async def torn(self) -> Check:
            return Check(False, b"\\xff".decode("utf-8", "surrogateescape"))

        @step()
        async def raised(self) -> None:
            raise LookupError(b"\\xff".decode("utf-8", "surrogateescape"))
    """
    summary = await ran(written(tmp_path, text), vus=2, iterations=4)

    assert (summary.ended, summary.iterations) == ("failed: Shop: all 4 iterations had errors", 4)
    assert summary.metrics[0].tags == {"code": "200", "5": "None"}
    assert summary.errors == {"404": 4, "InvalidInput": 4, "Silent": 4, "LookupError": 4}
    assert summary.checks[0].reasons == {"?": 4}
    assert summary.examples["Silent"] == "Silent: a Silent that cannot be shown"


async def test_a_process_that_a_step_holds_up_has_its_users_all_the_same(tmp_path: Path) -> None:
    seen: list[Window] = []

    class Watcher:
        name = "watcher"

        async def start(self, header: object) -> None: ...

        def add(self, moment: Moment) -> None:
            seen.append(moment.window)

        async def stop(self, summary: object) -> None: ...

    text = """
    import time

    class Shop(Workflow):
        @step()
        async def act(self) -> None:
            await asyncio.sleep(0.01)
            if self.vu.number == 0 and self.vu.iteration == 0:
                time.sleep(0.35)  # for three windows at least
    """
    planned = PlannedRun(written(tmp_path, text), LoadOptions(vus=4, duration="1s", processes=1))
    await LoadRun(planned.spec(), "run-1", clock=SystemClock(), outputs=[Watcher()]).run()

    assert [window.users for window in seen[:4]] == [4, 4, 4, 4]


async def test_a_step_that_blocks_the_process_makes_the_numbers_doubtful(target: TargetServer, tmp_path: Path) -> None:
    text = "import time\n" + GET.replace("return await", "time.sleep(0.3)\n        return await")

    summary = await ran(written(tmp_path, text), vus=3, duration="1500ms", base_url=target.url)

    assert not summary.trust.ok
    assert summary.trust.reasons
