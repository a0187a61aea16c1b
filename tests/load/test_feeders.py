"""Rows of data: who has which."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mainstay.errors import InvalidInput
from mainstay.load.feeders import MOST_ROWS, Feed, NoMoreRows, feed_of


def all_of(hand: Callable[[int], Any], user: int = 0) -> list[Any]:
    found = []
    try:
        while True:
            found.append(hand(user))
    except NoMoreRows:
        return found


@given(st.integers(1, 50), st.integers(1, 6), st.sampled_from(["as is", "random"]))
def test_rows_that_are_dealt_out_are_each_used_once(rows: int, processes: int, order: Any) -> None:
    feed = Feed(range(rows), order=order, at_end="stop")

    parts = [all_of(feed.dealt(process=number, processes=processes)) for number in range(processes)]

    assert sorted(itertools.chain(*parts)) == list(range(rows))


@given(st.integers(1, 20), st.integers(1, 6))
def test_no_row_is_used_again_before_all_of_a_process_were_used(rows: int, processes: int) -> None:
    hand = Feed(range(rows)).dealt(process=0, processes=processes)
    own = len(range(0, rows, processes))

    first, again = ([hand(user) for user in range(own)] for _ in range(2))

    assert len(set(first)) == own
    assert first == again


def test_with_fewer_rows_than_processes_all_have_one() -> None:
    feed = Feed(["only"])

    assert [feed.dealt(process=number, processes=3)(0) for number in range(3)] == ["only"] * 3


def test_shared_rows_are_all_there_in_each_process() -> None:
    feed = Feed([1, 2, 3], share="shared", at_end="stop")

    assert [all_of(feed.dealt(process=number, processes=2)) for number in range(2)] == [[1, 2, 3]] * 2


def test_each_user_can_go_through_all_rows() -> None:
    hand = Feed([1, 2], share="user", at_end="stop").dealt(process=0, processes=1)

    assert [hand(0), hand(1), hand(0), hand(1)] == [1, 1, 2, 2]
    with pytest.raises(NoMoreRows):
        hand(0)


@pytest.mark.parametrize("rows", [itertools.count(), itertools.count], ids=["iterable", "function"])
def test_rows_without_an_end_are_refused(rows: Any) -> None:
    with pytest.raises(InvalidInput, match="data: it has more than 1,000,000 rows, or never ends"):
        Feed(rows).read()


def test_as_many_rows_as_there_may_be_are_read() -> None:
    assert len(Feed(range(MOST_ROWS)).read()) == MOST_ROWS


def test_a_random_order_is_the_same_with_the_same_seed() -> None:
    feed = Feed(range(50), order="random", at_end="stop")

    def made(seed: int) -> list[Any]:
        return all_of(feed.dealt(process=0, processes=1, seed=seed))

    assert made(1) == made(1) != made(2)
    assert made(1) != sorted(made(1))


@given(
    st.integers(1, 20),
    st.integers(1, 3),
    st.integers(0, 70),
    st.sampled_from(["split", "shared"]),
    st.sampled_from(["as is", "random"]),
    st.sampled_from(["repeat", "stop"]),
)
def test_rows_go_on_after_those_that_were_taken_before(
    rows: int, processes: int, taken: int, share: Any, order: Any, at_end: Any
) -> None:
    feed = Feed(range(rows), share=share, order=order, at_end=at_end)
    whole, rest = (feed.dealt(process=0, processes=processes, seed=3, taken=before) for before in (0, taken))
    if at_end == "stop":
        assert all_of(rest) == all_of(whole)[taken:]
    else:
        first = [whole(0) for _ in range(taken)]
        assert [rest(0) for _ in range(30)] == [whole(0) for _ in range(30)], first


def test_rows_of_a_csv_file_have_the_names_of_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_text('\ufeffuser,city\nann,Köln\n"b,ob",Ulm\n', encoding="utf-8")

    assert list(Feed.csv(file).read()) == [{"user": "ann", "city": "Köln"}, {"user": "b,ob", "city": "Ulm"}]


@pytest.mark.parametrize("line", ["ann", "ann,Köln,more"])
def test_a_csv_line_with_other_columns_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "users.csv"
    file.write_text(f"user,city\nx,y\n{line}\n")

    with pytest.raises(InvalidInput, match=r"users.csv, line 3: has more or fewer columns"):
        Feed.csv(file).read()


def test_a_csv_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_bytes(b"user\n\xff\xfe\n")

    with pytest.raises(InvalidInput, match="cannot be read"):
        Feed.csv(file).read()


def test_lines_of_json_are_rows_and_empty_ones_are_not(tmp_path: Path) -> None:
    file = tmp_path / "users.jsonl"
    file.write_text('{"user": "ann"}\n\n[1, 2]\n')

    assert list(Feed.jsonl(file).read()) == [{"user": "ann"}, [1, 2]]


def test_a_line_that_is_no_json_is_refused_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "users.jsonl"
    file.write_text('{"user": "ann"}\n{"user"\n')

    with pytest.raises(InvalidInput, match=r"users.jsonl, line 2"):
        Feed.jsonl(file).read()


def test_what_is_said_about_a_feed_must_be_known() -> None:
    with pytest.raises(InvalidInput, match="share: unknown value 'all'; write one of split, shared, user"):
        Feed([1], share="all")  # type: ignore[arg-type]


def test_plain_rows_are_dealt_out() -> None:
    feed = feed_of([1, 2])

    assert feed is not None
    assert (feed.share, feed.every, feed.at_end) == ("split", "user", "repeat")
    assert feed_of(None) is None
