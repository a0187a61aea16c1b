"""The guard: who is let in, to what, and from where."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.security.doors import BASE, Door, cookie_value, problem


async def test_a_token_opens_and_names_whoever_has_it(door: Door) -> None:
    client = door.client(door.tokens.add("ann", ["read"]))

    assert (await client.get("/read")).json() == {"who": "web:ann", "how": "token", "csrf": ""}


async def test_nobody_is_let_in_without_a_token(door: Door) -> None:
    done = await door.client().get("/read")

    assert problem(done) == (401, "token_needed")
    assert done.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "shown",
    ["", "Bearer", "Bearer ", "Bearer mst_x", "Basic YW5uOng=", "bearer\tmst_x", "Bearer " + "x" * 20_000, "mst_x"],
)
async def test_what_is_no_token_is_refused(door: Door, shown: str) -> None:
    door.tokens.add("ann", ["read"])

    assert problem(await door.client(Authorization=shown).get("/read")) == (401, "token_refused")


@pytest.mark.parametrize("raw", [b"Bearer \xff\xfe", b"Bearer \xc3\xbc\xf0\x9f\x92\xa5", b"Bearer mst_\x00"])
async def test_bytes_that_are_no_text_are_refused(door: Door, raw: bytes) -> None:
    door.tokens.add("ann", ["read"])

    done = await door.client().get("/read", headers=[(b"Authorization", raw)])

    assert problem(done) == (401, "token_refused")


async def test_a_refused_token_is_not_said_again(door: Door) -> None:
    done = await door.client("mst_almost").get("/read")

    assert "mst_almost" not in done.text


async def test_the_word_bearer_is_read_in_any_case(door: Door) -> None:
    secret = door.tokens.add("ann", ["read"])

    assert (await door.client(Authorization=f"bEARER  {secret}").get("/read")).status_code == 200


async def test_a_bad_token_is_not_made_good_by_a_session(door: Door) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["read"]))

    done = await browser.get("/read", headers={"Authorization": "Bearer mst_x"})

    assert problem(done) == (401, "token_refused")


async def test_a_token_does_what_its_scope_allows_and_no_more(door: Door) -> None:
    reader = door.client(door.tokens.add("ann", ["read"]))
    operator = door.client(door.tokens.add("ben", ["operate"]))

    done = await reader.post("/operate")

    assert problem(done) == (403, "scope_needed")
    assert done.json()["needed"] == "operate"
    assert (await operator.post("/operate")).status_code == 200
    assert (await operator.get("/read")).status_code == 200


async def test_a_server_that_only_shows_changes_nothing(tmp_path: Path) -> None:
    door = Door(tmp_path, read_only=True)
    client = door.client(door.tokens.add("ann", ["admin"]))

    assert problem(await client.post("/operate")) == (403, "read_only")
    assert (await client.get("/read")).status_code == 200


async def test_a_revoked_token_is_refused_from_the_next_request_on(door: Door) -> None:
    client = door.client(door.tokens.add("ann", ["read"]))
    door.tokens.add("ben", ["read"])
    assert (await client.get("/read")).status_code == 200

    door.tokens.revoke("ann")

    assert problem(await client.get("/read")) == (401, "token_refused")


async def test_each_caller_has_a_rate_of_its_own(tmp_path: Path) -> None:
    door = Door(tmp_path, rate=0.6)  # bursts of three
    ann, ben = (door.client(door.tokens.add(name, ["read"])) for name in ("ann", "ben"))
    codes = [(await ann.get("/read")).status_code for _ in range(4)]

    done = await ann.get("/read")

    assert codes == [200, 200, 200, 429]
    assert problem(done) == (429, "too_many_requests")
    assert int(done.headers["retry-after"]) >= 1
    assert (await ben.get("/read")).status_code == 200


async def test_guessing_is_limited_by_address_and_keeps_nobody_else_out(tmp_path: Path) -> None:
    door = Door(tmp_path, rate=0.6)
    ann = door.client(door.tokens.add("ann", ["read"]))
    codes = [(await door.client(f"mst_{n}").get("/read")).status_code for n in range(5)]

    assert codes == [401, 401, 401, 429, 429]
    assert (await ann.get("/read")).status_code == 200


async def test_without_tokens_everybody_on_the_machine_may_do_everything(open_door: Door) -> None:
    client = open_door.client()

    assert (await client.get("/read")).json() == {"who": "web:local", "how": "local", "csrf": ""}
    assert (await client.post("/operate", content=b"12")).json() == {"who": "web:local", "size": 2}


LOCAL = ["127.0.0.1:8330", "localhost", "LOCALHOST:1", "[::1]:8330", "127.8.8.8"]
STRANGE = [
    "evil.example",
    "evil.example:8330",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "0.0.0.0:8330",
    "192.168.0.7:8330",
    "[fe80::1]",
]


@pytest.mark.parametrize("host", LOCAL)
async def test_names_of_this_machine_are_known(open_door: Door, host: str) -> None:
    assert (await open_door.client(Host=host).get("/read")).status_code == 200


@pytest.mark.parametrize("path", ["/read", "/kept", "/login", "/nothing"])
@pytest.mark.parametrize("host", STRANGE)
async def test_a_name_that_was_rebound_to_this_machine_reads_nothing(open_door: Door, host: str, path: str) -> None:
    """DNS rebinding: to the browser, the stranger's page and this server are one site."""
    done = await open_door.client(Host=host).get(path)

    assert problem(done) == (403, "wrong_host")


