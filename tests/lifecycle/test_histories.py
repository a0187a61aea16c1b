"""Whatever is tried in whatever order, the history verifies and nothing that must grow shrinks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given, strategies as st

from mainstay.errors import MainstayError
from mainstay.lifecycle import JOB, UNIT, Chain, Event, Move, Moved, apply, claim, promote, submit, table_of
from mainstay.model import NO_DIGEST, Job
from mainstay.testing import a_job

CHAIN = Chain()
START = 1_700_000_000_000
GROWING = ("version", "token", "starts", "failures", "crashes", "releases", "losses", "changed_ms")
NAMES = sorted({*JOB.states, *UNIT.states, "hibernating"})

words = st.none() | st.text(max_size=20).filter(lambda text: text.isprintable())
wanted = st.builds(
    Move,
    to=st.sampled_from(NAMES),
    reason=words,
    details=st.none() | st.dictionaries(st.sampled_from(["why", "where"]), st.integers() | st.none(), max_size=2),
    flag=st.sampled_from(["", "", "", "forced", "repair", "note"]),
)
steps = st.one_of(
    st.tuples(st.just("move"), st.lists(wanted, min_size=1, max_size=3)),
    st.tuples(st.just("claim"), st.sampled_from(["s1", "s2"])),
    st.tuples(st.just("promote"), st.none()),
    st.tuples(st.just("note"), words),
)
histories = st.tuples(
    st.sampled_from([("pending", None), ("scheduled", None), ("pending", a_job().id)]), st.lists(steps, max_size=25)
)


def _note(job: Job, reason: str | None) -> Move:
    return Move(to=job.status, reason=reason, flag="note")


def take(job: Job, step: tuple[str, Any], now_ms: int) -> Moved:
    kind, what = step
    if kind == "claim":
        return claim(job, session=what, now_ms=now_ms, chain=CHAIN)
    if kind == "promote":
        return promote(job, now_ms=now_ms, chain=CHAIN)
    if kind == "note":
        return apply(job, _note(job, what), now_ms=now_ms, actor="ann", chain=CHAIN)
    counted = [msgspec.structs.replace(m, fields={"failures": job.failures + 1}) for m in what]
    return apply(job, *counted, now_ms=now_ms, actor="ann", chain=CHAIN)


def play(begin: tuple[str, str | None], taken: list[tuple[str, Any]]) -> tuple[list[Job], list[Event]]:
    """Try every step; the refused ones leave no trace. Answers with the row after each step."""
    status, parent = begin
    made = submit(a_job(status, parent=parent), now_ms=START, actor="ann", chain=CHAIN)
    rows, events = [made.job], list(made.events)
    for n, step in enumerate(taken, 1):
        try:
            moved = take(rows[-1], step, START + n)
        except MainstayError:
            continue
        rows.append(moved.job)
        events += moved.events
    return rows, events


@given(histories)
def test_the_chain_always_verifies_and_the_version_counts_the_events(history: Any) -> None:
    rows, events = play(*history)
    job = rows[-1]

    assert CHAIN.first_break(job, events) is None
    assert job.version == len(events)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@given(histories)
def test_tokens_counters_and_versions_never_shrink(history: Any) -> None:
    rows, _ = play(*history)

    for before, after in pairwise(rows):
        assert all(getattr(after, name) >= getattr(before, name) for name in GROWING)


@given(histories)
def test_the_last_event_agrees_with_the_row_and_each_starts_where_the_last_ended(history: Any) -> None:
    rows, events = play(*history)

    assert events[-1].to == rows[-1].status
    assert [event.source for event in events] == [None, *(event.to for event in events[:-1])]


@given(histories)
def test_every_unflagged_event_obeys_the_table_and_nothing_leaves_a_final_state(history: Any) -> None:
    rows, events = play(*history)
    table = table_of(rows[0].parent)

    for event in events[1:]:
        assert event.source is not None
        if event.flag == "":
            assert table.allows(event.source, event.to)
        if event.source != event.to:
            assert not table.states[event.source].final


@given(histories)
def test_only_states_with_an_owner_have_one(history: Any) -> None:
    rows, _ = play(*history)
    table = table_of(rows[0].parent)

    for job in rows:
        state = table.states[job.status]
        assert job.session is None or state.holds
        assert (job.settled_ms is not None) == state.settled


@given(histories, st.data())
def test_a_history_trimmed_anywhere_verifies_and_one_with_a_hole_does_not(history: Any, data: st.DataObject) -> None:
    rows, events = play(*history)
    cut = data.draw(st.integers(0, len(events)), label="trimmed through")
    digest = events[cut - 1].digest if cut else NO_DIGEST
    job = msgspec.structs.replace(rows[-1], trimmed_seq=cut, trimmed_digest=digest)
    kept = events[cut:]
    assert CHAIN.first_break(job, kept) is None

    if kept:
        hole = data.draw(st.integers(0, len(kept) - 1), label="lost")
        assert CHAIN.first_break(job, kept[:hole] + kept[hole + 1 :]) is not None


@given(histories)
def test_of_three_moves_from_one_version_all_ask_for_the_same_next_one(history: Any) -> None:
    """The compare-and-swap rests on this: racing moves differ in content, never in sequence number."""
    rows, _ = play(*history)
    job = rows[-1]
    racing = [apply(job, _note(job, f"racer {n}"), now_ms=START, actor=f"r{n}", chain=CHAIN) for n in range(3)]

    assert {moved.job.version for moved in racing} == {job.version + 1}
    assert len({moved.job.head for moved in racing}) == 3
