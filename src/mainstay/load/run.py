"""A run, from its plan to its summary: layers of workflows one after the other, windows judged as they come.

It knows nothing of jobs and stores; see `works` for that.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from ..clock import Clock
from ..errors import InvalidInput
from ..words import counted
from .blueprint import Blueprint, blueprint_of, check_states
from .engine.messages import Told
from .generator_process import Said
from .generators import Fleet, GeneratorLost, Limits
from .outputs import Output, OutputLimits, Outputs
from .plan import LoadOptions, RunPlan, plan_of
from .sources import LoadTest
from .stats.accounts import Ledger
from .stats.grammar import Threshold
from .stats.model import FAILED, SETUP_FAILED, WINDOW_MS, Header, Moment, Summary, ThresholdOutcome, Window
from .stats.tally import Tally
from .stats.thresholds import RUNNING, Judge, check, thresholds_of, verdict_of
from .stats.trust import TrustWatch
from .workflow import slips_of

log = logging.getLogger("mainstay.load")

#: generator processes for each core, beyond which a run warns
_CROWDED = 2


class Planned:
    """A test and what a submission says, checked: everything that can be known before a process is started."""

    def __init__(self, test: LoadTest, options: LoadOptions) -> None:
        self.test = test
        self.options = options
        self.plan: RunPlan = plan_of(test.workflows, options)
        self.blueprints: dict[str, Blueprint] = {
            name: blueprint_of(test.workflows[name]) for name in self.plan.workflows
        }
        check_states(self.blueprints)
        self.thresholds: list[Threshold] = self._thresholds()
        self.notes = [*slips_of({name: test.workflows[name] for name in self.plan.workflows}), *self.plan.notes]
        """what of the test or of the submission has no effect, or hardly the one that was meant"""
        self.processes = self._processes()
        check(self.thresholds, self.header("", 0))

    def _thresholds(self) -> list[Threshold]:
        found: list[Threshold] = []
        for name in self.plan.workflows:
            given = self.test.workflows[name].thresholds
            found += thresholds_of([given] if isinstance(given, str) else given)
        found += thresholds_of(self.options.thresholds)
        return list({str(one): one for one in found}.values())

    def _processes(self) -> int:
        """One for each core, and no more than there are users."""
        given = self.options.processes
        users = [one.most_users for one in self.plan.workflows.values()]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if given is not None:
            if not 1 <= given <= 1024:
                raise InvalidInput("processes", f"{given} is out of range; from 1 to 1024")
            return self._useful(given, cores, sum(users))
        return max(1, min(cores, max(users)))

    def _useful(self, given: int, cores: int, users: int) -> int:
        """Of a number of processes that was asked for, those that have something to do."""
        found = max(1, min(given, users))
        if found < given:
            self.notes.append(f"{found} of {given} processes are started: there are no more users")
        if found > _CROWDED * cores:
            self.notes.append(
                f"{found} generator processes share {counted(cores, 'core')}: they wait for each other, "
                "and their times include that; use one for each core"
            )
        return found

    def header(self, run: str, started_ms: int, *, token: int = 0) -> Header:
        workflows: list[dict[str, Any]] = []
        for name, plan in self.plan.workflows.items():
            steps = self.blueprints[name].steps.values()
            cls = self.test.workflows[name]
            workflows.append(
                {
                    "name": name,
                    "model": plan.told,
                    "open": plan.arrivals is not None,
                    "vus": plan.most_users,
                    "rate": None if plan.arrivals is None else plan.arrivals.highest,
                    "duration_s": plan.duration_s,
                    "iterations": plan.iterations,
                    "after": list(cls.__depends__),
                    "tags": dict(cls.tags),
                    "steps": [
                        {"name": one.name, "kind": one.kind, "after": list(one.after), "tags": one.tags}
                        for one in steps
                    ],
                }
            )
        return Header(
            run=run,
            token=token,
            name=self.test.name,
            started_ms=started_ms,
            version=version("mainstay"),
            processes=self.processes,
            duration_s=self.plan.duration_s,
            workflows=workflows,
            thresholds=[str(one) for one in self.thresholds],
            tags=self.options.tags,
        )


class LoadRun:
    """One run. `run` takes it to its end; `stop` has it end early, in good order; `give_up` at once, and `kill`
    without its teardowns."""

    def __init__(
        self,
        planned: Planned,
        run_id: str,
        *,
        token: int = 0,
        clock: Clock,
        outputs: Sequence[Output] = (),
        stream: str = "",
        said: Said | None = None,
        limits: Limits | None = None,
        output_limits: OutputLimits | None = None,
    ) -> None:
        """`stream`: where one of the outputs records it, for the others to tell. `said` takes what the steps print;
        without it, the log does."""
        self._planned = planned
        self._clock = clock
        self._stream = stream
        self._started_ms = clock.now_ms()
        self.header = planned.header(run_id, self._started_ms, token=token)
        self._outputs = Outputs(outputs, output_limits)
        self._said = said or _logged
        self._limits = limits
        self._put_out = False
        """whether the outputs have begun"""
        self._tally = Tally(self.header)
        self._judge = Judge(planned.thresholds, self.header)
        self._doubts = TrustWatch()
        self._ledger = Ledger()
        self._cut = ""
        """why what a generator did last is not known, if that is so"""
        self._fleet: Fleet | None = None
        self._phase = "preparing"
        self._ended = ""
        self._given_up = False
        self._skipped: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        """workflows that failed, or were not run because another did"""
        self._over_s = 0.0
        """what the layers that are over took"""
        self._drained_s = 0.0
        """of that: drains, in which nothing was begun"""
        self._first_bucket: int | None = None
        """of the layer at work; None between two"""
        self._last_bucket = 0
        self.seconds = 0
        """whole ones that were seen"""

    async def run(self) -> Summary:
        """To its end. Raises `InvalidInput` for what cannot be started; nothing was sent then."""
        planned = self._planned
        try:
            async with Fleet(planned.processes, self._saw, on_said=self._said, limits=self._limits) as fleet:
                self._fleet = fleet
                if self._given_up:
                    fleet.give_up()
                try:
                    await fleet.begin(planned.test.name, planned.test.source, planned.options)
                    # only now is it sure that there is anything to be put out
                    await self._outputs.start(self.header)
                    self._put_out = True
                    await self._layers(fleet)
                except GeneratorLost as error:
                    if not self._put_out and not self._given_up:
                        raise
                    # what it had sent is kept; the others are told to come to their end
                    if not self._given_up:
                        self._ended = f"failed: {error}"
                    fleet.stop(hurry=True)
        except asyncio.CancelledError:
            # nobody waits any longer; what is known by now is put out all the same
            self._ended = self._ended or "cancelled: given up"
            self._given_up = True
            if self._put_out:
                await self._finish()
            raise
        finally:
            self._fleet = None
            self._phase = "done"
        return await self._finish()

    def stop(self, why: str, *, hurry: bool = True) -> None:
        """Have it end early; what is under way is waited for."""
        self._ended = self._ended or why
        if self._fleet is not None:
            self._phase = "draining"
            self._fleet.stop(hurry=hurry)

    def give_up(self) -> None:
        """Have a run that was stopped end at once: what is under way is aborted, and teardowns have little time."""
        self._given_up = True
        if self._fleet is not None:
            self._fleet.give_up()

    def kill(self) -> None:
        """Have a run that was given up end without its teardowns."""
        if self._fleet is not None:
            self._fleet.kill()

    # layers -----------------------------------------------------------------------------------------

    async def _layers(self, fleet: Fleet) -> None:
        planned = self._planned
        provided: dict[str, dict[str, Any]] = {}
        failed = self._failed
        set_up: list[str] = []
        layers = planned.plan.graph.layers()
        try:
            for layer in layers:
                workflows = [name for name in layer if not self._skip(name, failed)]
                if self._ended:
                    self._skipped.update(dict.fromkeys(workflows, f"the run had ended before ({self._ended})"))
                if not workflows or self._ended:
                    continue
                shared = {name: _used(planned.blueprints, name, provided) for name in workflows}
                set_up += workflows
                calls = sum(len(planned.blueprints[name].setups) for name in workflows)
                found = await fleet.set_up(workflows, shared, calls=calls)
                for name, why in found.failed.items():
                    failed[name] = self._skipped[name] = self._ended or f"{SETUP_FAILED}{why}"
                workflows = [name for name in workflows if name not in found.failed]
                if not workflows or self._ended:
                    continue
                for name in workflows:
                    shared[name].update(found.values.get(name, {}))
                self._phase = "running" if len(layers) == 1 else f"running {', '.join(workflows)}"
                await self._go(fleet, workflows, shared, failed)
                providers = [name for name in workflows if name not in failed]
                calls = sum(len(planned.blueprints[name].states) for name in providers)
                given = await fleet.give(providers, calls=calls)
                provided.update(given.values)
                failed.update({name: f"what it provides failed: {why}" for name, why in given.failed.items()})
        except asyncio.CancelledError:
            # nobody waits for what would be torn down
            self._given_up = True
            self._not_torn_down(set_up)
            set_up.clear()
            raise
        finally:
            if set_up:
                await self._tear_down(fleet, set_up)
        for name, why in failed.items():
            if name not in self._skipped:
                self._skipped[f"{name}{FAILED}"] = why

    async def _tear_down(self, fleet: Fleet, workflows: Sequence[str]) -> None:
        calls = sum(len(self._planned.blueprints[name].teardowns) for name in workflows)
        try:
            torn = await fleet.tear_down(workflows, calls=calls)
        except (GeneratorLost, asyncio.CancelledError):
            self._not_torn_down(workflows)
            raise
        for name, why in torn.failed.items():
            self._skipped[f"{name} teardown"] = f"failed: {why}"

    def _not_torn_down(self, workflows: Sequence[str]) -> None:
        """Whoever has something to clean up by hand is to know."""
        why = "the run was given up" if self._given_up else "its generator was lost"
        for name in workflows:
            if self._planned.blueprints[name].teardowns:
                self._skipped[f"{name} teardown"] = f"was not run to its end: {why}"

    def _skip(self, name: str, failed: dict[str, str]) -> bool:
        """Whether what it depends on has failed; then so has it."""
        broken = [one for one in self._planned.plan.graph.after[name] if one in failed]
        if broken:
            failed[name] = self._skipped[name] = f"{broken[0]} failed, which it depends on ({failed[broken[0]]})"
        return bool(broken)

    async def _go(
        self,
        fleet: Fleet,
        workflows: Sequence[str],
        shared: dict[str, dict[str, Any]],
        failed: dict[str, str],
    ) -> None:
        plans = [self._planned.plan.workflows[name] for name in workflows]
        drain_s = max(plan.drain_s for plan in plans)
        lasts_s = max(math.inf if plan.duration_s is None else plan.duration_s for plan in plans)
        try:
            overs, lost = await fleet.go(workflows, shared, longest_s=lasts_s + drain_s, drain_s=drain_s)
        except asyncio.CancelledError:
            self._cut = "the run was given up before its generators had reported all"
            raise
        if lost:
            self._over_s = self.elapsed_s
        else:
            took_s = max(over.took for over in overs)
            self._over_s += took_s
            self._drained_s += took_s - max(over.loaded for over in overs)
        self._first_bucket = None
        if lost is not None:
            self._cut = "a generator was lost, and what it did after its last report is not known"
            raise lost
        for name in workflows:
            told = [over.workflows[name] for over in overs if name in over.workflows]
            self._ledger.settle(name, [one.account for one in told])
            why = _failure(told, self._planned.plan.workflows[name].iterations)
            if why and not self._ended:
                failed[name] = why

    # windows ----------------------------------------------------------------------------------------

    def _saw(self, window: Window) -> None:
        if self._first_bucket is None:
            self._first_bucket = window.bucket
        self._last_bucket = window.bucket
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
            self.stop("stopped by a threshold")

    @property
    def elapsed_s(self) -> float:
        """How long there was load: exact for what is over, else as far as windows came."""
        if self._first_bucket is None:
            return self._over_s
        return self._over_s + (self._last_bucket + 1 - self._first_bucket) * WINDOW_MS / 1000

    @property
    def load_s(self) -> float:
        """How long load was put on the target: what rates are by."""
        return self.elapsed_s - self._drained_s

    def so_far(self) -> tuple[Summary, list[msgspec.Raw]]:
        """What is known by now: all but the points, and these as they are stored."""
        summary = self._summary(self._judge.outcomes(), ended=RUNNING, points=False)
        summary.outputs = self._outputs.outcomes()
        return summary, self._tally.packed_points()

    # the end ----------------------------------------------------------------------------------------

    async def _finish(self) -> Summary:
        summary = self._summary(self._judge.finish(self.load_s), ended=self._ended or "finished")
        summary.trust = self._doubts.finish(
            by_itself=summary.ended == "finished",
            cut=self._cut,
            wrong_sums=() if self._cut else self._ledger.errors,
        )
        # what was under way in a generator that is gone was cut off with it
        summary.aborted_iterations += self._ledger.unknown if self._cut else 0
        if self._failed and not self._ended:
            # also if others went well: what was asked for was not done
            summary.ended = "failed: " + "; ".join(f"{name}: {why}" for name, why in self._failed.items())
            summary.verdict = verdict_of(summary.thresholds, summary.ended)
        if self._put_out:
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
        )


def _failure(told: Sequence[Told], asked: int | None) -> str:
    """Why a workflow failed, from what all processes told of it; empty if it did not. `asked`: iterations, if a number
    of them was."""
    iterations, unmade = sum(one.iterations for one in told), sum(one.unmade for one in told)
    found = ""
    if unmade:
        found = f"{unmade} of {asked} iterations were not made"
    elif not any(one.clean for one in told):
        found = f"all {iterations} iterations had errors" if iterations else "not one iteration was made"
    refusal = next((one.refusal for one in told if one.refusal), "")
    return f"{found}; users could not begin: {refusal}" if found and refusal else found


def _logged(process: int, line: str) -> None:
    log.info("generator=%d said: %s", process, line)


def _used(blueprints: Mapping[str, Blueprint], name: str, provided: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What a workflow finds in its context: what those it names provide, if they name it, too."""
    found: dict[str, Any] = {}
    for state in blueprints[name].states:
        if state.provides:
            continue
        for other in state.workflows:
            for theirs in blueprints[other].states:
                if theirs.provides and name in theirs.workflows and theirs.name in state.taken:
                    values = provided.get(other, {})
                    if theirs.name in values:
                        found[theirs.name] = values[theirs.name]
    return found
