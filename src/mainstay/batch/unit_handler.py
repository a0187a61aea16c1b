"""One unit, run by a worker: look whether it is done already, run the function in a folder of its own, publish.

The function may be plain or `async def`, on the loop, in a thread or in a child process; the way in and out is the same
and takes place on the worker's loop.
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
from ..outputs import ManifestGroup, Origin, Outputs, OutputStore, Unit, output_path
from ..outputs.entry import SOURCE
from ..outputs.scratch import Scratch
from ..task.current_client import begin
from ..worker import Mode, context
from .functions import Function
from .locations import OutputStores
from .manifests import code_of_aggregation, digest_of_inputs, inputs_of, seeds_of
from .spec import UNREACHED, UnitCall, call_of
from .study import Aggregation, Batch
from .unit_plan import MADE_OF
from .unit_results import Inputs, UnitResult

T = TypeVar("T")

#: how long results are held on to while the storage is away, before the unit is put off and run again
_PATIENCE_S = 60.0
#: of its run timeout, that much
_PART = 0.9
_FIRST_WAIT_S = 0.5
#: how long it is put off then: longer each time, or a long outage would make a long history of every unit
_FIRST_PUT_OFF_S, _LONGEST_PUT_OFF_S = 10.0, 300.0


class UnitWork:
    """What a worker runs for the units of a study, or for one of its aggregations (`mainstay.worker.Work`)."""

    def __init__(self, study: Batch, output_stores: OutputStores, aggregation: Aggregation | None = None) -> None:
        self._study = study
        self._output_stores = output_stores
        self._aggregation = aggregation
        self._function: Function = study.unit if aggregation is None else aggregation.function
        self._files = study.outputs if aggregation is None else aggregation.outputs
        self.is_async = self._function.is_async
        self.mode: Mode = study.mode_of(self._function)
        self.decide: Decide | None = study.decide

    def unpack(self, payload: bytes) -> UnitCall:
        """What the unit is to do; refused if it was submitted for another version of the code."""
        call = call_of(payload, self._study.client.sealer)
        if call.run_by:
            _check_code(self._study.name, call.run_by, self._study.fingerprint)
        elif self._aggregation is None:
            _check_code(self._study.name, call.code, self._study.code)
        return call

    def call(self, call: UnitCall) -> Any:
        begin(self._study.client)
        unit_run = _UnitRun(self._study, self._output_stores, self._function, self._files, self._aggregation, call)
        return self._awaited(unit_run) if self.is_async else self._plainly(unit_run)

    def pack(self, result: Any) -> None:
        """What it makes is in its outputs."""

    async def _awaited(self, unit_run: _UnitRun) -> None:
        async with unit_run as offered:
            unit_run.returned = await self._function(offered)

    def _plainly(self, unit_run: _UnitRun) -> None:
        loop = context().link.loop

        def run(coroutine: Coroutine[Any, Any, T]) -> T:
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

        offered = run(unit_run.__aenter__())
        try:
            unit_run.returned = self._function(offered)
        except BaseException:
            run(unit_run.__aexit__(*sys.exc_info()))
            unit_run.put_off_if_away()
            raise
        run(unit_run.__aexit__(None, None, None))


class _UnitRun:
    """The way in and out of one unit's function."""

    def __init__(
        self,
        study: Batch,
        output_stores: OutputStores,
        function: Function,
        files: dict[str, str],
        aggregation: Aggregation | None,
        call: UnitCall,
    ) -> None:
        self.returned: Any = None
        self._context = context()
        self._study = study
        self._output_stores = output_stores
        self._function = function
        self._files = files
        self._aggregation = aggregation
        self._call = call
        self._unit = Unit(call.study, call.code, call.params, call.seed)
        self._began_s = 0.0
        self._fetching: Inputs | None = None
        self._made_of = ""
        """of an aggregation: a digest of its inputs, kept with what it makes"""
        self._stack = AsyncExitStack()
        self._store: OutputStore
        self._out: Outputs

    async def __aenter__(self) -> dict[str, Any]:
        self._began_s = asyncio.get_running_loop().time()
        try:
            self._store = await self._output_stores.get(self._call.outputs)
            wanted = None if self._aggregation is None else await self._wanted(self._aggregation)
            await self._look()
            scratch = Scratch()
            self._stack.push_async_callback(_removed, scratch)
            self._out = Outputs(scratch, self._files)
            offered = {
                "params": self._function.params(dict(self._call.params)),
                "seed": self._call.seed,
                "out": self._out,
            }
            if wanted is not None:
                offered |= await self._inputs(wanted, scratch.beside("inputs"))
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
        (seen,) = await self._store.look([self._unit], self._files, verify=self._call.verify)
        if seen.whole:
            # the driver may have read what this process only remembers
            (seen,) = await self._store.look([self._unit], self._files, verify=self._call.verify, fresh=True)
        if seen.whole:
            self._context.skip("its outputs are there already")
        for finding in seen.outputs.values():
            if finding.error is not None:
                raise finding.error

    async def _wanted(self, aggregation: Aggregation) -> ManifestGroup:
        """What an aggregation is made of; refused if it was submitted for another version of the code."""
        manifest = await self._output_stores.manifest(self._call.outputs, self._context.job.parent or "")
        inputs = manifest.groups[self._call.group - 1]
        if not self._call.run_by:
            code = code_of_aggregation(self._study.code, aggregation, inputs, seeds_of(manifest))
            _check_code(self._function.name, self._call.code, code)
        return inputs_of(manifest, self._call.group, self._call.index, over=aggregation.over)

    async def _inputs(self, wanted: ManifestGroup, folder: Path) -> dict[str, Any]:
        units = list(wanted.units())
        # before they are read: one that is replaced in between makes it look older than it is, and it is made again
        looked = await self._store.look(units, wanted.outputs)
        self._made_of = digest_of_inputs([seen.contents for seen in looked])
        inputs = self._fetching = Inputs(self._store, units, wanted.outputs, folder)
        self._stack.push_async_callback(inputs.close)
        if self._function.is_async:
            await inputs.all()
        made: list[UnitResult] = inputs.made()
        return {"runs": made, "sets": made}

    def put_off_if_away(self) -> None:
        """For a function that failed because storage was away when it asked for an input."""
        if self._fetching is not None and self._fetching.away is not None:
            self._put_off(self._fetching.away)

    async def _publish(self) -> None:
        if self._aggregation is not None and self._aggregation.returns_data:
            self._out.save(next(iter(self._out)), _as_json(self.returned, self._function.name))
        written = self._out.written()
        if lacking := [name for name in self._files if self._files[name] not in written]:
            path = output_path(self._unit, self._files[lacking[0]])
            raise OutputMissing(str(self._unit), ", ".join(lacking), path=path, why="it ended without writing it")
        job = self._context.job
        source = self._study.source if self._aggregation is None else self._aggregation.source
        more = {name: digest for name, digest in ((MADE_OF, self._made_of), (SOURCE, source)) if digest}
        about = Origin(job=job.parent, attempt=self._context.attempt, by=job.session, more=more)
        loop = asyncio.get_running_loop()
        until, wait_s = loop.time() + _PATIENCE_S, _FIRST_WAIT_S
        if (limit_s := job.options.run_timeout_s) is not None:
            # a unit that overran would have failed, for storage that was away
            until = min(until, self._began_s + _PART * limit_s)
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
        """Away, full or closed to us: not the unit's fault, so no failure is counted."""
        wait_s = min(_LONGEST_PUT_OFF_S, _FIRST_PUT_OFF_S * 2.0 ** min(self._context.job.releases, 10))
        self._context.snooze(timedelta(seconds=wait_s), f"{UNREACHED}: {_in_a_line(error)}")


def _in_a_line(error: StoreError) -> str:
    """A reason is one line, and what storage says often is not."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())[:450]


async def _removed(scratch: Scratch) -> None:
    if scratch.exists:
        # the inputs of an aggregation may be many
        await asyncio.to_thread(scratch.close)


def _check_code(name: str, submitted: str, here: str) -> None:
    if submitted != here:
        raise BadArguments(
            "code",
            f"it was submitted for code {submitted} of {name}, and this worker has {here}: the function, or something "
            "of its project that it depends on, differs. Run a worker with the code it was submitted with, run what is "
            "missing with the code at hand (mainstay jobs resume JOB --with-this-code --app MODULE:APP), or submit the "
            "study again, which runs every unit",
        )


def _as_json(value: Any, name: str) -> bytes:
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=1)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadResult(name, f"what it returned cannot be written as JSON: {error}") from None
