"""One attempt, from stored arguments to its ending: the same on an engine's loop, in its threads and in a child."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import Executor
from typing import Any

from ..control import error_info
from ..errors import BadArguments, InvalidInput
from ..model import ErrorInfo
from .context import Context, Retry, Skip, Snooze, Stopped, enter
from .endings import Done, Ending, Failed, Halted, Misfit, NotNeeded, PutOff
from .program import Program, Work


async def attempt(program: Program, work: Work, context: Context, threads: Executor) -> Ending:
    """Unpack, enter the hooks, call, pack. Never raises for what the job does; whatever that is, it is an ending.

    To stop it: `context.stop(why)`, and for an `async def` cancel the task this runs in.
    """
    try:
        arguments = work.unpack(context.job.payload)
    except BadArguments as error:
        return Misfit(error_info(error, retryable=False))
    enter(context)
    value: Any = None  # what a hook that swallows an error leaves
    try:
        around = program.around(context)
        if around is None:
            value = await _call(work, arguments, threads)
        else:
            async with around:
                value = await _call(work, arguments, threads)
    except Retry as asked:
        return Failed(error=ErrorInfo(type="Retry", code="retry", message=asked.reason), after_s=asked.after_s)
    except Snooze as asked:
        return PutOff(asked.wait_s, asked.reason)
    except Skip as asked:
        return NotNeeded(asked.reason)
    except Stopped as asked:
        return Halted(str(asked))
    except asyncio.CancelledError as error:
        if context.stopping is not None:
            return Halted(context.stopping)
        return Failed(error=error_info(error))
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 - `sys.exit()` in a task ends that task, not its neighbours
        return Failed(error=error_info(error))
    try:
        return Done(work.pack(value), tuple(context.followups))
    except InvalidInput as error:
        # the work is done, and would come to the same result again
        return Failed(error=error_info(error, retryable=False))


async def _call(work: Work, arguments: Any, threads: Executor) -> Any:
    if work.is_async:
        return await work.call(arguments)
    # the thread sees what the hooks have set
    return await asyncio.get_running_loop().run_in_executor(
        threads, contextvars.copy_context().run, _plainly, work, arguments
    )


def _plainly(work: Work, arguments: Any) -> Any:
    try:
        return work.call(arguments)
    except StopIteration as error:
        # no future takes one (before Python 3.12 it would never be done); a coroutine turns it into the same
        raise RuntimeError("it raised StopIteration") from error
