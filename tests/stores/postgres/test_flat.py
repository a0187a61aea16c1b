"""A claim costs the same, however many jobs went through its queue before: counted in pages touched, not in time."""

from __future__ import annotations

import json

import psycopg
import pytest

from mainstay.model import BLANK
from mainstay.stores import open_store
from mainstay.stores.postgres.rows.codec import job_values
from mainstay.stores.row_codec import JOB_FIELDS
from servers import Postgres
from tests.conformance.world import World

#: By hand: 1,360 pages in an empty store, 1,900 behind 250,000 jobs, 1,927 behind a million. 5,050 behind
#: as many as here, if claims begin at the lowest rank there is
PASSED = 60_000
TAKEN = 100
#: pages that a claim of `TAKEN` rows may touch more than it did in an empty store: the trees have grown a level or two
MORE = 1.5


@pytest.fixture
def postgres_url(own_server: Postgres, request: pytest.FixtureRequest) -> str:
    return f"{own_server.url()}?schema=t{abs(hash(request.node.name)):x}&auto_migrate=on"


class Queue:
    """One queue, filled and emptied by the server itself."""

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url.partition("?")[0], autocommit=True)
        schema = url.partition("schema=")[2].partition("&")[0]
        self._db.execute(f"SET search_path TO {schema}")

    def close(self) -> None:
        self._db.close()

    def fill(self, n: int) -> None:
        values = dict(zip(JOB_FIELDS, job_values(BLANK), strict=True)) | {"lane": 1, "version": 1}
        made = {"id": "('018bcfe5-6800-7000-8000-' || lpad(to_hex(g), 12, '0'))::uuid", "due_ms": "g", "rank": "g"}
        names = [name for name in values if name not in made]
        columns = ", ".join(f'"{name}"' for name in [*made, *names])
        self._db.execute(
            f"INSERT INTO jobs ({columns}) SELECT {', '.join(made.values())}, {', '.join(['%s'] * len(names))} "
            f"FROM generate_series((SELECT count(*) + 1 FROM jobs), (SELECT count(*) FROM jobs) + {n}) g",
            [values[name] for name in names],
        )

    def empty(self) -> None:
        """All that is ready is claimed and done."""
        self._db.execute("UPDATE jobs SET status = 'running', session = 's1', lane = 0 WHERE lane = 1")
        self._db.execute("UPDATE jobs SET status = 'succeeded', session = NULL, settled_ms = 1 WHERE session = 's1'")

    def tidy(self) -> None:
        """As the server does now and then."""
        self._db.execute("VACUUM (ANALYZE) jobs")

    def claim(self, times: int) -> None:
        """Claims with some time in between: where they begin moves on with them."""
        for n in range(times):
            self._db.execute("SELECT FROM claim('{default}', 's1', 10, %s, false, 0)", [str(n)])
            self._db.execute("UPDATE heads SET moved_ms = 0")

    def pages_of_a_claim(self) -> int:
        """Of one claim that takes its rows, and is undone."""
        asked = (
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM claim('{{default}}', 's1', {TAKEN}, 'x', false, 0)"
        )
        with self._db.transaction(force_rollback=True):
            for _ in range(2):  # the first on a connection reads the catalogue, too
                with self._db.transaction(force_rollback=True):
                    [[plan]] = self._db.execute(asked).fetchall()
        found = (plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]
        assert found["Actual Rows"] == TAKEN
        return int(found["Shared Hit Blocks"]) + int(found["Shared Read Blocks"])


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_claim_touches_hardly_more_pages_after_tens_of_thousands_of_jobs_than_before(
    postgres_url: str,
) -> None:
    store = await open_store(postgres_url)
    await World(store, store.clock).open("s1", lease_s=3600)  # type: ignore[arg-type]  # it is only read here
    queue = Queue(postgres_url)
    try:
        queue.fill(1000)
        before = queue.pages_of_a_claim()
        queue.fill(PASSED)
        full = queue.pages_of_a_claim()
        with psycopg.connect(postgres_url.partition("?")[0]) as reader:  # what it may see cannot be tidied up
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM pg_class")
            queue.empty()
            queue.fill(1000)
            queue.claim(6)
            after = queue.pages_of_a_claim()
        queue.tidy()
        queue.fill(1000)
        tidied = queue.pages_of_a_claim()
    finally:
        queue.close()
        await store.close()
    assert full <= before * MORE, "with that many in front of it"
    assert after <= before * MORE, "with that many behind it that are all still there"
    assert tidied <= before * MORE, "with that many behind it"
