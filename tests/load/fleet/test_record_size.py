"""The record of a run fits in a checkpoint, however many workflows and steps it has, and its counts stay exact."""

from __future__ import annotations

import asyncio
import functools
import random
from array import array
from pathlib import Path

import msgspec
import pytest

from mainstay.load.engine.messages import Values, WorkflowReport, WorkflowsDone
from mainstay.load.fleet import fleet_context
from mainstay.load.fleet.context_limit import CONTEXT_BYTES
from mainstay.load.fleet.record import FleetRecord, GoEnd, GoRecord, LostPart
from mainstay.load.fleet.record_size import RECORD_BYTES, add_end, make_room, record_bytes, reduction_note
from mainstay.load.stats.accounts import Account
from mainstay.load.stats.histogram import percentiles_of, sketch_of
from mainstay.load.stats.model import Sketch, SliceReport, StepStats, Window
from mainstay.testing import BusFaults
from tests.load.fleet.fleet_trials import FleetTrial, with_fleet
from tests.load.fleet.test_successors import Leaders

SLICES = 40
MOST = 512 * 1024
"""less room than there is, so that fewer steps suffice"""


def spread(count: int, drawn: random.Random) -> Sketch:
    """The times of many calls, from a millisecond to some seconds."""
    made = sketch_of(array("d", [drawn.lognormvariate(-3.5, 1.2) for _ in range(count)]))
    assert made is not None
    return made


TIMES = spread(3000, random.Random(1))


def a_total(workflow: str, steps: int) -> Window:
    phases = dict.fromkeys(("send", "wait", "receive"), TIMES)
    return Window(
        bucket=10,
        begun=3000,
        iterations=3000,
        steps=[StepStats(workflow=workflow, step=f"step-{n}", ok=TIMES, phases=phases) for n in range(steps)],
    )


def ended(record: FleetRecord, go: int, *, steps: int) -> None:
    """A load of a workflow begins in all slices, and ends."""
    name = f"Layer{go}"
    nodes = [f"node-{number}" for number in range(SLICES)]
    record.gos.append(GoRecord(go=go, workflows=[name], wall=1.0, tokens=[1] * SLICES, nodes=nodes))
    account = Account(begun=75, completed=75)
    done = WorkflowsDone(
        workflows={name: WorkflowReport(iterations=75, clean=75, account=account)}, took=5.0 + go, loaded=5.0
    )
    slices = [
        SliceReport(slice=number, token=1, node=nodes[number], processes=8, requests=75 * steps, windows=50)
        for number in range(SLICES)
    ]
    add_end(record, GoEnd(go=go, reports=[done] * SLICES, total=a_total(name, steps), slices=slices))


def test_a_record_of_many_steps_in_many_layers_fits_and_its_counts_are_exact() -> None:
    record = FleetRecord()
    for go in range(1, 13):
        ended(record, go, steps=40)
        make_room(record, most=MOST)
        assert record_bytes(record) <= MOST

    assert [end.go for end in record.ends] == list(range(1, 13))
    for end in record.ends:
        assert end.total is not None
        assert (end.total.begun, end.total.iterations) == (3000, 3000)
        for step in end.total.steps:
            assert step.ok is not None
            exact = (step.ok.count, step.ok.total, step.ok.low, step.ok.high, sum(step.ok.n))
            assert exact == (TIMES.count, TIMES.total, TIMES.low, TIMES.high, TIMES.count)
            quantiles = (0.5, 0.9, 0.99)
            assert percentiles_of(step.ok, quantiles) == pytest.approx(percentiles_of(TIMES, quantiles), rel=0.036)
        [report] = end.reports
        assert report.workflows[f"Layer{end.go}"].account.completed == 75 * SLICES
        assert report.took == 5.0 + end.go
    assert sum(report.requests for end in record.ends for report in end.slices) == 75 * 40 * SLICES * 12
    assert reduction_note(record.reduced) == (
        "its manager changed, and percentiles of workflows that had ended before are within 3.1 %, and the phases of "
        "their calls are unknown: exact ones were too large to be kept"
    )


def test_a_record_that_fits_is_kept_as_it_is() -> None:
    record = FleetRecord()
    ended(record, 1, steps=5)
    before = msgspec.msgpack.encode(record)

    make_room(record, most=MOST)

    assert msgspec.msgpack.encode(record) == before
    assert record.reduced == 0


def test_what_is_noted_of_a_running_load_gives_way_first() -> None:
    record = FleetRecord()
    ended(record, 1, steps=20)
    part = LostPart(go=2, report=SliceReport(slice=0, node="n", processes=1), total=a_total("Layer2", 20))
    record.received = [part] * 6
    assert record_bytes(record) > MOST

    make_room(record, most=MOST)

    assert (record.received, record.reduced) == ([], 0)


def test_sums_that_have_no_room_at_all_are_left_out_and_a_successor_says_so() -> None:
    record = FleetRecord()
    record.answers["collect/1"] = Values(values={"Layer1": {"rows": "x" * CONTEXT_BYTES}})
    ended(record, 1, steps=8000)

    make_room(record)

    assert record_bytes(record) <= RECORD_BYTES
    assert "numbers of workflows that had ended before were too large" in reduction_note(record.reduced)


LAYERS = 7
STEPS = 60


def test_leaders_that_die_in_a_run_of_many_steps_and_layers_lose_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(1)
    monkeypatch.setattr("sim.load_runner.sketch_of", lambda times: spread(len(times), drawn))
    monkeypatch.setattr(fleet_context, "make_room", functools.partial(make_room, most=MOST))
    steps = "\n".join(f"    @step()\n    async def s{n}(self) -> None: ..." for n in range(STEPS))
    classes = [f"class L{n}(Workflow):\n{steps}\n" for n in range(LAYERS)]
    text = "\n".join([classes[0], *(f'@depends("L{n - 1}")\n{classes[n]}' for n in range(1, LAYERS))])

    async def test(trial: FleetTrial) -> None:
        sizes: list[int] = []
        trial.fleet.on_saved = lambda _: sizes.append(len(trial.fleet.stored))
        leaders = Leaders(trial)
        leaders.lead()
        for after in (3, 6, LAYERS):
            while len(trial.fleet.record.ends) < after:
                await asyncio.sleep(0.2)
            leaders.hosts[-1].crash()
            await asyncio.sleep(1)
            leaders.lead()

        summary = await leaders.result()

        assert summary.ended == "finished"
        assert summary.requests == trial.fleet.sent == LAYERS * STEPS * 200
        assert summary.iterations == LAYERS * 200
        assert {step.requests for step in summary.steps} == {200}
        assert trial.fleet.record.reduced
        assert summary.trust.reasons == [reduction_note(trial.fleet.record.reduced)]
        assert max(sizes) <= MOST

    with_fleet(
        test, tmp_path, [1, 1], fleet={"faults": BusFaults(latency_s=0.005)}, text=text, rate="200/s", duration="1s"
    )
