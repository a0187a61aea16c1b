"""The index of the memory store."""

from __future__ import annotations

from hypothesis import given, strategies as st

from mainstay.stores.memory.ranked_ids import RankedIds

STEPS = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 5)), max_size=300)


@given(STEPS)
def test_the_first_is_the_smallest_of_what_was_put_and_not_dropped(steps: list[tuple[str, int | None]]) -> None:
    line, model = RankedIds(), {}
    for job_id, number in steps:
        if number is None:
            line.drop(job_id)
            model.pop(job_id, None)
        else:
            line.put(job_id, number)
            model[job_id] = number
        assert line.first() == min(((n, i) for i, n in model.items()), default=None)
        assert len(line) == len(model)
    assert line.until(3) == [i for n, i in sorted((n, i) for i, n in model.items()) if n <= 3]


def test_forgotten_entries_do_not_pile_up() -> None:
    line = RankedIds()
    for number in range(10_000):
        line.put("a", number)
    assert len(line._heap) < 100
    assert line.first() == (9_999, "a")
