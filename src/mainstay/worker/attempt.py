"""One attempt, from stored arguments to its ending: the same on an engine's loop, in a thread and in a child."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from typing import Any

import msgspec

from ..control import error_info
from ..errors import BadArguments
from ..model import ErrorInfo
from .endings import Done, Ending, Failed, GivenBack, Gone, Halted, Misfit, NotNeeded, Overrun, PutOff
from .job_context import Context, Directive, GiveBack, LetGo, OutOfTime, Retry, Skip, Snooze, Stopped, enter
from .program import Hook, Program, Work, supervises


async def attempt(program: Program, work: Work, context: Context, threads: Executor) -> Ending:
    """Unpack, enter the hooks, call, pack. Never raises for what the job does: that is an ending, too.

    To stop it: `context.stop(why)`, and for an `async def` cancel the task that runs this.
    """
    try:
        arguments = work.unpack(context.job.payload)
    except BadArguments as error:
        return Misfit(error_info(error, retryable=False))
    enter(context)
    try:
        # it runs no code of the program here
        hooks = () if supervises(work) else program.around(context)
        if hooks:
            result = await _run_with_hooks(hooks, work, arguments, threads)
        else:
            result = (
                work.pack(await work.call(arguments))
                if work.is_async
                else await _run_in_thread(work, arguments, threads)
            )
        return Done(result, context.close())
    except BaseException as error:  # noqa: BLE001 - `sys.exit()` in a task ends that task, not its neighbours
        context.close()
        return _ending_of(error, context)


async def _run_with_hooks(hooks: Sequence[Hook], work: Work, arguments: Any, threads: Executor) -> msgspec.Raw | None:
    """Hooks run where the task runs: on the loop for an `async def`, in its thread for a plain function. An async hook
    cannot be entered in a thread: around a plain function it runs on the loop, outside of all others."""
    result: msgspec.Raw | None = None  # stays so if a hook suppresses an error
    async with AsyncExitStack() as stack:
        inside: list[AbstractContextManager[Any]] = []
        for hook in hooks:
            if isinstance(hook, AbstractAsyncContextManager):
                await stack.enter_async_context(hook)
            elif work.is_async:
                stack.enter_context(hook)
            else:
                inside.append(hook)
        if work.is_async:
            result = work.pack(await work.call(arguments))
        else:
            result = await _run_in_thread(work, arguments, threads, inside)
    return result


async def _run_in_thread(
    work: Work, arguments: Any, threads: Executor, hooks: Sequence[AbstractContextManager[Any]] = ()
) -> msgspec.Raw | None:
    # the thread has the context of the hooks; it also packs the result, since a big one would block the loop
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(threads, run, _call_in_thread, work, arguments, hooks)


def _call_in_thread(work: Work, arguments: Any, hooks: Sequence[AbstractContextManager[Any]]) -> msgspec.Raw | None:
    result: msgspec.Raw | None = None
    try:
        with ExitStack() as stack:
            for hook in hooks:
                stack.enter_context(hook)
            result = work.pack(work.call(arguments))
    except StopIteration as error:
        # a future does not take it (before Python 3.12 it would never be done); a coroutine raises the same
        raise RuntimeError("it raised StopIteration") from error
    return result


def _ending_of(error: BaseException, context: Context) -> Ending:
    """The ending for an exception that left the task."""
    match _unwrapped(error):
        case Retry(after_s=after_s, reason=reason):
            return Failed(error=ErrorInfo(type="Retry", code="retry", message=reason), after_s=after_s)
        case Snooze(wait_s=wait_s, reason=why):
            return PutOff(wait_s, why)
        case Skip(reason=reason):
            return NotNeeded(reason)
        case GiveBack(reason=reason):
            return GivenBack(reason)
        case OutOfTime(how=how):
            return Overrun(how)
        case LetGo():
            return Gone()
        case Stopped() as stopped:
            return Halted(str(stopped))
        case asyncio.CancelledError() if context.stopping is not None:
            return Halted(context.stopping)
    return Failed(error=error_info(error))


def _unwrapped(error: BaseException) -> BaseException:
    """A directive inside a task group is wrapped, perhaps several times; a group of several errors is an error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        inner = error.exceptions[0]
        if not isinstance(inner, BaseExceptionGroup | Directive):
            return error
        error = inner
    return error
