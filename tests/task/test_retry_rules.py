"""Which exceptions are tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainstay import App, Wait
from mainstay.control import error_info
from mainstay.errors import InvalidInput


class Busy(OSError):
    pass


class Stubborn(Exception):
    """Takes no attributes."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


@pytest.fixture
def app() -> App:
    return App("memory:")


async def verdict(app: App, error: Exception, is_async: bool, **options: Any) -> bool | None:
    """What the exception says for itself once it has left the task."""

    async def wait() -> None:
        raise error

    def work() -> None:
        raise error

    function: Callable[[], Any] = wait if is_async else work
    task = app.task(name="work", **options)(function)
    try:
        answer = task.call(task.unpack(b"\x80"))
        await answer
    except type(error) as raised:
        return error_info(raised).retryable
    raise AssertionError("it was swallowed")


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({}, ValueError(), None),
        ({"retry_on": OSError}, Busy(), True),
        ({"retry_on": (OSError,)}, ValueError(), False),
        ({"give_up_on": [ValueError]}, ValueError(), False),
        ({"give_up_on": [ValueError]}, OSError(), None),
        ({"retry_on": OSError, "give_up_on": Busy}, Busy(), False),
        ({"retry_on": OSError}, Stubborn(), None),
    ],
)
async def test_an_exception_is_judged_by_its_class(
    app: App, is_async: bool, options: dict[str, Any], error: Exception, expected: bool | None
) -> None:
    assert await verdict(app, error, is_async, **options) is expected


def test_what_is_no_exception_class_is_refused(app: App) -> None:
    for wrong in ("OSError", [5], BaseException):
        with pytest.raises(InvalidInput, match="retry_on: .* is not an exception class"):
            app.task(name="work", retry_on=wrong)(lambda: None)  # type: ignore[call-overload]


def test_a_policy_is_handed_to_the_worker_and_decides_alone(app: App) -> None:
    def patient(attempt: int, job: object, error: object) -> Wait:
        return Wait(60)

    assert app.task(name="work", policy=patient)(lambda: None).decide is patient
    assert app.task(name="other")(lambda: None).decide is None
    with pytest.raises(InvalidInput, match="policy: .* decides alone"):
        app.task(name="both", policy=patient, retry_on=OSError)(lambda: None)
    with pytest.raises(InvalidInput, match="policy: must be a function"):
        app.task(name="none", policy="patient")(lambda: None)  # type: ignore[call-overload]