@pytest.mark.parametrize("host", STRANGE)
async def test_the_guard_looks_at_the_host_by_itself(open_door: Door, host: str) -> None:
    """Also where the app is not served through the middleware."""
    open_door.app = open_door.app.app  # type: ignore[assignment]

    assert problem(await open_door.client(Host=host).get("/read")) == (403, "wrong_host")


@pytest.mark.parametrize("host", ["", "a b", "a@127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "[", "127.0.0.1/", "ü"])
async def test_a_host_that_is_none_is_refused(open_door: Door, host: str) -> None:
    done = await open_door.client().get("/read", headers=[("Host", host.encode())])

    assert problem(done) == (400, "bad_host")


async def test_two_hosts_are_refused(open_door: Door) -> None:
    done = await open_door.client().get("/read", headers=[("Host", "127.0.0.1"), ("Host", "evil.example")])

    assert problem(done) == (400, "bad_host")


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1:9999"},
    {"Origin": "http://localhost:8330"},
    {"Origin": "ftp://127.0.0.1:8330"},
    {"Origin": "http://127.0.0.1:8330@evil.example"},
    {"Origin": "http://127.0.0.1:8330.evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": BASE},
]
OURS: list[dict[str, str]] = [
    {},
    {"Origin": BASE},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "same-origin", "Origin": BASE},
    {"Sec-Fetch-Site": "none"},
    # behind a proxy that says another host than the browser did
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://jobs.example"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_page_of_another_site_changes_nothing_on_this_machine(open_door: Door, headers: dict[str, str]) -> None:
    assert problem(await open_door.client().post("/operate", headers=headers)) == (403, "cross_site")


@pytest.mark.parametrize("headers", OURS, ids=str)
async def test_our_own_pages_and_programs_may(open_door: Door, headers: dict[str, str]) -> None:
    assert (await open_door.client().post("/operate", headers=headers)).status_code == 200


async def test_a_session_reads_and_says_what_changes_need(door: Door) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["operate"]))

    told = (await browser.get("/read")).json()

    assert (told["who"], told["how"]) == ("web:ann", "session")
    done = await browser.post("/operate", headers={"X-CSRF-Token": told["csrf"], "Origin": BASE})
    assert done.json()["who"] == "web:ann"


@pytest.mark.parametrize("given", [None, "", "guessed", "ü"])
async def test_a_session_changes_nothing_without_its_csrf_token(door: Door, given: str | None) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["operate"]))
    headers = {} if given is None else {"X-CSRF-Token": given.encode()}

    assert problem(await browser.post("/operate", headers=headers)) == (403, "csrf_token_needed")  # type: ignore[arg-type]


async def test_the_csrf_token_of_another_session_is_none(door: Door) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["operate"]))
    attacker = await door.signed_in(door.tokens.add("eve", ["read"]))
    known = (await attacker.get("/read")).json()["csrf"]

    done = await browser.post("/operate", headers={"X-CSRF-Token": known})

    assert problem(done) == (403, "csrf_token_needed")


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_session_changes_nothing_for_a_page_of_another_site(door: Door, headers: dict[str, str]) -> None:
    """Even if that page came to know the CSRF token."""
    browser = await door.signed_in(door.tokens.add("ann", ["operate"]))
    csrf = (await browser.get("/read")).json()["csrf"]

    done = await browser.post("/operate", headers={**headers, "X-CSRF-Token": csrf})

    assert problem(done) == (403, "cross_site")


async def test_programs_with_a_token_need_no_csrf_token(door: Door) -> None:
    client = door.client(door.tokens.add("ann", ["operate"]))

    assert (await client.post("/operate", headers={"Origin": "https://ci.example"})).status_code == 200


async def test_a_session_is_over_with_its_token(door: Door) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["read"]))
    door.tokens.revoke("ann")
    door.tokens.add("ann", ["admin"])

    assert problem(await browser.get("/read")) == (401, "token_needed")


async def test_a_session_is_over_when_its_token_expires(door: Door) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["read"], expires_s=60))
    door.clock.advance(60)

    assert problem(await browser.get("/read")) == (401, "token_needed")


async def test_a_session_of_a_server_that_was_restarted_is_over(door: Door, tmp_path: Path) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["read"]))
    cookie = cookie_value(browser)
    again = Door(tmp_path)

    done = await again.client(Cookie=f"mainstay-8330={cookie}").get("/read")

    assert problem(done) == (401, "token_needed")
    assert (await door.client(Cookie=f"mainstay-8330={cookie}").get("/read")).status_code == 200


async def test_servers_with_one_key_know_each_others_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTAY_SESSION_KEY", "k" * 32)
    one, other = Door(tmp_path), Door(tmp_path)
    cookie = cookie_value(await one.signed_in(one.tokens.add("ann", ["read"])))

    assert (await other.client(Cookie=f"mainstay-8330={cookie}").get("/read")).status_code == 200


@pytest.mark.parametrize("cookie", ["", ".", "x", "x.y", "eyJpZCI6IngifQ==.00", "ü.ü", "x" * 5000 + ".y", "..", "\x7f"])
async def test_a_made_up_cookie_is_no_session(door: Door, cookie: str) -> None:
    done = await door.client().get("/read", headers=[("Cookie", f"mainstay-8330={cookie}".encode())])

    assert problem(done) == (401, "token_needed")
