"""Where the results of a load test go while it runs: the live view, files, metric systems. One small interface."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from ..errors import InvalidInput
from .stats.model import Header, Moment, OutputOutcome, Summary, WorkflowResult

log = logging.getLogger("mainstay.load")


class Output(Protocol):
    """Three calls, in this order. An output that raises or never returns does not fail the run: the summary reports it,
    and that output gets nothing more. Only an `InvalidInput` from `start` refuses the run."""

    name: str

    async def start(self, header: Header) -> None:
        """Before the first request, within half a minute."""
        ...

    def add(self, moment: Moment) -> None:
        """Ten times a second. Must not block: buffer, and send elsewhere."""
        ...

    async def stop(self, summary: Summary) -> None:
        """After the last request, within a minute; write the rest."""
        ...


@runtime_checkable
class WorkflowOutput(Protocol):
    """An output that wants the result of each workflow as well, once, when it has ended."""

    def ended(self, result: WorkflowResult) -> None:
        """After the windows of the workflow. Must not block."""
        ...


class OutputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of one output, in seconds."""

    start_s: float = 30.0
    stop_s: float = 60.0
    give_up_s: float = 5.0
    """to stop, after the run was given up"""


class RunOutputs:
    """All outputs of a run. A failed one is reported in the summary and gets nothing more."""

    def __init__(self, outputs: Sequence[Output], limits: OutputLimits | None = None) -> None:
        self._outputs = list(outputs)
        self._limits = limits or OutputLimits()
        self._errors: dict[int, str] = {}

    async def start(self, header: Header) -> None:
        """Raises refusals (a folder does not exist): nothing has begun yet."""
        for number, output in enumerate(self._outputs):
            try:
                await _within(self._limits.start_s, output.start(header), "start")
            except InvalidInput:
                raise
            except Exception as error:  # noqa: BLE001 - a broken output never ends the run
                self._failed(number, error)

    def add(self, moment: Moment) -> None:
        for number, output in enumerate(self._outputs):
            if number not in self._errors:
                try:
                    output.add(moment)
                except Exception as error:  # noqa: BLE001 - as above
                    self._failed(number, error)

    def ended(self, result: WorkflowResult) -> None:
        for number, output in enumerate(self._outputs):
            if number not in self._errors and isinstance(output, WorkflowOutput):
                try:
                    output.ended(result)
                except Exception as error:  # noqa: BLE001 - as above
                    self._failed(number, error)

    async def stop(self, summary: Summary, *, given_up: bool = False) -> None:
        within_s = self._limits.give_up_s if given_up else self._limits.stop_s
        for number, output in enumerate(self._outputs):
            if number not in self._errors:
                try:
                    await _within(within_s, output.stop(summary), "stop")
                except Exception as error:  # noqa: BLE001 - as above
                    self._failed(number, error)

    def _failed(self, number: int, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        self._errors[number] = reason
        log.warning("output=%s failed, the run goes on: %s", self._outputs[number].name, reason)

    def outcomes(self) -> list[OutputOutcome]:
        return [
            OutputOutcome(name=output.name, error=self._errors.get(number, ""))
            for number, output in enumerate(self._outputs)
        ]


async def _within(seconds: float, call: Coroutine[Any, Any, None], name: str) -> None:
    """Not `wait_for`: that would wait for a call that ignores its cancellation."""
    task = asyncio.ensure_future(call)
    task.add_done_callback(_retrieve)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        task.cancel()
    if not task.done():
        raise TimeoutError(f"{name} did not return within {seconds:g} s")
    if task.cancelled():
        raise RuntimeError(f"{name} was cancelled")
    task.result()


def _retrieve(task: asyncio.Future[None]) -> None:
    """Retrieve the exception of an abandoned call, so that asyncio does not warn about it."""
    if not task.cancelled():
        task.exception()
