"""What is sent again, when, and how often; without a wire."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from mainstay import errors
from mainstay.client.calls import ApiAnswer, ApiCall, named, reader
from mainstay.client.exchange import Flow, Lost, RetryPause, Tries, carried
from mainstay.client.refusals import error_of
from mainstay.errors import (
    InvalidInput,
    MainstayError,
    Overloaded,
    RequestRefused,
    ServerUnreachable,
    StoreUnavailable,
)

STEADY = Tries(jitter=False)
FINE = ApiAnswer(status=200, headers={}, body=b"7")
UNSENT, CUT = Lost("refused", sent=False), Lost("cut off", sent=True)


def problem(status: int, code: str, **headers: str) -> ApiAnswer:
    body = msgspec.json.encode({"type": code, "detail": "so it is", "status": status})
    return ApiAnswer(status=status, headers={"content-type": "application/problem+json", **headers}, body=body)


def driven(flow: Flow[Any], answers: Sequence[ApiAnswer | Lost]) -> tuple[Any, list[float]]:
    """Give these answers; what came of it, and the pauses."""
    left, pauses = list(answers), []
    step = next(flow)
    try:
        while True:
            if isinstance(step, RetryPause):
                pauses.append(step.seconds)
                step = next(flow)
                continue
            answer = left.pop(0)
            step = flow.throw(answer) if isinstance(answer, Lost) else flow.send(answer)
    except StopIteration as done:
        assert not left
        return done.value, pauses
    except MainstayError as error:
        assert not left
        return error, pauses


def asked(*, safe: bool, answers: Sequence[ApiAnswer | Lost], tries: Tries = STEADY) -> tuple[Any, list[float]]:
    call = ApiCall(method="POST", path="/jobs?store=main", read=reader(int), safe=safe)
    return driven(carried(call, tries, random.Random(1)), answers)


def test_what_can_be_sent_twice_is_sent_again_when_the_answer_was_lost() -> None:
    assert asked(safe=True, answers=[CUT, UNSENT, problem(503, "store_unavailable"), FINE]) == (7, [0.2, 0.4, 0.8])


def test_what_cannot_be_sent_twice_is_sent_again_only_if_it_was_never_sent() -> None:
    assert asked(safe=False, answers=[UNSENT, FINE]) == (7, [0.2])
    error, pauses = asked(safe=False, answers=[CUT])
    assert isinstance(error, ServerUnreachable)
    assert "POST /jobs was not answered: cut off. It may have been done" in str(error)
    assert pauses == []
    error, _ = asked(safe=False, answers=[problem(503, "store_unavailable")])
    assert isinstance(error, StoreUnavailable)


def test_whoever_is_too_fast_waits_as_long_as_it_is_told() -> None:
    many = problem(429, "too_many_requests", **{"retry-after": "3"})
    assert asked(safe=False, answers=[many, many, FINE]) == (7, [3.0, 3.0])


@pytest.mark.parametrize(("status", "reason"), [(503, "overloaded"), (429, "rate_limited")])
def test_a_busy_store_is_asked_again_only_if_the_request_can_be_sent_twice(status: int, reason: str) -> None:
    busy = problem(status, reason, **{"retry-after": "3"})
    assert asked(safe=True, answers=[busy, busy, FINE]) == (7, [3.0, 3.0])
    error, pauses = asked(safe=False, answers=[busy])
    assert isinstance(error, Overloaded)
    assert pauses == []


def test_a_pause_that_is_too_long_is_not_made() -> None:
    error, pauses = asked(safe=True, answers=[problem(429, "too_many_requests", **{"retry-after": "61"})])

    assert isinstance(error, RequestRefused)
    assert (error.status, error.reason, pauses) == (429, "too_many_requests", [])


def test_it_is_given_up_in_the_end() -> None:
    error, pauses = asked(safe=True, answers=[UNSENT] * 6)

    assert isinstance(error, ServerUnreachable)
    assert "in 6 attempts: refused" in str(error)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2]


def test_a_refusal_is_not_asked_for_again() -> None:
    error, pauses = asked(safe=True, answers=[problem(409, "key_conflict")])

    assert isinstance(error, errors.KeyConflict)
    assert pauses == []


def test_pauses_are_left_to_chance_within_bounds() -> None:
    rng = random.Random(1)
    pauses = [Tries().pause(3, None, rng) for _ in range(200)]

    assert 0 <= min(pauses) < 0.1
    assert 0.7 < max(pauses) <= 0.8


ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, MainstayError) and kind is not MainstayError
]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_comes_back_as_what_it_was(kind: type[MainstayError]) -> None:
    call = ApiCall(method="GET", path="/stats", read=reader(int))
    error = error_of(problem(409, kind.code), call)

    if kind in (RequestRefused, ServerUnreachable):
        assert isinstance(error, RequestRefused)
    else:
        assert type(error) is kind
        assert "so it is" in str(error)
        assert isinstance(error, InvalidInput) is issubclass(kind, InvalidInput)


@pytest.mark.parametrize(
    "answer",
    [
        ApiAnswer(status=502, headers={"content-type": "text/html"}, body=b"<html>"),
        ApiAnswer(status=500, headers={"content-type": "application/problem+json"}, body=b"\xff{"),
        ApiAnswer(status=404, headers={}, body=b""),
    ],
)
def test_what_is_no_answer_of_ours_is_told_as_such(answer: ApiAnswer) -> None:
    assert isinstance(error_of(answer, ApiCall(method="GET", path="/", read=reader(int))), ServerUnreachable)


def test_a_redirect_is_not_followed_and_says_where_it_leads() -> None:
    moved = ApiAnswer(status=301, headers={"location": "https://ann:hunter2@jobs.example/"}, body=b"")
    error, _ = asked(safe=True, answers=[moved])

    assert isinstance(error, ServerUnreachable)
    assert "it redirects to https://ann:***@jobs.example/" in str(error)


def test_an_answer_that_cannot_be_read_is_an_error_of_ours() -> None:
    call = ApiCall(method="GET", path="/", read=reader(int))
    with pytest.raises(MainstayError, match="is it a Mainstay server"):
        call.read(ApiAnswer(status=200, headers={}, body=b"<html>"))


def test_a_call_shows_neither_what_it_carries_nor_who_asks() -> None:
    call = ApiCall(
        method="POST", path="/jobs?key=secret", read=reader(int), body=b"secret", headers={"Idempotency-Key": "secret"}
    )
    assert repr(call) == "<POST /jobs>"


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a?b#c", "ä%2F", "a b"])
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    from urllib.parse import unquote

    assert unquote(named(name)) == name
    assert not set("/?#. ") & set(named(name))
