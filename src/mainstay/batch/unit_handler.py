"""The handler of a unit: skip it if its outputs exist, run the function in a folder of its own, publish its outputs.

The function may be plain or `async def`, on the loop, in a thread or in a child process. The steps before and after it
are the same, and run on the worker's loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from ..control import Decide
from ..errors import BadArguments, BadResult, OutputMissing, PathBlocked, StoreError
from ..outputs import SOURCE_DIGEST, ManifestGroup, Origin, Outputs, OutputStore, Scratch, Unit, output_path
from ..task import enter_job
from ..worker import Mode, context
from .functions import Function
from .locations import OutputStores
from .manifests import code_of_aggregation, digest_of_inputs, inputs_of, seeds_of
from .spec import UNREACHED, UnitCall, call_of
from .study import Aggregation, Batch
from .unit_plan import MADE_OF
from .unit_results import Inputs, UnitResult

T = TypeVar("T")

#: how long results are kept while the storage does not answer; then the unit is postponed and run again
_PATIENCE_S = 60.0
#: the limit of this wait, as a share of the run timeout
_SHARE = 0.9
_FIRST_WAIT_S = 0.5
#: how long it is postponed then: longer each time, so that a long outage leaves a short history
_FIRST_PUT_OFF_S, _LONGEST_PUT_OFF_S = 10.0, 300.0


class UnitWork:
    """The handler of the units of a study, or of one of its aggregations (`mainstay.worker.Work`)."""

    def __init__(self, study: Batch, output_stores: OutputStores, aggregation: Aggregation | None = None) -> None:
        self.study = study
        self.output_stores = output_stores
        self.aggregation = aggregation
        self.function: Function = study.unit if aggregation is None else aggregation.function
        self.files = study.outputs if aggregation is None else aggregation.outputs
        self.is_async = self.function.is_async
        self.mode: Mode = study.mode_of(self.function)
        self.decide: Decide | None = study.decide

    def unpack(self, payload: bytes) -> UnitCall:
        """The payload of the unit; refused if it was submitted for other code."""
        call = call_of(payload, self.study.client.sealer)
        if call.run_by:
            _check_code(self.study.name, call.run_by, self.study.fingerprint)
        elif self.aggregation is None:
            _check_code(self.study.name, call.code, self.study.code)
        return call

    def call(self, call: UnitCall) -> Any:
        enter_job(self.study.client)
        unit_run = _UnitRun(self, call)
        return self._run_async(unit_run) if self.is_async else self._run_sync(unit_run)

    def pack(self, result: Any) -> None:
        """The results are in the outputs."""

    async def _run_async(self, unit_run: _UnitRun) -> None:
        async with unit_run as offered:
            unit_run.returned = await self.function(offered)

    def _run_sync(self, unit_run: _UnitRun) -> None:
        loop = context().link.loop

        def run(coroutine: Coroutine[Any, Any, T]) -> T:
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

        offered = run(unit_run.__aenter__())
        try:
            unit_run.returned = self.function(offered)
        except BaseException:
            run(unit_run.__aexit__(*sys.exc_info()))
            unit_run.put_off_if_away()
            raise
        run(unit_run.__aexit__(None, None, None))


class _UnitRun:
    """The steps before and after the function of one unit."""

    def __init__(self, work: UnitWork, call: UnitCall) -> None:
        self.returned: Any = None
        self._context = context()
        self._work = work
        self._call = call
        self._unit = Unit(call.study, call.code, call.params, call.seed)
        self._began_s = 0.0
        self._fetching: Inputs | None = None
        self._made_of = ""
        """digest of the inputs of an aggregation, stored with its outputs"""
        self._stack = AsyncExitStack()
        self._store: OutputStore
        self._out: Outputs

    async def __aenter__(self) -> dict[str, Any]:
        self._began_s = asyncio.get_running_loop().time()
        try:
            self._store = await self._work.output_stores.get(self._call.outputs)
            group = None if self._work.aggregation is None else await self._inputs_of(self._work.aggregation)
            await self._look()
            scratch = Scratch()
            self._stack.push_async_callback(_removed, scratch)
            self._out = Outputs(scratch, self._work.files)
            offered = {
                "params": self._work.function.params(dict(self._call.params)),
                "seed": self._call.seed,
                "out": self._out,
            }
            if group is not None:
                offered |= await self._fetch(group, scratch.beside("inputs"))
        except BaseException as error:
            await self._stack.aclose()
            if isinstance(error, StoreError):
                self._put_off(error)
            raise
        return offered

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        async with self._stack:
            if kind is None:
                await self._publish()

    async def _look(self) -> None:
        if self._call.force:
            await self._store.remove(self._unit)
            return
        (findings,) = await self._store.look([self._unit], self._work.files, verify=self._call.verify)
        if findings.whole:
            # this process may only remember them: read them again
            (findings,) = await self._store.look([self._unit], self._work.files, verify=self._call.verify, fresh=True)
        if findings.whole:
            self._context.skip("its outputs exist already")
        for finding in findings.outputs.values():
            if finding.error is not None:
                raise finding.error

    async def _inputs_of(self, aggregation: Aggregation) -> ManifestGroup:
        """The inputs of an aggregation; refused if it was submitted for other code."""
        manifest = await self._work.output_stores.manifest(self._call.outputs, self._context.job.parent or "")
        inputs = manifest.groups[self._call.group - 1]
        if not self._call.run_by:
            code = code_of_aggregation(self._work.study.code, aggregation, inputs, seeds_of(manifest))
            _check_code(self._work.function.name, self._call.code, code)
        return inputs_of(manifest, self._call.group, self._call.index, over=aggregation.over)

    async def _fetch(self, group: ManifestGroup, folder: Path) -> dict[str, Any]:
        units = list(group.units())
        # the digest comes first: if an input is replaced in between, the aggregation is made again
        checked = await self._store.look(units, group.outputs)
        self._made_of = digest_of_inputs([findings.contents for findings in checked])
        inputs = self._fetching = Inputs(self._store, units, group.outputs, folder)
        self._stack.push_async_callback(inputs.close)
        if self._work.function.is_async:
            await inputs.all()
        results: list[UnitResult] = inputs.results()
        return {"runs": results, "sets": results}

    def put_off_if_away(self) -> None:
        """Postpone a function that failed because the storage did not answer for an input."""
        if self._fetching is not None and self._fetching.away is not None:
            self._put_off(self._fetching.away)

    async def _publish(self) -> None:
        if self._work.aggregation is not None and self._work.aggregation.returns_data:
            self._out.save(next(iter(self._out)), _as_json(self.returned, self._work.function.name))
        written = self._out.written()
        if lacking := [name for name in self._work.files if self._work.files[name] not in written]:
            path = output_path(self._unit, self._work.files[lacking[0]])
            raise OutputMissing(str(self._unit), ", ".join(lacking), path=path, why="the unit ended without writing it")
        job = self._context.job
        source = self._work.study.source if self._work.aggregation is None else self._work.aggregation.source
        more = {name: digest for name, digest in ((MADE_OF, self._made_of), (SOURCE_DIGEST, source)) if digest}
        about = Origin(job=job.parent, attempt=self._context.attempt, by=job.session, more=more)
        loop = asyncio.get_running_loop()
        until, wait_s = loop.time() + _PATIENCE_S, _FIRST_WAIT_S
        if (limit_s := job.options.run_timeout_s) is not None:
            # an outage must not make the unit overrun and fail
            until = min(until, self._began_s + _SHARE * limit_s)
        while True:
            try:
                await self._store.publish(self._unit, written, about)
            except PathBlocked:
                raise  # waiting does not help
            except StoreError as error:
                if loop.time() + wait_s > until or self._context.stopping is not None:
                    self._put_off(error)
                self._context.progress(0, 1, f"{UNREACHED}: {_in_a_line(error)}")
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, 10.0)
            else:
                return

    def _put_off(self, error: StoreError) -> NoReturn:
        """Postpone the unit: the storage does not answer, is full or refuses us. No failure is counted."""
        wait_s = min(_LONGEST_PUT_OFF_S, _FIRST_PUT_OFF_S * 2.0 ** min(self._context.job.releases, 10))
        self._context.snooze(timedelta(seconds=wait_s), f"{UNREACHED}: {_in_a_line(error)}")


def _in_a_line(error: StoreError) -> str:
    """An error of the storage as one line, for a reason."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())[:450]


async def _removed(scratch: Scratch) -> None:
    if scratch.exists:
        # an aggregation may have many inputs
        await asyncio.to_thread(scratch.close)


def _check_code(name: str, submitted: str, here: str) -> None:
    if submitted != here:
        raise BadArguments(
            "code",
            f"it was submitted for code {submitted} of {name}, and this worker has {here}: the function, or code "
            "of its project that it depends on, differs. Run a worker with the code it was submitted with, run the "
            "missing units with this code (mainstay jobs resume JOB --with-this-code --app MODULE:APP), or submit the "
            "study again, which runs every unit",
        )


def _as_json(value: Any, name: str) -> bytes:
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=1)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadResult(name, f"what it returned cannot be written as JSON: {error}") from None
