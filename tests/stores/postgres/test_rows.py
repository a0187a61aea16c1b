"""Rows in and out: what is read is what was written, whatever characters it has, and the server reckons as we do."""

from __future__ import annotations

import string
from collections.abc import Iterator

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from mainstay.lifecycle import Move
from mainstay.model import BLANK, Options, expiry
from mainstay.stores import InsertResult
from mainstay.stores.postgres.rows.codec import job_values, read_text, stored_text
from mainstay.stores.row_codec import JOB_FIELDS
from tests.conformance.world import World

from .stands import ask

MARK = "\ufdd0"

#: few different characters, so that they meet
texts = st.one_of(st.text(), st.text(alphabet=f"\0{MARK}01a"))


@given(texts)
@example("\0")
@example(MARK)
@example(f"{MARK}0")
@example(f"{MARK}1\0{MARK}")
def test_any_text_comes_back_as_it_was(text: str) -> None:
    stored = stored_text(text)

    assert stored is not None
    assert "\0" not in stored
    assert read_text(stored) == text


@given(texts, texts)
def test_different_texts_stay_different(one: str, other: str) -> None:
    assert (stored_text(one) == stored_text(other)) == (one == other)


def test_plain_text_is_stored_as_it_is() -> None:
    assert stored_text(string.printable) == string.printable
    assert stored_text(None) is None
    assert read_text(None) is None


async def test_a_reason_with_a_zero_character_is_sealed_and_read_as_it_was(world: World) -> None:
    reason = f"\0 and {MARK} and {MARK}0"
    job = await world.submit()
    await world.move(job, Move(to="cancelled", reason=reason))

    assert (await world.row(job)).reason == reason
    assert (await world.store.events(job.id))[-1].reason == reason


async def test_the_same_jobs_without_a_key_sent_twice_are_stored_once(world: World) -> None:
    batch = [world.new() for _ in range(3)]
    stored = [InsertResult(new.job.id, True) for new in batch]

    assert await world.store.insert(batch) == stored
    assert await world.store.insert(batch) == stored, "the sender may not have heard of it"
    assert [len(await world.story(new.job)) for new in batch] == [1, 1, 1]
    assert (await world.store.stats()).queues["default"].counts == {"pending": 3}


async def test_jobs_that_are_alike_in_all_but_their_ids_are_all_stored(world: World) -> None:
    await world.store.insert([world.new(payload=b"\x90") for _ in range(3)])
    await world.store.insert([world.new(payload=b"\x90") for _ in range(3)])

    assert (await world.store.stats()).queues["default"].counts == {"pending": 6}


# -- when a job overruns ---------------------------------------------------------------------------


@pytest.fixture
async def db(postgres_url: str, world: World) -> psycopg.Connection:
    return psycopg.connect(postgres_url.partition("?")[0], autocommit=True)


@pytest.fixture
def schema(postgres_url: str, db: psycopg.Connection) -> Iterator[str]:
    yield postgres_url.partition("schema=")[2].partition("&")[0]
    db.close()


times = st.integers(min_value=0, max_value=2**45)
spans = st.one_of(
    st.none(),
    st.integers(min_value=0, max_value=10**8).map(float),
    st.floats(min_value=0, max_value=10**8, allow_nan=False),
    st.sampled_from([0.001, 0.29, 1.001, 4.35, 8.2, 1e-9, 64.1]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(
    st.one_of(st.none(), times), times, st.one_of(st.none(), times), spans, spans, spans.filter(lambda s: s is not None)
)
def test_the_server_reckons_the_end_of_a_job_as_we_do(
    db: psycopg.Connection,
    schema: str,
    started_ms: int | None,
    extra_ms: int,
    progress_ms: int | None,
    run_s: float | None,
    stall_s: float | None,
    grace_s: float,
) -> None:
    options = msgspec.structs.replace(Options(), run_timeout_s=run_s, stall_timeout_s=stall_s, grace_s=grace_s)
    job = msgspec.structs.replace(
        BLANK, options=options, session="s", started_ms=started_ms, extra_ms=extra_ms, progress_ms=progress_ms
    )
    stored = dict(zip(JOB_FIELDS, job_values(job), strict=True))["options"]

    [(ends,)] = db.execute(
        f"SELECT {schema}.overruns_ms(%s::text, %s::bigint, %s::bigint, %s::bigint, -1)",  # type: ignore[arg-type]
        [stored, started_ms, extra_ms, progress_ms],
    ).fetchall()

    assert ends == expiry(job)


def test_of_options_that_cannot_be_read_nothing_follows(postgres_url: str, schema: str) -> None:
    for damaged in ("", "damaged", '["a", "b", "c"]', '[1, "soon"]'):
        found = ask(postgres_url, f"SELECT {schema}.overruns_ms(%s::text, 1, 0, NULL, 77)", damaged)
        assert found == [(77,)], damaged
