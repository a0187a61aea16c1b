"""A traceback as text, for hundreds of errors per second.

The standard library computes which part of each line to underline, and asks the file system about every file each time:
90 us for one frame and 550 us for twenty, on the loop that runs the other jobs. This does the same without underlining
in 10 to 30 us, and leaves out the middle of a deep stack, where the loops are.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator
from types import TracebackType

_FIRST, _LAST = 15, 45
#: errors of a chain of causes, from the last one back
_LONGEST_CHAIN = 5
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"

#: files without source text: searching for one goes through all of `sys.path`
_sourceless: set[str] = set()


def trace_text(error: BaseException) -> str:
    """The traceback of an error and of its causes.

    >>> try:
    ...     1 / 0
    ... except ZeroDivisionError as error:
    ...     print(trace_text(error).splitlines()[-1])
    ZeroDivisionError: division by zero
    """
    if isinstance(error, BaseExceptionGroup):
        return "".join(traceback.format_exception(error, limit=-_LAST))
    parts: list[str] = []
    seen: set[int] = set()
    link = ""
    while id(error) not in seen and len(seen) < _LONGEST_CHAIN:
        seen.add(id(error))
        parts.append("".join(_lines(error)) + link)
        if error.__cause__ is not None:
            error, link = error.__cause__, _CAUSE
        elif error.__context__ is not None and not error.__suppress_context__:
            error, link = error.__context__, _CONTEXT
        else:
            break
    return "".join(reversed(parts))


def _lines(error: BaseException) -> Iterator[str]:
    """One error without its causes."""
    frames = list(_frames(error.__traceback__))
    if frames:
        yield "Traceback (most recent call last):\n"
    left_out = len(frames) - _FIRST - _LAST
    if left_out > 0:
        yield from map(_shown, frames[:_FIRST])
        yield f"  ... {left_out} frames left out ...\n"
        frames = frames[-_LAST:]
    yield from map(_shown, frames)
    yield from traceback.format_exception_only(error)


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _shown(trace: TracebackType) -> str:
    frame = trace.tb_frame
    code = frame.f_code
    where = f'  File "{code.co_filename}", line {trace.tb_lineno}, in {code.co_name}\n'
    source = _source(code.co_filename, trace.tb_lineno, frame.f_globals)
    return f"{where}    {source}\n" if source else where


def _source(name: str, line: int, scope: dict[str, object]) -> str:
    """A line of source text as first read, which is closest to the running code."""
    if name in _sourceless:
        return ""
    text = linecache.getline(name, line, scope).strip()
    if not text and name not in linecache.cache:
        _sourceless.add(name)
    return text
