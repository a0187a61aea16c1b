"""The client against a server without a socket: what it does is what the library would do there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from mainstay import App, Outputs
from mainstay.client import AsyncClient, EndMessage, EventView, JobView
from mainstay.control import Completion, decoded
from mainstay.control.schedules import register, schedule
from mainstay.errors import (
    Conflict,
    InvalidInput,
    InvalidTransition,
    JobFailed,
    JobNotFound,
    KeyConflict,
    MainstayError,
    PayloadTooLarge,
    RequestRefused,
    ServerUnreachable,
    UniqueClash,
    UnknownOption,
    VersionChanged,
    WaitTimeout,
    WorkerNotFound,
)
from mainstay.model import ErrorInfo
from mainstay.task.handle import job_failure
from mainstay.testing import Harness
from mainstay.web.security.tokens import Tokens
from tests.load.report.runs import a_summary
from tests.web.client.conftest import client_of, work
from tests.web.conftest import Server, serving

NOBODY = "018bcfe5-6800-7000-8000-0123456789ab"


# submit ---------------------------------------------------------------------------------------------


async def test_what_is_submitted_is_in_the_store_as_the_library_would_have_put_it(
    either: AsyncClient, stored: Server
) -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    first = await either.submit("mail.send", {"to": "a@b.c"}, queue="mail", priority=5, tags={"b", "a"}, timeout="30s")
    second = await either.submit("mail.send", {"to": "x"}, after=[first.id], run_at=at, keep=timedelta(days=2))

    one, two = await stored.control.jobs.get_many([first.id, second.id])
    assert first.created
    assert first.durability == stored.stores.first.store.durability
    assert (one.name, one.queue, one.priority, decoded(one.payload)) == ("mail.send", "mail", 5, {"to": "a@b.c"})
    assert (one.options.tags, one.options.run_timeout_s) == (("a", "b"), 30.0)
    assert await stored.control.jobs.awaited(two.id) == [first.id]
    assert (two.options.keep_s, two.options.not_before_ms) == (172_800.0, round(at.timestamp() * 1000))


async def test_a_submit_without_a_key_is_given_one_that_nobody_else_has(client: AsyncClient, server: Server) -> None:
    first, second = await client.submit("a"), await client.submit("a")

    keys = {job.key for job in await server.control.jobs.get_many([first.id, second.id])}
    assert first != second
    assert len(keys) == 2
    assert None not in keys


async def test_a_key_of_ones_own_finds_the_job_again(client: AsyncClient) -> None:
    first = await client.submit("a", {"n": 1}, key="k")
    again = await client.submit("a", {"n": 1}, key="k")

    assert (first.created, again.created, again.id) == (True, False, first.id)
    with pytest.raises(KeyConflict):
        await client.submit("a", {"n": 2}, key="k")


async def test_a_group_is_stored_as_the_library_would_have_put_it(either: AsyncClient, stored: Server) -> None:
    members = (either.job("a", {"n": n}) for n in range(3))
    made = await either.group(members, then=either.job("sum", {"raw": b"\x00"}, queue="sums"), failed="fail")

    last = await stored.control.jobs.get(made.then.id)
    assert (last.name, last.queue, last.status, decoded(last.payload)) == ("sum", "sums", "scheduled", {"raw": b"\x00"})
    assert await stored.control.jobs.awaited(last.id) == [member.id for member in made.members]
    assert (last.options.after_failed, made.then.created) == ("fail", True)
    assert [decoded(job.payload) for job in await stored.control.jobs.get_many([one.id for one in made.members])] == [
        {"n": 0},
        {"n": 1},
        {"n": 2},
    ]


async def test_a_group_with_a_key_is_found_again_with_its_members(client: AsyncClient) -> None:
    first = await client.group([client.job("a")], then=client.job("sum", key="k"))
    again = await client.group([client.job("a")], then=client.job("sum", key="k"))

    assert (again.then.id, again.then.created) == (first.then.id, False)
    assert [member.id for member in again.members] == [member.id for member in first.members]
    with pytest.raises(KeyConflict):
        await client.group([client.job("a"), client.job("a")], then=client.job("sum", key="k"))


async def test_what_is_no_job_is_in_no_group(client: AsyncClient, server: Server) -> None:
    with pytest.raises(InvalidInput, match=r"^then: 'sum' is not a job to submit; write client\.job"):
        await client.group([], then="sum")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"^members: 7 is not a job to submit"):
        await client.group([7], then=client.job("sum"))  # type: ignore[list-item]
    assert (await server.control.store.stats()).queues == {}


async def test_many_jobs_are_submitted_in_chunks(client: AsyncClient, server: Server) -> None:
    told: list[int] = []
    handles = await client.submit_many((client.job("a", {"n": n}) for n in range(25)), chunk=10, progress=told.append)

    assert told == [10, 20, 25]
    jobs = await server.control.jobs.get_many([handle.id for handle in handles])
    assert [decoded(job.payload)["n"] for job in jobs] == list(range(25))


async def test_large_jobs_are_submitted_in_smaller_chunks(client: AsyncClient) -> None:
    told: list[int] = []
    await client.submit_many([client.job("a", "x" * 400_000)] * 5, progress=told.append)

    assert told == [2, 4, 5]


async def test_a_bad_job_among_many_is_named_and_none_of_its_chunk_is_stored(client: AsyncClient) -> None:
    with pytest.raises(InvalidInput) as caught:
        await client.submit_many([client.job("a"), client.job("b", priority=500)])

    assert caught.value.field == "jobs[1].priority"
    assert [job async for job in client.jobs.find()] == []


async def test_a_bad_job_among_many_is_named_by_its_place_in_the_list_and_the_error_says_what_is_stored(
    client: AsyncClient, server: Server
) -> None:
    good = [client.job("a") for _ in range(5)]
    noted = ["the 4 jobs before this chunk are stored; submit the rest from there"]

    with pytest.raises(UniqueClash, match=r"^jobs\[6\]: ") as clash:
        await client.submit_many(
            [*good, client.job("a", unique="z"), client.job("a", unique="z", on_clash="refuse")], chunk=4
        )
    assert clash.value.__notes__ == noted
    with pytest.raises(InvalidInput) as refused:
        await client.submit_many([*good, client.job("a", priority=500)], chunk=4)
    assert (refused.value.field, refused.value.__notes__) == ("jobs[5].priority", noted)
    with pytest.raises(PayloadTooLarge, match=r"^jobs\[5\]\.payload: 1200005 bytes") as large:
        await client.submit_many([*good, client.job("a", "x" * 1_200_000)], chunk=5)
    assert large.value.__notes__ == ["the 5 jobs before this chunk are stored; submit the rest from there"]
    # what is refused before it is sent
    with pytest.raises(InvalidInput) as unsent:
        await client.submit_many([*good, client.job("a", {"what": object()})], chunk=4)
    assert (unsent.value.field, unsent.value.__notes__) == ("jobs[5].payload", noted)
    with pytest.raises(InvalidInput, match=r"^jobs\[5\]: 7 is not a job to submit"):
        await client.submit_many([*good, 7], chunk=4)  # type: ignore[list-item]
    assert (await server.control.store.stats()).queues["default"].counts == {"pending": 4 + 4 + 5 + 4 + 4}


async def test_of_a_chunk_that_was_not_answered_the_error_does_not_say_that_it_is_not_stored(server: Server) -> None:
    async def lossy(scope: Any, receive: Any, send: Any) -> None:
        if sent:
            raise httpx.ReadError("the connection was lost")
        sent.append(scope["path"])
        await server.app(scope, receive, send)

    sent: list[str] = []
    async with client_of(lossy) as client:
        with pytest.raises(ServerUnreachable) as lost:
            await client.submit_many([client.job("a") for _ in range(4)], chunk=2)

    (note,) = lost.value.__notes__
    assert note.startswith("the 2 jobs before this chunk are stored, and this chunk may be")


async def test_what_is_refused_is_refused_as_by_the_library(client: AsyncClient) -> None:
    with pytest.raises(UnknownOption, match="did you mean 'retries'"):
        await client.submit("a", retrys=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput) as caught:
        await client.submit("a", queue="no such queue!")
    assert caught.value.field == "queue"
    with pytest.raises(InvalidInput, match="no time zone"):
        await client.submit("a", run_at=datetime(2100, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match=r"\$\.what cannot be stored") as refused:
        await client.submit("a", {"what": object()})
    assert refused.value.field == "payload"
    with pytest.raises(InvalidInput, match=r"\$\.by cannot be stored as data: keys must be text"):
        await client.submit("a", {"by": {1: "a key that JSON would make text of"}})
    with pytest.raises(PayloadTooLarge):
        await client.submit("a", "x" * 1_200_000)


# values ---------------------------------------------------------------------------------------------

VALUES = [
    b"\x00\xff",
    datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=UTC),
    2**53 + 1,
    2**64 - 1,
    -(2**63),
    float("inf"),
    {"deep": [{"raw": b"", "at": datetime(1970, 1, 1, tzinfo=UTC), "none": None}, [True, 0.1, "ß"]]},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_a_value_arrives_and_comes_back_as_by_the_library(
    either: AsyncClient, stored: Server, value: object
) -> None:
    made = await either.submit("a", {"value": value})
    (many,) = await either.submit_many([either.job("a", {"value": value})])
    known = await stored.control.jobs.submit("a", {"value": value})
    one, two, three = await stored.control.jobs.get_many([made.id, many.id, known.id])
    assert one.payload == two.payload == three.payload
    assert decoded(one.payload) == {"value": value}
    assert (await made.job()).payload == {"value": value}
    assert [job.payload async for job in either.jobs.find(payload=True)] == [{"value": value}] * 3

    await work(stored.control, result=value)
    assert await made.result("60s") == value
    assert await made.result("10s", returns=type(value)) == value
    assert (await made.wait("60s")).result == value


async def test_a_program_without_msgpack_is_told_the_same_in_json(server: Server) -> None:
    made = await server.control.jobs.submit("a", {"raw": b"\x00\xff"})
    answer = await server.client.get(f"/api/v1/jobs/{made.id}", headers={"Accept": "*/*"})
    assert (answer.headers["content-type"], answer.headers["vary"]) == ("application/json", "Accept")
    assert answer.json()["payload"] == {"raw": "AP8="}


# look -----------------------------------------------------------------------------------------------


async def test_a_job_is_told_with_all_that_is_known_of_it(either: AsyncClient, stored: Server) -> None:
    handle = await either.submit("a", {"n": 1}, metadata={"who": "ann"})
    row = await stored.control.jobs.get(handle.id)
    seen = await handle.job()

    same = set(JobView.__struct_fields__) - {"options", "payload", "result", "checkpoint", "head", "trimmed_digest"}
    assert {name: getattr(seen, name) for name in same} == {name: getattr(row, name) for name in same}
    assert (seen.payload, seen.options.metadata, seen.head) == ({"n": 1}, {"who": "ann"}, row.head.hex())
    assert not seen.is_settled
    assert "ann" not in repr(seen)
    assert (await handle.job(payload=False)).payload is None


async def test_all_that_match_are_found_page_by_page(either: AsyncClient, stored: Server) -> None:
    made = await either.submit_many([either.job("a", queue="x") for _ in range(450)])
    await either.submit("a", queue="y")

    found = [job.id async for job in either.jobs.find(queue="x", status=["pending", "scheduled"], oldest_first=True)]

    assert found == [handle.id for handle in made]
    page = await either.jobs.page(queue="x", limit=3)
    assert len(page.jobs) == 3
    assert page.next is not None
    with pytest.raises(InvalidInput, match="is not a filter"):
        await either.jobs.page(colour="red")  # type: ignore[call-arg]


async def test_a_trail_a_story_and_an_explanation_can_be_read(either: AsyncClient, stored: Server) -> None:
    handle = await either.submit("a")
    await work(stored.control, result=1)

    events = [event async for event in handle.events()]
    assert (events[0].to, events[-1].to) == ("pending", "succeeded")
    assert [event.seq async for event in handle.events(after=1)] == [event.seq for event in events[1:]]
    assert await handle.story() == await stored.control.jobs.story(handle.id)
    assert (await handle.explain()).status == "succeeded"
    assert await handle.awaited() == []


async def test_a_job_that_is_not_there_is_not_found(client: AsyncClient) -> None:
    with pytest.raises(JobNotFound) as caught:
        await client.handle(NOBODY).job()

    assert caught.value.job_id == NOBODY
    assert str(caught.value) == str(JobNotFound(NOBODY))
    with pytest.raises(InvalidInput, match="id"):
        await client.handle("../stats").status()


# wait -----------------------------------------------------------------------------------------------


async def test_a_result_is_plain_data_or_of_the_type_that_is_wanted(either: AsyncClient, stored: Server) -> None:
    class Sum(msgspec.Struct):
        total: int

    handle = await either.submit("a")
    await work(stored.control, result={"total": 3})

    assert await handle.result() == {"total": 3}
    assert await handle.result(returns=Sum) == Sum(3)
    assert (await handle.wait("60s")).result == {"total": 3}
    with pytest.raises(InvalidInput, match="the result of job"):
        await handle.result(returns=int)


async def test_a_job_that_failed_raises_what_the_library_raises(either: AsyncClient, stored: Server) -> None:
    handle = await either.submit("a", retries=0)
    await work(stored.control, error=ErrorInfo(type="ValueError", message="no such file", code="bad_file"))

    with pytest.raises(JobFailed) as caught:
        await handle.result()

    row = await stored.control.jobs.get(handle.id)
    own = job_failure(row.id, row.name, row.status, row.reason, row.error)
    assert str(caught.value) == str(own)
    assert (caught.value.error_code, caught.value.name) == ("bad_file", "a")
    assert (await handle.wait()).status == "quarantined"


async def test_a_wait_that_is_over_says_so_and_the_job_goes_on(client: AsyncClient) -> None:
    handle = await client.submit("a")

    with pytest.raises(WaitTimeout, match="is pending after 10ms"):
        await handle.result("10ms")
    assert await handle.status() == "pending"


# change ---------------------------------------------------------------------------------------------


async def test_what_is_done_to_a_job_is_done_in_the_callers_name(either: AsyncClient, stored: Server) -> None:
    handle = await either.submit("a")

    assert (await handle.set_priority(7)).priority == 7
    cancelled = await handle.cancel("not needed")
    assert (cancelled.status, cancelled.reason) == ("cancelled", "not needed")
    assert (await handle.cancel()).status == "cancelled"
    assert [event.actor async for event in handle.events()][-1].startswith("web:")
    await handle.delete("clean up")
    with pytest.raises(JobNotFound):
        await handle.job()


async def test_a_change_that_is_meant_for_another_version_is_refused(either: AsyncClient) -> None:
    handle = await either.submit("a")
    seen = await handle.set_priority(3)

    with pytest.raises(VersionChanged) as caught:
        await handle.cancel(version=seen.version - 1)

    error = caught.value
    assert (error.job_id, error.wanted, error.now) == (handle.id, seen.version - 1, seen.version)
    assert isinstance(error, Conflict)
    assert (await handle.cancel(version=seen.version)).status == "cancelled"


async def test_a_move_that_the_table_forbids_is_refused(either: AsyncClient) -> None:
    handle = await either.submit("a")
    await handle.cancel()

    with pytest.raises(InvalidTransition, match="cancelled"):
        await handle.retry()
    other = await either.submit("b", delay="1h")
    assert (await other.force("failed", reason="by hand")).status == "failed"
    assert (await other.retry("again")).status == "pending"


async def test_many_jobs_are_acted_on_after_a_look_at_which_they_are(either: AsyncClient) -> None:
    made = await either.submit_many([either.job("a", tags=["x"]) for _ in range(3)])
    await either.submit("b")

    look = await either.jobs.act("cancel", tag="x", dry_run=True)
    assert (look.matched, look.done, look.dry_run) == (3, 0, True)
    assert (await either.jobs.act("cancel", tag="x", reason="stop")).done == 3
    refused = await either.jobs.act("retry", ids=[handle.id for handle in made[:1]])
    assert (refused.done, refused.refused, refused.refusals[0].id) == (0, 1, made[0].id)
    with pytest.raises(InvalidInput, match="give ids or a filter"):
        await either.jobs.act("retry", ids=[made[0].id], tag="x")


# the rest of a store --------------------------------------------------------------------------------


async def test_queues_and_limits_are_looked_after(either: AsyncClient) -> None:
    await either.submit("a", queue="mail/out")

    assert (await either.queues.pause("mail/out", "holiday")).paused
    (queue,) = await either.queues.all()
    assert (queue.name, queue.paused, queue.reason, queue.waiting) == ("mail/out", True, "holiday", 1)
    assert not (await either.queues.resume("mail/out")).paused
    assert (await either.queues.purge("mail/out", dry_run=True)).matched == 1
    assert (await either.queues.purge("mail/out", delete=True)).done == 1
    await either.queues.set_limit("api", 3)
    assert [(limit.key, limit.limit) for limit in await either.queues.limits()] == [("api", 3)]
    await either.queues.set_limit("api", None)
    assert await either.queues.limits() == []
    with pytest.raises(RequestRefused) as caught:
        await either.queues.get("none")
    assert (caught.value.status, caught.value.reason) == (404, "queue_not_found")


async def test_schedules_are_looked_after(either: AsyncClient, stored: Server) -> None:
    await register(stored.control, [schedule("nightly/sums", "0 3 * * *", "report.sums", {"day": "today"})])

    (one,) = await either.schedules.all()
    assert (one.name, one.task, len(one.next_ticks_ms) > 0) == ("nightly/sums", "report.sums", True)
    assert (await either.schedules.pause("nightly/sums")).paused
    assert not (await either.schedules.resume("nightly/sums")).paused
    assert (await (await either.schedules.run_now("nightly/sums")).job()).payload == {"day": "today"}
    await either.schedules.drop("nightly/sums")
    assert await either.schedules.all() == []


async def test_a_store_is_seen_at_a_glance(either: AsyncClient, stored: Server) -> None:
    await either.submit("a")
    session = await stored.control.claims.open_session(worker="w")
    (job,) = await stored.control.claims.claim(["default"], session.id, 1)

    stats, (worker,) = await either.stats(), await either.workers()
    assert stats.queues["default"].counts == {"running": 1}
    assert (worker.worker, worker.holds, worker.jobs[0].id) == ("w", 1, job.id)
    assert (await either.check()).clean
    assert (await either.snapshot()).store == "main"
    assert all(sample.at_ms for sample in await either.history())
    assert [store.name for store in await either.stores()] == ["main"]


async def test_a_worker_is_drained(either: AsyncClient, stored: Server) -> None:
    session = await stored.control.claims.open_session(worker="w")

    (asked,) = await either.drain_worker("w")

    assert (asked.id, asked.draining_by) == (session.id, "web:local")
    (worker,) = await either.workers()
    assert worker.draining_ms == asked.draining_ms is not None
    with pytest.raises(WorkerNotFound, match="no live worker or session is called 'no one'") as caught:
        await either.drain_worker("no one")
    assert caught.value.which == "no one"


async def test_another_store_of_the_server_can_be_meant() -> None:
    async with serving({"one": "memory:", "two": "memory:"}) as server, client_of(server.app, store="two") as client:
        handle = await client.submit("a")

        assert (await server.stores.find("two").control.jobs.get(handle.id)).name == "a"
        assert [job.id async for job in client.jobs.find()] == [handle.id]
        with pytest.raises(InvalidInput, match="there is no store 'three'"):
            await client_of(server.app, store="three").stats()


async def test_a_batch_is_seen_validated_and_resumed(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    app = App("memory:", outputs=f"file://{root}?sync=off")

    @app.batch(name="study", outputs={"result": "result.txt"}, version="1")
    def study(params: dict[str, float], seed: int, out: Outputs) -> None:
        out.save("result", b"done")

    async with Harness(app) as box:
        run = await app.submit_batch(study, params=[{"beta": 0.1}], seeds=3)
        await box.drain()
        async with serving(store=box.store) as server, client_of(server.app) as client:
            status = await client.batches.status(run.id)
            assert (status.status, status.units.done, status.outputs.there) == ("succeeded", 3, 3)
            assert [each.state async for each in client.batches.outputs(run.id)] == ["present"] * 3
            assert len((await client.batches.report(run.id)).outcomes) == 1
            assert len((await client.batches.map(run.id)).facets) == 1
            min(root.glob("v1/study/**/result.txt")).unlink()
            found = await client.batches.validate(run.id, force=True)
            assert (found.expected, found.present) == (3, 2)
            assert [each.state async for each in client.batches.outputs(run.id, state="missing")] == ["missing"]
            look = await client.batches.resume(run.id, dry_run=True)
            assert (look.units, len(look.sample)) == (1, 1)
            assert (await client.batches.resume(run.id)).units == 1
            assert len([unit async for unit in client.handle(run.id).units()]) >= 3


async def test_the_numbers_of_a_load_test_are_read(client: AsyncClient, server: Server) -> None:
    made = await server.control.jobs.submit("shop", kind="load")
    with pytest.raises(RequestRefused) as caught:
        await client.load_summary(made.id)
    assert caught.value.reason == "no_numbers_yet"
    session = await server.control.claims.open_session()
    jobs = await server.control.claims.claim(["default"], session.id, 1)
    await server.control.claims.start(jobs)
    await server.control.attempts.complete([Completion(jobs[0], result=msgspec.to_builtins(a_summary()))])

    assert await client.load_summary(made.id) == a_summary()


async def test_the_stream_of_a_job_tells_its_trail_and_its_end(either: AsyncClient, stored: Server) -> None:
    handle = await either.submit("a")
    await work(stored.control, result=1)

    news = [each async for each in handle.stream()]

    trail = [event async for event in handle.events()]
    assert [each for each in news if isinstance(each, EventView)] == trail
    assert [each.status for each in news if isinstance(each, JobView)] == ["succeeded"]
    assert isinstance(news[-1], EndMessage)
    assert news[-1].status == "succeeded"


# who asks -------------------------------------------------------------------------------------------


async def test_a_token_says_who_asks_and_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(tmp_path / "tokens")
    reads, submits = tokens.add("reader", ["read"]), tokens.add("submitter", ["submit"])
    async with serving(tokens=tokens) as server:
        monkeypatch.setenv("MAINSTAY_TOKEN", submits)
        async with client_of(server.app) as client:
            handle = await client.submit("a")
            assert [event.actor async for event in handle.events()] == ["web:submitter"]
            assert submits not in repr(client) + repr(vars(client)["_wire"]) + repr(handle)
        async with client_of(server.app, token=reads) as client:
            with pytest.raises(RequestRefused) as caught:
                await client.submit("a")
            assert (caught.value.status, reads in str(caught.value)) == (403, False)
        async with client_of(server.app, token="mst_wrong") as client:
            with pytest.raises(RequestRefused) as caught:
                await client.stats()
            assert caught.value.status == 401


async def test_what_was_closed_is_not_used_again(server: Server) -> None:
    client = client_of(server.app)
    await client.close()

    with pytest.raises(MainstayError, match="was closed"):
        await client.stats()
