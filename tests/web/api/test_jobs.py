"""Finding jobs, and looking at one."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.control import Completion, Failure
from tests.web.conftest import Server, serving


async def ids(server: Server, **query: object) -> list[str]:
    answer = await server.client.get("/api/v1/jobs", params={name: str(value) for name, value in query.items()})
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


async def test_filters_narrow_together(stored: Server) -> None:
    submit = stored.control.jobs.submit
    one = (await submit("a.x", queue="mail", tags=["red"], key="k1")).id
    two = (await submit("a.y", queue="mail")).id
    three = (await submit("a.x", queue="other", tags=["red"])).id
    await stored.control.operations.cancel(two, actor="t", reason="left the building")
    assert await ids(stored) == [three, two, one]
    assert await ids(stored, oldest_first="true") == [one, two, three]
    assert await ids(stored, queue="mail") == [two, one]
    assert await ids(stored, name="a.x", tag="red") == [three, one]
    assert await ids(stored, name="a.x", queue="other") == [three]
    assert await ids(stored, status="cancelled") == [two]
    assert await ids(stored, status="cancelled,pending", queue="mail") == [two, one]
    assert await ids(stored, text="the building") == [two]
    assert await ids(stored, key="k1") == [one]
    assert await ids(stored, older_than="1h") == []
    assert await ids(stored, newer_than="1h", queue="other") == [three]
    assert await ids(stored, created_before_ms=1) == []


async def test_pages_go_on_where_the_last_ended_and_meet_every_job_once(stored: Server) -> None:
    made = [(await stored.control.jobs.submit("a")).id for _ in range(7)]
    met, cursor = [], None
    for _ in range(4):
        params = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
        page = (await stored.client.get("/api/v1/jobs", params=params)).json()
        met += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
        # jobs that come meanwhile are newer than any page
        await stored.control.jobs.submit("late")
    assert met == made[::-1]
    assert cursor is None


async def test_a_page_is_never_longer_than_the_server_gives() -> None:
    async with serving(page_limit=3) as server:
        for _ in range(5):
            await server.control.jobs.submit("a")
        for more in (1000, 10_001, 2**70):
            assert len(await ids(server, limit=more)) == 3


async def test_a_job_looks_as_it_is_and_its_secrets_are_masked(stored: Server) -> None:
    payload = {"user": "ann", "password": "x", "deep": [{"accessToken": "y", "n": 1}]}
    made = await stored.control.jobs.submit("a", payload, metadata={"order": "17", "db_password": "x"})
    session = await stored.control.claims.open_session(worker="w")
    (job,) = await stored.control.claims.claim(["default"], session.id, 1)
    await stored.control.attempts.complete([Completion(job, result={"secret": "z", "sum": 3})])
    found = (await stored.client.get(f"/api/v1/jobs/{made.id}")).json()
    assert found["status"] == "succeeded"
    assert found["payload"] == {"user": "ann", "password": "***", "deep": [{"accessToken": "***", "n": 1}]}
    assert found["result"] == {"secret": "***", "sum": 3}
    assert found["options"]["metadata"] == {"order": "17", "db_password": "***"}
    bare = (await stored.client.get(f"/api/v1/jobs/{made.id}", params={"payload": "false"})).json()
    assert found.keys() - bare.keys() == {"payload", "result", "checkpoint"}
    listed = (await stored.client.get("/api/v1/jobs")).json()["jobs"][0]
    assert listed == bare


async def test_a_server_that_shows_no_payloads_shows_none_however_it_is_asked() -> None:
    async with serving(show_payloads=False) as server:
        made = await server.control.jobs.submit("a", {"name": "ann"})
        await server.control.operations.cancel(made.id, actor="t")
        for path in (f"/jobs/{made.id}?payload=true", "/jobs?payload=true", f"/jobs/{made.id}/result"):
            assert "ann" not in (await server.client.get(f"/api/v1{path}")).text


async def test_what_cannot_be_read_is_not_shown_for_nobody_knows_what_is_secret_in_it(stored: Server) -> None:
    sealed = msgspec.Raw(msgspec.msgpack.encode(msgspec.msgpack.Ext(77, b"password: hunter2")))
    made = await stored.control.jobs.submit("a", sealed)
    answer = await stored.client.get(f"/api/v1/jobs/{made.id}")
    assert answer.json()["payload"] == {"undecodable": f"{len(bytes(sealed))} bytes"}
    assert b"hunter2".hex() not in answer.text


async def test_a_stored_extension_type_is_told_by_its_type_and_size_and_kept_in_messagepack(stored: Server) -> None:
    value = {"n": 1, "strange": [msgspec.msgpack.Ext(5, b"aa")]}
    made = await stored.control.jobs.submit("a")
    session = await stored.control.claims.open_session()
    jobs = await stored.control.claims.claim(["default"], session.id, 1)
    # a result that its task has packed is taken as it is
    await stored.control.attempts.complete([Completion(jobs[0], result=msgspec.Raw(msgspec.msgpack.encode(value)))])

    path = f"/api/v1/jobs/{made.id}/result"
    shown = (await stored.client.get(path)).json()["result"]
    packed = await stored.client.get(path, headers={"Accept": "application/msgpack"})

    assert shown == {"n": 1, "strange": ["extension type 5, 2 bytes"]}
    assert msgspec.msgpack.decode(packed.content)["result"] == value


async def test_a_job_that_is_known_already_is_not_sent_again(stored: Server) -> None:
    path = f"/api/v1/jobs/{(await stored.control.jobs.submit('a')).id}"
    tag = (await stored.client.get(path)).headers["etag"]
    again = await stored.client.get(path, headers={"If-None-Match": f'"0", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    await stored.client.post(f"{path}/priority", json={"priority": 5})
    assert (await stored.client.get(path, headers={"If-None-Match": tag})).status_code == 200


async def test_progress_is_a_change_to_whoever_looks_though_it_moves_nothing(stored: Server) -> None:
    made = await stored.control.jobs.submit("a")
    session = await stored.control.claims.open_session(worker="w")
    (job,) = await stored.control.claims.claim(["default"], session.id, 1)
    await stored.control.claims.start([job])
    path = f"/api/v1/jobs/{made.id}"
    before = (await stored.client.get(path)).headers["etag"]
    await stored.control.claims.report([stored.control.claims.progress(job, 3, 10)])
    found = await stored.client.get(path, headers={"If-None-Match": before})
    assert (found.status_code, found.json()["progress"]) == (200, {"done": 3.0, "total": 10.0})
    # and nobody's change is refused because of it
    assert (await stored.client.post(f"{path}/cancel", headers={"If-Match": before})).status_code == 200


async def test_units_are_listed_with_their_counts(stored: Server) -> None:
    parent = (await stored.control.jobs.submit("p")).id
    units = [(await stored.control.jobs.submit("u", n, parent=parent, unit=f"u{n}")).id for n in range(3)]
    await stored.control.operations.cancel(units[1], actor="t")
    found = (await stored.client.get(f"/api/v1/jobs/{parent}/units", params={"limit": "2"})).json()
    assert [unit["id"] for unit in found["units"]] == units[:2]
    assert found["counts"] == {"pending": 2, "cancelled": 1}
    rest = await stored.client.get(f"/api/v1/jobs/{parent}/units", params={"cursor": found["next"]})
    assert [unit["unit"] for unit in rest.json()["units"]] == ["u2"]
    assert await ids(stored, parent=parent, status="cancelled") == [units[1]]


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("statsu=failed", "statsu", "did you mean 'status'?"),
        ("status=faild", "status", "did you mean 'failed'?"),
        ("limit=0", "limit", ">= 1"),
        ("limit=many", "limit", "expected int"),
        ("limit=5&limit=6", "limit", "twice"),
        ("limit=null", "limit", "expected int"),
        ("created_from_ms=null", "created_from_ms", "leave it out"),
        ("cursor=xyz", "cursor", "a UUIDv7"),
        ("older_than=5", "older_than", "with a unit"),
        ("older_than=2h&newer_than=1h", "older_than", "no job can be older"),
        ("oldest_first=maybe", "oldest_first", "expected bool"),
        ("text=a%00b", "text", "without control characters"),
        ("store=other", "store", "this server has main"),
        ("session=", "session", "length >= 1"),
    ],
)
async def test_a_query_that_cannot_be_meant_is_refused_by_its_field(
    server: Server, query: str, field: str, words: str
) -> None:
    answer = await server.client.get(f"/api/v1/jobs?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert words in answer.json()["detail"]


async def test_stores_are_kept_apart_and_the_first_is_meant_when_none_is_named() -> None:
    async with serving({"one": "memory:", "two": "memory:"}) as server:
        send = server.client.post
        first = (await send("/api/v1/jobs", json={"name": "a"})).json()["id"]
        made = await send("/api/v1/jobs", params={"store": "two"}, json={"name": "b"})
        second = made.json()["id"]
        assert made.headers["location"].endswith(f"/jobs/{second}?store=two")
        assert await ids(server) == await ids(server, store="one") == [first]
        assert await ids(server, store="two") == [second]
        assert (await server.client.get(f"/api/v1/jobs/{second}")).status_code == 404
        assert (await server.client.get(made.headers["location"])).status_code == 200
        listed = (await server.client.get("/api/v1/stores")).json()["stores"]
        assert [(each["name"], each["default"]) for each in listed] == [("one", True), ("two", False)]


async def test_why_jobs_failed_can_be_searched_for(stored: Server) -> None:
    made = await stored.control.jobs.submit("a", retries=0)
    session = await stored.control.claims.open_session(worker="w")
    (job,) = await stored.control.claims.claim(["default"], session.id, 1)
    await stored.control.claims.start([job])
    await stored.control.attempts.fail([Failure(job, ValueError("the printer is on fire"))])
    assert await ids(stored, text="on fire", session="nobody") == []
    assert await ids(stored, text="on fire") == [made.id]


async def test_jobs_are_listed_by_kind(stored: Server) -> None:
    await stored.control.jobs.submit("a")
    load = await stored.control.jobs.submit("Shop", kind="load")
    batch = await stored.control.jobs.submit("sweep", kind="batch")
    for kind, ids in (("load", [load.id]), ("batch", [batch.id]), ("unheard", [])):
        found = (await stored.client.get("/api/v1/jobs", params={"kind": kind})).json()["jobs"]
        assert [job["id"] for job in found] == ids
