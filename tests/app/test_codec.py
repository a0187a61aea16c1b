"""A codec on everything that is stored: arguments, results, checkpoints, schedules."""

from __future__ import annotations

import pytest

from mainstay import App, context
from mainstay.control import Completion
from mainstay.errors import BadArguments, InvalidInput, KeyConflict
from mainstay.testing import MemoryStore
from tests.app.working import working
from tests.task.test_codec import Xor

SECRET = "attack at dawn"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def program(key: int | None) -> App:
    app = App("memory:", codec=None if key is None else Xor(key), retries=1, backoff_base="0s")

    @app.task(name="tell")
    async def tell(secret: str) -> str:
        running = context()
        if running.checkpoint is None:
            await running.save({"secret": secret})
            raise RuntimeError("again")
        return f"{secret}, {running.checkpoint['secret']}"

    return app


async def test_nothing_readable_is_stored_and_everything_comes_back() -> None:
    app = program(0x5A)

    async with app, working(app):
        job = await app.tasks["tell"].submit(SECRET)
        assert await job.result(timeout="60s") == f"{SECRET}, {SECRET}"
        row = await job.job()

    assert row.failures == 1
    for data in (row.payload, row.result, row.checkpoint):
        assert data is not None
        assert SECRET.encode() not in data


async def test_a_key_stands_for_what_was_sealed_although_each_sealing_differs() -> None:
    tell = program(0x5A).tasks["tell"].options(key="k", unique=True)

    first, again = await tell.submit(SECRET), await tell.submit(SECRET)

    assert again == first
    assert not again.created
    with pytest.raises(KeyConflict):
        await tell.submit("something else")


async def test_what_was_stored_before_there_was_a_codec_stays_readable(store: MemoryStore) -> None:
    plain, sealing = program(None), program(0x5A)
    with plain.using(store):
        job = await plain.tasks["tell"].submit(SECRET)

    with sealing.using(store):
        async with working(sealing):
            assert await sealing.tasks["tell"].handle(job.id).result(timeout="60s") == f"{SECRET}, {SECRET}"


@pytest.mark.parametrize(("key", "complaint"), [(None, "this app has none"), (0x11, "the codec cannot open it")])
async def test_a_worker_without_the_codec_runs_nothing_and_says_why(
    store: MemoryStore, key: int | None, complaint: str
) -> None:
    sealing, other = program(0x5A), program(key)
    with sealing.using(store):
        job = await sealing.tasks["tell"].submit(SECRET)

    with pytest.raises(BadArguments, match=complaint):
        other.tasks["tell"].unpack(bytes(sealing.tasks["tell"].job(SECRET).ready().payload))
    with other.using(store):
        async with working(other):
            row = await other.handle(job.id).wait(timeout="60s")

    assert row.status == "quarantined"
    assert row.error is not None
    assert complaint in row.error.message
    with sealing.using(store):
        assert sealing.tasks["tell"].arguments(row.payload) == {"secret": SECRET}


async def test_a_reader_without_the_codec_gets_no_garbage(store: MemoryStore) -> None:
    sealing, other = program(0x5A), program(None)
    with sealing.using(store) as control:
        job = await sealing.tasks["tell"].submit(SECRET)
        session = await control.claims.open_session()
        (row,) = await control.claims.claim(["default"], session.id, 1)
        await control.attempts.complete([Completion(row, sealing.tasks["tell"].pack("done"))])

    with other.using(store), pytest.raises(InvalidInput, match=f"the result of job {job.id}: is sealed by a codec"):
        await other.handle(job.id).result()
    with sealing.using(store):
        assert await sealing.handle(job.id).result() == "done"


class Failing(Xor):
    """Its keys are out of reach at times."""

    down = False

    def encode(self, data: bytes) -> bytes:
        if self.down:
            raise OSError("no key server")
        return super().encode(data)


async def test_a_codec_that_fails_lets_nothing_through_in_the_clear() -> None:
    codec = Failing()
    app = App("memory:", codec=codec)

    @app.task(name="work")
    async def work() -> str:
        codec.down = True
        return SECRET

    async with app, working(app):
        row = await (await work.submit()).wait(timeout="60s")
        with pytest.raises(InvalidInput, match="codec: could not seal the data \\(OSError: no key server\\)"):
            await work.submit()

    assert (row.status, row.result) == ("failed", None)
    assert row.error is not None
    assert "no key server" in row.error.message
