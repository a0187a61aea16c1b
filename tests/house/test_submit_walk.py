"""A submit stays short."""

from __future__ import annotations

from tests.house.submit_walk import MOST_FILES, MOST_FUNCTIONS, submit_walk


def test_a_submit_on_sqlite_enters_few_functions_in_few_files() -> None:
    walk = submit_walk()

    assert walk.functions <= MOST_FUNCTIONS, walk.lines
    assert walk.files <= MOST_FILES, walk.lines
