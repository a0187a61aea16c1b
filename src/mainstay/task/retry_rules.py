"""Which exceptions are worth another attempt: `retry_on`, `give_up_on`.

The policy in control sees an error as data, which knows no subclasses. So the exception is judged where it is raised,
and carries the verdict as its `retryable`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ..errors import InvalidInput

Errors = type[Exception] | Iterable[type[Exception]]


class Judge:
    """Marks exceptions that leave a call."""

    def __init__(self, retry_on: tuple[type[Exception], ...] | None, give_up_on: tuple[type[Exception], ...]) -> None:
        self._retry_on = retry_on
        self._give_up_on = give_up_on

    @classmethod
    def of(cls, retry_on: Errors | None, give_up_on: Errors | None) -> Judge | None:
        """None when nothing is asked for."""
        if retry_on is None and give_up_on is None:
            return None
        return cls(
            None if retry_on is None else _classes("retry_on", retry_on), _classes("give_up_on", give_up_on or ())
        )

    def call(self, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except Exception as error:
            self._mark(error)
            raise

    async def wait(self, running: Awaitable[Any]) -> Any:
        try:
            return await running
        except Exception as error:
            self._mark(error)
            raise

    def _mark(self, error: Exception) -> None:
        # what names the nearer class would be nicer still, but who writes both means give_up_on as the exception
        if isinstance(error, self._give_up_on):
            verdict = False
        elif self._retry_on is not None:
            verdict = isinstance(error, self._retry_on)
        else:
            return
        with contextlib.suppress(AttributeError):  # an exception may refuse attributes; the budget decides then
            error.retryable = verdict  # type: ignore[attr-defined]


def _classes(field: str, given: Errors) -> tuple[type[Exception], ...]:
    found = (given,) if isinstance(given, type) else tuple(given)
    for kind in found:
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            raise InvalidInput(field, f"{kind!r} is not an exception class")
    return found
