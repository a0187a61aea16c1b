"""Which exceptions are worth another attempt: `retry_on`, `give_up_on`.

The policy in control sees an error as data, without its base classes. So the exception is marked where it is raised,
with the attribute `retryable`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ..errors import InvalidInput

Errors = type[Exception] | Iterable[type[Exception]]


class RetryRules:
    """Marks exceptions that leave a call."""

    def __init__(self, retry_on: tuple[type[Exception], ...] | None, give_up_on: tuple[type[Exception], ...]) -> None:
        self._retry_on = retry_on
        self._give_up_on = give_up_on

    @classmethod
    def of(cls, retry_on: Errors | None, give_up_on: Errors | None) -> RetryRules | None:
        """The rules, or None without any."""
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
        # the nearer class is not searched: with both options, give_up_on is the exception from retry_on
        if isinstance(error, self._give_up_on):
            verdict = False
        elif self._retry_on is not None:
            verdict = isinstance(error, self._retry_on)
        else:
            return
        with contextlib.suppress(AttributeError):  # an exception may refuse attributes; then the retry budget decides
            error.retryable = verdict  # type: ignore[attr-defined]


def _classes(field: str, given: Errors) -> tuple[type[Exception], ...]:
    classes = (given,) if isinstance(given, type) else tuple(given)
    for each in classes:
        if not isinstance(each, type) or not issubclass(each, Exception):
            raise InvalidInput(field, f"{each!r} is not an exception class")
    return classes
