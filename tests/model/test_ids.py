from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mainstay.errors import InvalidInput
from mainstay.model import IdSource, check_id, first_id_at, id_time_ms

NOW = 1_700_000_000_000


class HighestDraw(random.Random):
    """Draws the largest value every time: the worst case for counting up."""

    def getrandbits(self, k: int) -> int:
        return (1 << k) - 1


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 20)), max_size=20), st.integers(0, 2**32))
def test_ids_only_grow_even_when_the_clock_goes_back(turns: list[tuple[int, int]], seed: int) -> None:
    ids, now, made = IdSource(random.Random(seed)), NOW, []
    for step, n in turns:
        now += step
        made += ids.take(now, n)

    assert made == sorted(set(made))


def test_an_id_is_a_uuid_of_version_7() -> None:
    for made in IdSource(random.Random(7)).take(NOW, 50):
        parsed = uuid.UUID(made)
        assert (str(parsed), parsed.version, parsed.variant) == (made, 7, uuid.RFC_4122)
        assert check_id(made) == made


def test_an_id_knows_when_it_was_made() -> None:
    (made,) = IdSource(random.Random(1)).take(NOW, 1)

    assert id_time_ms(made) == NOW


def test_counting_up_from_the_highest_draw_still_makes_valid_growing_ids() -> None:
    made = IdSource(HighestDraw()).take(NOW, 1_000)

    assert made == sorted(set(made))
    assert {id_time_ms(check_id(one)) for one in made} == {NOW}


def test_the_same_chance_makes_the_same_ids() -> None:
    assert IdSource(random.Random(3)).take(NOW, 5) == IdSource(random.Random(3)).take(NOW, 5)


def test_sources_with_different_chance_do_not_collide() -> None:
    a, b = (set(IdSource(random.Random(seed)).take(NOW, 500)) for seed in (1, 2))

    assert not a & b


@given(st.integers(1, 2**47), st.integers(0, 2**32))
def test_the_first_id_of_a_moment_parts_before_from_after(at_ms: int, seed: int) -> None:
    (before,) = IdSource(random.Random(seed)).take(at_ms - 1, 1)
    (after,) = IdSource(random.Random(seed)).take(at_ms, 1)

    assert before < first_id_at(at_ms) <= after


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "7",
        None,
        7,
        b"018bcfe5-6800-7000-8000-0123456789ab",
        "018BCFE5-6800-7000-8000-0123456789AB",
        "018bcfe5680070008000-0123456789ab",
        "018bcfe5-6800-4000-8000-0123456789ab",
        "018bcfe5-6800-7000-c000-0123456789ab",
        "018bcfe5-6800-7000-8000-0123456789ab\n",
        " 018bcfe5-6800-7000-8000-0123456789ab",
    ],
)
def test_what_cannot_be_an_id_is_refused_with_an_example(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="^after: .* is not a job id .a UUIDv7, like ") as refused:
        check_id(bad, field="after")

    assert repr(bad) in str(refused.value)
