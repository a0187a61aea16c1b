"""Results: checked against the annotation before they are stored, and decoded to it when they are read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec
import pytest

from mainstay import App
from mainstay.control import error_info
from mainstay.errors import BadResult, InvalidInput
from mainstay.task.codec import Sealer
from mainstay.task.returns import Returns


class Receipt(msgspec.Struct):
    number: int
    at: datetime


def of(kind: Any) -> Returns[Any]:
    return Returns("pay", kind, Sealer(None))


def test_a_result_comes_back_as_it_was_declared() -> None:
    receipt = Receipt(7, datetime(2026, 3, 1, tzinfo=UTC))

    stored = of(Receipt).pack(receipt)

    assert stored is not None
    assert of(Receipt).unpack(bytes(stored), job_id="j") == receipt


def test_none_is_not_stored_at_all() -> None:
    assert of(None).pack(None) is None
    assert of(None).unpack(None, job_id="j") is None


@pytest.mark.parametrize(
    ("kind", "value", "complaint"),
    [
        (int, "seven", "pay returned: expected int, got str"),
        (int, None, "pay returned: expected int, got None"),
        (None, 5, "pay returned: expected None, got int"),
        (list[int], [1, "2"], "pay returned \\[1\\]: expected int, got str"),
        (Any, object(), "pay returned: data that cannot be stored"),
    ],
)
def test_a_result_that_is_not_what_was_declared_is_refused_for_good(kind: Any, value: Any, complaint: str) -> None:
    with pytest.raises(BadResult, match=complaint) as refused:
        of(kind).pack(value)

    # the task has run: running it again would do again what it does
    assert error_info(refused.value).retryable is False


def test_a_stored_result_of_another_type_says_that_the_task_has_changed() -> None:
    with pytest.raises(InvalidInput, match="the result of job j: expected int, got str; pay has another return type"):
        of(int).unpack(msgspec.msgpack.encode("x"), job_id="j")


def test_a_coroutine_that_nobody_awaits_is_told() -> None:
    async def later() -> None: ...

    with pytest.raises(BadResult, match="pay returned: a coroutine, but is not an `async def`"):
        of(Any).pack(later())


def test_a_damaged_result_is_told() -> None:
    with pytest.raises(InvalidInput, match="the result of job j: cannot be read"):
        of(int).unpack(b"\xc1", job_id="j")


def test_a_function_that_never_returns_can_be_a_task() -> None:
    def fail() -> NoReturn:
        raise RuntimeError

    assert App("memory:").task(name="fail")(fail).pack(None) is None
