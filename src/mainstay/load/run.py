"""A run, from its plan to its summary: layers of workflows one after the other, windows judged as they arrive.

It does not know about jobs and stores; `handler` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..clock import Clock
from .engine.messages import WorkflowReport
from .generator_process import GeneratorLost, Limits, LineHandler
from .generators import Generators
from .outputs import Output, OutputLimits, RunOutputs
from .run_spec import RunSpec, WorkflowMethods
from .runner import LoadRunner, MakeRunner, RestartNeeded, SlicedRunner
from .stats.accounts import IterationLedger
from .stats.model import FAILED, SETUP_FAILED, WINDOW_MS, Moment, Summary, ThresholdOutcome, Window, WorkflowResult
from .stats.tally import RunTally
from .stats.thresholds import RUNNING, ThresholdJudge, thresholds_of, verdict_of
from .stats.trust import TrustWatch

log = logging.getLogger("mainstay.load")

_BY_THRESHOLD = "stopped by a threshold"


class LoadRun:
    """One run. `run` runs it to its end; `stop` ends it early, in good order; `give_up` at once; `kill` without its
    teardowns."""

    def __init__(
        self,
        spec: RunSpec,
        run_id: str,
        *,
        token: int = 0,
        clock: Clock,
        outputs: Sequence[Output] = (),
        stream: str = "",
        on_line: LineHandler | None = None,
        limits: Limits | None = None,
        output_limits: OutputLimits | None = None,
        runner: MakeRunner = Generators,
        earlier: Summary | None = None,
    ) -> None:
        """`stream`: where one of the outputs records the run, for reports to name. `on_line` takes the lines that steps
        print; without it, they are logged. `runner` makes what produces the load. `earlier`: what a process that led
        this run before has saved of it; its start, its curve and what its thresholds have decided are kept."""
        self._spec = spec
        self._clock = clock
        self._stream = stream
        started_ms = clock.now_ms() if earlier is None else earlier.header.started_ms
        self.header = msgspec.structs.replace(spec.header, run=run_id, started_ms=started_ms, token=token)
        self._outputs = RunOutputs(outputs, output_limits)
        self._on_line = on_line or _log_line
        self._limits = limits
        self._make_runner = runner
        self._outputs_started = False
        self._tally = RunTally(self.header, earlier=() if earlier is None else earlier.points)
        self._judge = ThresholdJudge(
            thresholds_of(spec.thresholds), self.header, earlier=() if earlier is None else earlier.thresholds
        )
        self._doubts = TrustWatch()
        self._ledger = IterationLedger()
        self._cut = ""
        """why the last work of a generator is unknown, if it is"""
        self._runner: LoadRunner | None = None
        self._sliced: SlicedRunner | None = None
        """the same, also after its end, if it runs on several machines"""
        self._phase = "preparing"
        self._ended = "" if self._judge.stop is None else _BY_THRESHOLD
        self.stopped = asyncio.Event()
        """it is ending early"""
        self._given_up = False
        self._skipped: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        """workflows that failed, or were skipped because another one failed"""
        self._iterations: dict[str, int] = {}
        """by workflow that has ended"""
        self._reported: set[str] = set()
        """workflows whose result the outputs have"""
        self._over_s = 0.0
        """duration of the finished layers"""
        self._drained_s = 0.0
        """of that: drains, in which no iteration began"""
        self._first_bucket: int | None = None
        """of the running layer; None between two layers"""
        self._last_bucket = 0
        self.seconds = 0
        """whole seconds of load so far"""

    async def run(self) -> Summary:
        """Run to the end. Raises `InvalidInput` if it cannot be started; nothing was sent then."""
        spec = self._spec
        needed: RestartNeeded | None = None
        try:
            async with self._make_runner(
                spec.processes, self._add, on_line=self._on_line, limits=self._limits
            ) as runner:
                self._runner = runner
                self._sliced = runner if isinstance(runner, SlicedRunner) else None
                if self._given_up:
                    runner.give_up()
                elif self._ended:
                    runner.stop(hurry=True)
                try:
                    await runner.prepare(spec.order)
                    # not before: a refused run has no outputs
                    await self._outputs.start(self.header)
                    self._outputs_started = True
                    await self._layers(runner)
                except GeneratorLost as error:
                    if not self._outputs_started and not self._given_up:
                        raise
                    # the windows that it had sent are kept; the others end
                    if not self._given_up:
                        self._ended = f"failed: {error}"
                    runner.stop(hurry=True)
                    if isinstance(error, RestartNeeded):
                        needed = error
        except asyncio.CancelledError:
            # the caller waits no longer; the outputs still get the numbers so far
            await self._cut_off("cancelled: given up")
            raise
        except BaseException as error:
            # another leader goes on with it, or it broke
            await self._cut_off(f"failed: {error}")
            raise
        finally:
            self._runner = None
            self._phase = "done"
        if self._outputs_started and needed is None:
            for name in [name for layer in spec.plan.graph.layers() for name in layer]:
                self._report(name, self._ended)
        summary = await self._finish()
        if needed is not None:
            raise needed
        return summary

    def stop(self, why: str, *, hurry: bool = True) -> None:
        """End the run early; calls under way may finish."""
        self._ended = self._ended or why
        self.stopped.set()
        if self._runner is not None:
            self._phase = "draining"
            self._runner.stop(hurry=hurry)

    def give_up(self) -> None:
        """End a stopped run at once: calls under way are aborted, and teardowns get little time."""
        self._given_up = True
        if self._runner is not None:
            self._runner.give_up()

    def kill(self) -> None:
        """End a run that was given up without its teardowns."""
        if self._runner is not None:
            self._runner.kill()

    # layers -----------------------------------------------------------------------------------------

    async def _layers(self, runner: LoadRunner) -> None:
        provided: dict[str, dict[str, Any]] = {}
        failed = self._failed
        set_up: list[str] = []
        layers = self._spec.plan.graph.layers()
        try:
            for layer in layers:
                await self._layer(runner, layer, provided, set_up, is_only=len(layers) == 1)
                for name in layer:
                    self._report(name)
        except asyncio.CancelledError:
            # the caller waits no longer, not even for teardowns
            self._given_up = True
            self._not_torn_down(set_up)
            set_up.clear()
            raise
        except RestartNeeded:
            # also if the machine with the setups was lost
            with contextlib.suppress(GeneratorLost):
                await self._tear_down(runner, set_up)
            set_up.clear()
            raise
        finally:
            if set_up:
                await self._tear_down(runner, set_up)
        for name, why in failed.items():
            if name not in self._skipped:
                self._skipped[f"{name}{FAILED}"] = why

    async def _layer(
        self,
        runner: LoadRunner,
        layer: Sequence[str],
        provided: dict[str, dict[str, Any]],
        set_up: list[str],
        *,
        is_only: bool,
    ) -> None:
        """Run what can run of a layer. Adds to what workflows provide, and to those that were set up."""
        spec, failed = self._spec, self._failed
        workflows = [name for name in layer if not self._skip(name, failed)]
        is_over = bool(self._ended) and not self._has_begun(workflows)
        if is_over:
            self._skipped.update(dict.fromkeys(workflows, f"the run had ended before ({self._ended})"))
        if not workflows or is_over:
            return
        shared = {name: _used(spec.methods, name, provided) for name in workflows}
        set_up += workflows
        calls = sum(spec.methods[name].setups for name in workflows)
        setup = await runner.set_up(workflows, shared, calls=calls)
        for name, why in setup.failed.items():
            failed[name] = self._skipped[name] = self._ended or f"{SETUP_FAILED}{why}"
        workflows = [name for name in workflows if name not in setup.failed]
        if not workflows or (self._ended and not self._has_begun(workflows)):
            return
        for name in workflows:
            shared[name].update(setup.values.get(name, {}))
        self._phase = "running" if is_only else f"running {', '.join(workflows)}"
        await self._go(runner, workflows, shared, failed)
        providers = [name for name in workflows if name not in failed]
        calls = sum(len(spec.methods[name].states) for name in providers)
        collected = await runner.collect_provided(providers, calls=calls)
        provided.update(collected.values)
        failed.update({name: f"what it provides failed: {why}" for name, why in collected.failed.items()})

    def _report(self, name: str, ended: str = "") -> None:
        """Pass on the result of a workflow, once. Every leader of a run does it in the same order: that of the layers.
        `ended`: why the run ended before the workflow did."""
        if name in self._reported:
            return
        self._reported.add(name)
        self._outputs.ended(
            WorkflowResult(
                workflow=name,
                elapsed_s=self.elapsed_s,
                iterations=self._iterations.get(name, 0),
                error=self._failed.get(name) or self._skipped.get(name) or ended,
                steps=self._tally.steps(name, self.load_s),
            )
        )

    async def _tear_down(self, runner: LoadRunner, workflows: Sequence[str]) -> None:
        calls = sum(self._spec.methods[name].teardowns for name in workflows)
        try:
            teardown = await runner.tear_down(workflows, calls=calls)
        except (GeneratorLost, asyncio.CancelledError):
            self._not_torn_down(workflows)
            raise
        for name, why in teardown.failed.items():
            self._skipped[f"{name} teardown"] = f"failed: {why}"

    def _not_torn_down(self, workflows: Sequence[str]) -> None:
        """Note which teardowns were cut off: something may have to be cleaned up by hand."""
        why = "the run was given up" if self._given_up else "its generator was lost"
        for name in workflows:
            if self._spec.methods[name].teardowns:
                self._skipped[f"{name} teardown"] = f"was not run to its end: {why}"

    def _has_begun(self, workflows: Sequence[str]) -> bool:
        return self._sliced is not None and self._sliced.has_begun(workflows)

    def _skip(self, name: str, failed: dict[str, str]) -> bool:
        """Whether a workflow that it depends on has failed; then it counts as failed, too."""
        broken = [other for other in self._spec.plan.graph.after[name] if other in failed]
        if broken:
            failed[name] = self._skipped[name] = f"{broken[0]} failed, which it depends on ({failed[broken[0]]})"
        return bool(broken)

    async def _go(
        self,
        runner: LoadRunner,
        workflows: Sequence[str],
        shared: dict[str, dict[str, Any]],
        failed: dict[str, str],
    ) -> None:
        plans = [self._spec.plan.workflows[name] for name in workflows]
        drain_s = max(plan.drain_s for plan in plans)
        lasts_s = max(math.inf if plan.duration_s is None else plan.duration_s for plan in plans)
        try:
            reports, lost = await runner.go(workflows, shared, longest_s=lasts_s + drain_s, drain_s=drain_s)
        except asyncio.CancelledError:
            self._cut = "the run was given up before its generators had reported everything"
            raise
        if lost or not reports:
            self._over_s = self.elapsed_s
        else:
            took_s = max(report.took for report in reports)
            self._over_s += took_s
            self._drained_s += took_s - max(report.loaded for report in reports)
        self._first_bucket = None
        if lost is not None:
            self._cut = "a generator was lost, and what it did after its last report is unknown"
            raise lost
        for name in workflows:
            own = [report.workflows[name] for report in reports if name in report.workflows]
            self._ledger.settle(name, [one.account for one in own])
            self._iterations[name] = sum(one.iterations for one in own)
            if not own and self._sliced is not None and any(one.loss for one in self._sliced.reports()):
                continue  # nothing that could tell is left; that it was lost is in the verdict
            why = failure_of(own, self._spec.plan.workflows[name].iterations)
            if why and not self._ended:
                failed[name] = why

    # windows ----------------------------------------------------------------------------------------

    def _add(self, window: Window) -> None:
        if self._first_bucket is None:
            self._first_bucket = window.bucket
        self._last_bucket = window.bucket + window.width - 1
        self._tally.add(window)
        self._judge.add(window)
        self._doubts.add(window)
        self._ledger.add(window)
        self.seconds = int(self.elapsed_s)
        self._outputs.add(
            Moment(
                window=window,
                elapsed_s=self.elapsed_s,
                phase=self._phase,
                thresholds=self._judge.outcomes(),
                trust=self._doubts.trust(),
            )
        )
        if self._judge.stop is not None and not self._ended:
            self.stop(_BY_THRESHOLD)

    @property
    def elapsed_s(self) -> float:
        """How long there was load: exact for finished layers, up to the last window for the running one."""
        if self._first_bucket is None:
            return self._over_s
        return self._over_s + (self._last_bucket + 1 - self._first_bucket) * WINDOW_MS / 1000

    @property
    def load_s(self) -> float:
        """How long iterations began: the base of all rates."""
        return self.elapsed_s - self._drained_s

    def so_far(self) -> tuple[Summary, list[msgspec.Raw]]:
        """The summary so far without its points, and the points as they are stored."""
        if self._sliced is not None:
            self._sliced.note()
        summary = self._summary(self._judge.outcomes(), ended=RUNNING, points=False)
        summary.outputs = self._outputs.outcomes()
        return summary, self._tally.packed_points()

    # the end ----------------------------------------------------------------------------------------

    async def _cut_off(self, ended: str) -> None:
        """It ends here, whatever was under way. Outputs that have begun are stopped: they have threads and files."""
        self._ended = self._ended or ended
        self._given_up = True
        if self._outputs_started:
            await self._finish()

    async def _finish(self) -> Summary:
        summary = self._summary(self._judge.finish(self.load_s), ended=self._ended or "finished")
        lost = self._lost_windows()
        for total in lost:
            self._ledger.lose(total)
        summary.trust = self._doubts.finish(
            by_itself=summary.ended == "finished",
            cut=self._cut,
            lost=self._sliced.doubts() if self._sliced is not None else (),
            wrong_sums=() if self._cut else self._ledger.errors,
        )
        # iterations under way in a lost generator were cut off with it
        summary.aborted_iterations += self._ledger.unknown if self._cut or lost else 0
        if self._failed and not self._ended:
            # even if other workflows succeeded: the test was not done as planned
            summary.ended = "failed: " + "; ".join(f"{name}: {why}" for name, why in self._failed.items())
            summary.verdict = verdict_of(summary.thresholds, summary.ended)
        if self._outputs_started:
            summary.outputs = self._outputs.outcomes()
            await self._outputs.stop(summary, given_up=self._given_up)
            summary.outputs = self._outputs.outcomes()
        return summary

    def _summary(self, thresholds: list[ThresholdOutcome], *, ended: str, points: bool = True) -> Summary:
        return self._tally.summary(
            points=points,
            elapsed_s=self.elapsed_s,
            load_s=self.load_s,
            thresholds=thresholds,
            trust=self._doubts.trust(),
            verdict=verdict_of(thresholds, ended),
            ended=ended,
            skipped=self._skipped,
            stream=self._stream,
            slices=self._sliced.reports() if self._sliced is not None else [],
        )

    def _lost_windows(self) -> list[Window]:
        """What was received of machines that were lost, while the run went on."""
        return self._sliced.lost_windows() if self._sliced is not None else []


def failure_of(reports: Sequence[WorkflowReport], planned: int | None) -> str:
    """Why a workflow failed, from the reports of all processes; empty if it did not. `planned`: the fixed number of
    iterations, if there is one."""
    iterations, unmade = sum(one.iterations for one in reports), sum(one.unmade for one in reports)
    failure = ""
    if unmade:
        failure = f"{unmade} of {planned} iterations were not made"
    elif not any(one.clean for one in reports):
        failure = f"all {iterations} iterations had errors" if iterations else "no iteration was made"
    refusal = next((one.refusal for one in reports if one.refusal), "")
    if not iterations and not unmade and not refusal and any(one.nothing_left for one in reports):
        # the iterations were made by processes that others have replaced
        return ""
    return f"{failure}; users could not begin: {refusal}" if failure and refusal else failure


def _log_line(process: int, line: str) -> None:
    log.info("generator=%d printed: %s", process, line)


def _used(
    methods: Mapping[str, WorkflowMethods], name: str, provided: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The context of a workflow: the values of the workflows that it names, if they name it, too."""
    context: dict[str, Any] = {}
    for state in methods[name].states:
        if state.provides:
            continue
        for other in state.workflows:
            for theirs in methods[other].states:
                if theirs.provides and name in theirs.workflows and theirs.name in state.taken:
                    values = provided.get(other, {})
                    if theirs.name in values:
                        context[theirs.name] = values[theirs.name]
    return context
