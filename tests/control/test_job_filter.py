"""Filters as people give them."""

from __future__ import annotations

import pytest

from mainstay.control.job_filter import by_age, check_states, state_meant
from mainstay.errors import InvalidInput
from mainstay.stores import Query

from .conftest import Bench


def test_ages_narrow_what_times_have_narrowed_already() -> None:
    query = Query(created_from_ms=500, created_before_ms=1_000_000)
    found = by_age(query, older_than="1s", newer_than="10s", now_ms=60_000)
    assert (found.created_from_ms, found.created_before_ms) == (50_000, 59_000)
    assert by_age(query, older_than=None, newer_than=None, now_ms=60_000) == query


def test_what_nothing_can_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match="older_than: no job can be older than 2h and newer than 1h"):
        by_age(Query(), older_than="2h", newer_than="1h", now_ms=0)


async def test_a_misspelt_state_is_refused_with_what_may_be_meant(bench: Bench) -> None:
    await check_states(bench.store, ["pending", "dispatched"])
    with pytest.raises(InvalidInput, match="did you mean 'quarantined'?"):
        await check_states(bench.store, ["pending", "quarantine"])
    assert state_meant("xyz").startswith("known states: scheduled, pending")
