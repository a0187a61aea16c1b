"""Whatever is sent, the answer is a clear refusal: never a 5xx, never a stack trace, and nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from mainstay.web.api.routes import PREFIX, operations
from tests.web.conftest import Server, serving

#: of the web package itself and of every kind of job
OPERATIONS = operations()

NOBODY = "018bcfe5-6800-7000-8000-0123456789ab"
JSON = {"Content-Type": "application/json"}


def assert_refused(answer: httpx.Response) -> None:
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"]
    assert problem["detail"]
    assert "Traceback" not in answer.text
    assert "site-packages" not in answer.text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 415),
        (b"{", 400),
        (b"nonsense", 400),
        (b"\xff\xfe", 400),
        (b'{"name": "\xff"}', 400),
        (b'{"name": "a", "payload": "\\ud800"}', 400),
        (b"\xef\xbb\xbf{}", 400),
        (b"[" * 100_000, 422),
        (b'{"name": "a", "payload": ' + b'{"a":' * 50_000, 400),
        (b'{"name": "a", "payload": 1e999}', 422),
        (b'{"name": "a", "payload": ' + b"9" * 5000 + b"}", 422),
        (b'{"name": "a", "payload": NaN}', 400),
        (b"[]", 422),
        (b"null", 422),
        (b'"name"', 422),
        (b"17", 422),
        (b"{}", 422),
        (b'{"name": null}', 422),
        (b'{"name": "a\\u0000b"}', 422),
        (b'{"name": "a", "queue": "a\\u0000b"}', 422),
        (b'{"name": "a", "key": "\\u202e"}', 422),
        (b'{"name": "a", "metadata": {"": "x"}}', 422),
        (b'{"name": "a", "delay": "99999999999999999999w"}', 422),
        (b'{"name": "a", "run_at": "9999-12-31T23:59:59Z"}', 422),
        (b'{"name": "a", "run_at": "0001-01-01T00:00:00+14:00"}', 422),
        (b'{"name": "a", "priority": 1e400}', 422),
        (b'{"name": "a", "after": ["' + b"x" * 100_000 + b'"]}', 422),
        (b'{"name": "' + b"a" * 100_000 + b'"}', 422),
        (b'{"name": "a"}{"name": "b"}', 400),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else None,
)
async def test_a_body_that_is_not_what_it_should_be_is_refused(stored: Server, body: bytes, status: int) -> None:
    headers = JSON if body else {}
    if not body:
        headers = {"Content-Type": "text/plain"}
    answer = await stored.client.post(f"{PREFIX}/jobs", content=body, headers=headers)
    assert_refused(answer)
    assert answer.status_code == status, answer.text
    assert (await stored.control.store.stats()).queues == {}


@pytest.mark.parametrize(
    "text", ["\\ud800", "\\udc00 and more of it", "\\ud800\\u0041 and more", "\\uD83D\\ude00 \\uD83D"]
)
async def test_of_text_that_is_no_unicode_it_is_said_what_is_wrong(server: Server, text: str) -> None:
    for payload in (f'"{text}"', f'{{"{text}": 1}}'):
        body = f'{{"name": "a", "payload": {payload}}}'
        answer = await server.client.post(f"{PREFIX}/jobs", content=body, headers=JSON)
        assert_refused(answer)
        assert (answer.status_code, answer.json()["type"]) == (400, "malformed_json")
        assert "text that is not Unicode: \\ud" in answer.json()["detail"]


async def test_a_body_that_was_cut_within_a_character_was_cut(server: Server) -> None:
    answer = await server.client.post(f"{PREFIX}/jobs", content=b'{"name": "a", "payload": "\\ud83d', headers=JSON)
    assert "truncated" in answer.json()["detail"]


@pytest.mark.parametrize(
    "media", ["", "text/plain", "application/xml", "application/json; charset=latin-1", "multipart/form-data", "\x00"]
)
async def test_only_json_is_read(server: Server, media: str) -> None:
    answer = await server.client.post(f"{PREFIX}/jobs", content=b'{"name": "a"}', headers={"Content-Type": media})
    assert_refused(answer)
    assert answer.status_code == 415


async def test_json_may_say_that_it_is_utf_8(server: Server) -> None:
    headers = {"Content-Type": "Application/JSON; charset=UTF-8"}
    answer = await server.client.post(f"{PREFIX}/jobs", content=b'{"name": "a"}', headers=headers)
    assert answer.status_code == 201


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/",
        "/jobs//",
        "//jobs",
        "/jobs/..",
        "/jobs/%2e%2e/%2e%2e/etc/passwd",
        "/jobs/..%2f..%2fetc%2fpasswd",
        "/jobs/%00",
        "/jobs/%ff%fe",
        "/jobs/%0d%0aSet-Cookie:%20a=b",
        f"/jobs/{NOBODY}/",
        f"/jobs/{NOBODY.upper()}",
        f"/jobs/{NOBODY}%0a",
        f"/jobs/{NOBODY}/events/",
        f"/jobs/{NOBODY}/../../queues/x",
        "/jobs/" + "a" * 5000,
        "/queues/",
        "/queues/%00",
        "/queues/" + "a/" * 500,
        "/schedules/%F0%9F%92%A9",
        "/nothing",
        "",
        "/",
    ],
)
async def test_path_tricks_lead_nowhere(stored: Server, path: str) -> None:
    assert_refused(await stored.client.get(PREFIX + path))


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "get"])
async def test_a_method_that_is_not_done_is_refused_with_those_that_are(server: Server, method: str) -> None:
    answer = await server.client.request(method, f"{PREFIX}/jobs")
    if method == "get":
        # clients write it in capitals before it is sent
        assert answer.status_code == 200
        return
    assert_refused(answer)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.method == "GET"], ids=lambda each: each.id)
async def test_whoever_asks_for_the_head_alone_is_answered_alike(server: Server, operation: Any) -> None:
    path = PREFIX + operation.path.replace("{id}", NOBODY).replace("{name}", "mail")
    head, whole = await server.client.head(path), await server.client.get(path)
    assert head.status_code == whole.status_code
    assert head.headers["content-type"] == whole.headers["content-type"]


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.body is None], ids=lambda each: each.id)
async def test_a_body_where_none_is_taken_is_refused(server: Server, operation: Any) -> None:
    path = PREFIX + operation.path.replace("{id}", NOBODY).replace("{name}", "mail")
    answer = await server.client.request(operation.method, path, content=b"{}", headers=JSON)
    assert_refused(answer)


@pytest.mark.parametrize("depth", [50, 200, 330, 480, 700, 980, 1200, 5000])
async def test_however_deep_a_payload_is_it_is_refused_or_shown(stored: Server, depth: int) -> None:
    """What is stored can be looked at; whatever limits there are on the way."""
    for open_, close in ((b'{"a":', b"}"), (b"[", b"]")):
        body = b'{"name": "a", "payload": ' + open_ * depth + b"1" + close * depth + b"}"
        sent = await stored.client.post(f"{PREFIX}/jobs", content=body, headers=JSON)
        if sent.status_code != 201:
            assert_refused(sent)
            continue
        path = f"{PREFIX}/jobs/{sent.json()['id']}"
        assert (await stored.client.get(path)).status_code == 200
        assert (await stored.client.get(f"{PREFIX}/jobs", params={"payload": "true"})).status_code == 200


class Loop:
    """One server for many examples, in a loop that stays."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._serving = serving()
        self.server: Server = self._runner.run(self._serving.__aenter__())

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._runner.run(self.server.client.request(method, path, **more))

    def close(self) -> None:
        self._runner.run(self._serving.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


def _fields(operation: Any) -> st.SearchStrategy[Any]:
    """Some of the fields that there are, with whatever in them."""
    names = operation.body.__struct_fields__ if operation.body is not None else ()
    return st.dictionaries(st.sampled_from(names) if names else st.text(max_size=5), _data, max_size=4)


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.body is not None], ids=lambda each: each.id)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_in_the_fields_nothing_breaks(operation: Any, loop: Loop, data: st.DataObject) -> None:
    body = data.draw(_fields(operation) | _data)
    path = PREFIX + operation.path.replace("{id}", NOBODY).replace("{name}", "mail")
    answer = loop.ask(operation.method, path, json=body, headers={"If-Match": "*"})
    assert answer.status_code < 500, answer.text


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.method == "GET"], ids=lambda each: each.id)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_asked_for_nothing_breaks(operation: Any, loop: Loop, data: st.DataObject) -> None:
    names = [*operation.query.__struct_fields__, "store"]
    values = st.text(max_size=20) | st.integers().map(str) | st.sampled_from(["true", "null", "1e9", "-1", ""])
    query = data.draw(st.dictionaries(st.sampled_from([each for each in names if each != "wait"]), values, max_size=3))
    place = data.draw(st.sampled_from([NOBODY, "mail", "%00", "a%2Fb"]) | st.text("abc.-_~/", min_size=1, max_size=9))
    path = PREFIX + operation.path.replace("{id}", place).replace("{name}", place)
    answer = loop.ask("GET", path, params=query)
    assert answer.status_code < 500, answer.text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"\xc1", 400),
        (b"\x81\xa4name", 400),
        (b"\x91" * 100_000, 422),
        (b"\x82\xa4name\xa1a\xa7payload" + b"\x91" * 100_000, 400),
        (b"\x82\xa4name\xa1a\xa7payload\xa2\xff\xfe", 400),
        (b"\x82\xa4name\xa1a\xa7payload\xd7\xff" + b"\xff" * 8, 422),
        (b"\x81\xa4name\x01", 422),
        (b"\x82\xa4name\xa1a\xa6retrys\x01", 422),
        (b"\xc0", 422),
    ],
)
async def test_what_is_no_msgpack_is_refused(server: Server, body: bytes, status: int) -> None:
    answer = await server.client.post(f"{PREFIX}/jobs", content=body, headers={"Content-Type": "application/msgpack"})
    assert_refused(answer)
    assert answer.status_code == status, answer.text
    assert (await server.control.store.stats()).queues == {}
