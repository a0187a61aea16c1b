"""Sign-in: a token once, then a cookie that no script can read and no other site can use."""

from __future__ import annotations

import re
from http.cookiejar import Cookie
from pathlib import Path

import pytest

from mainstay.web.security.tokens import Tokens
from tests.web.conftest import serving
from tests.web.security.doors import BASE, Door, cookie_value, problem, set_cookie


async def test_a_token_is_exchanged_for_a_cookie_without_it(door: Door) -> None:
    secret = door.tokens.add("ann", ["read"])

    done = await door.client().post("/login", data={"token": secret, "next": "/jobs?queue=mail"})

    assert (done.status_code, done.headers["location"]) == (303, "/jobs?queue=mail")
    told = set_cookie(done)
    assert secret[4:] not in done.headers["set-cookie"]
    assert {"httponly", "samesite", "path", "max-age"} <= told.keys()
    assert (told["samesite"], told["path"]) == ("strict", "/")
    assert "secure" not in told
    assert "domain" not in told


async def test_under_tls_the_cookie_is_for_this_host_alone(door: Door) -> None:
    client = door.client(base="https://jobs.example")

    done = await client.post("/login", data={"token": door.tokens.add("ann", ["read"])})

    assert "secure" in set_cookie(done)
    assert done.headers["set-cookie"].startswith("__Host-mainstay=")
    assert done.headers["strict-transport-security"].startswith("max-age=")
    assert (await client.get("/read")).status_code == 200


async def test_servers_on_two_ports_of_a_machine_do_not_sign_each_other_out(door: Door) -> None:
    secret = door.tokens.add("ann", ["read"])
    names = {
        (await door.client(base=f"http://127.0.0.1:{port}").post("/login", data={"token": secret}))
        .headers["set-cookie"]
        .partition("=")[0]
        for port in (8330, 8331)
    }

    assert names == {"mainstay-8330", "mainstay-8331"}


@pytest.mark.parametrize("token", ["", "mst_x", "mst_\x00", "ü💥", "x" * 100_000, "<script>alert(1)</script>"])
async def test_a_wrong_token_gets_the_form_again_and_no_cookie(door: Door, token: str) -> None:
    door.tokens.add("ann", ["read"])

    done = await door.client().post("/login", data={"token": token})

    assert done.status_code == 401
    assert "set-cookie" not in done.headers
    assert 'role="alert"' in done.text
    assert "<script" not in done.text


@pytest.mark.parametrize("content", [b"", b"token", b"&&&&", b"%", b"\xff\xfe", b"a=1&" * 50, b'{"token": "x"}'])
async def test_what_is_no_form_signs_nobody_in(door: Door, content: bytes) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}

    assert (await door.client().post("/login", content=content, headers=headers)).status_code == 401


async def test_a_token_in_the_address_signs_nobody_in(door: Door) -> None:
    """Addresses are kept in histories and logs."""
    secret = door.tokens.add("ann", ["read"])

    done = await door.client().post(f"/login?token={secret}")

    assert done.status_code == 401
    assert "set-cookie" not in (await door.client().get(f"/login?token={secret}")).headers


async def test_each_sign_in_begins_another_session(door: Door) -> None:
    """Fixation: whoever plants a cookie beforehand knows nothing about the session that follows."""
    secret = door.tokens.add("ann", ["read"])
    planted = cookie_value(await door.signed_in(secret))
    victim = door.client()
    victim.cookies.set("mainstay-8330", planted, domain="127.0.0.1", path="/")

    done = await victim.post("/login", data={"token": secret})

    assert done.status_code == 303
    assert set_cookie(done)["mainstay"] != planted


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
async def test_no_other_site_signs_somebody_in(door: Door, headers: dict[str, str]) -> None:
    """With a token of its own, it would see what they do then."""
    done = await door.client().post("/login", data={"token": door.tokens.add("eve", ["read"])}, headers=headers)

    assert done.status_code == 403
    assert "set-cookie" not in done.headers


async def test_sign_ins_of_one_address_are_limited(door: Door) -> None:
    secret = door.tokens.add("ann", ["read"])
    client = door.client()
    codes = [(await client.post("/login", data={"token": "mst_x"})).status_code for _ in range(11)]

    done = await client.post("/login", data={"token": secret})

    assert codes == [401] * 10 + [429]
    assert done.status_code == 429
    assert int(done.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    "after",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        "/a\r\nSet-Cookie: x=y",
        "/\tb",
        "",
        "/" + "x" * 3000,
    ],
)
async def test_nobody_is_sent_to_another_server_after_signing_in(door: Door, after: str) -> None:
    done = await door.client().post("/login", data={"token": door.tokens.add("ann", ["read"]), "next": after})

    assert (done.status_code, done.headers["location"]) == (303, "/")


async def test_the_form_repeats_nothing_that_could_run(door: Door) -> None:
    done = await door.client().get("/login", params={"next": '/"><script>alert(1)</script>'})

    assert "<script" not in done.text
    assert "style=" not in done.text


async def test_who_is_signed_in_is_not_asked_again(door: Door) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["read"]))

    done = await browser.get("/login", params={"next": "/jobs"})

    assert (done.status_code, done.headers["location"]) == (303, "/jobs")


async def test_who_comes_by_a_link_from_elsewhere_is_asked_by_a_page_of_ours_first(door: Door) -> None:
    """Browsers keep the cookie back there; once our own page asks, they send it."""
    done = await door.client().get("/login?next=/jobs?a=1%26b", headers={"Sec-Fetch-Site": "cross-site"})

    assert '<meta http-equiv="refresh" content="0;url=/login?next=%2Fjobs%3Fa%3D1%26b">' in done.text
    assert "<form" not in done.text
    again = await door.client().get("/login?next=/jobs", headers={"Sec-Fetch-Site": "same-origin"})
    assert "<form" in again.text


async def test_where_nobody_is_asked_there_is_nothing_to_sign_in_to(open_door: Door) -> None:
    client = open_door.client()

    assert (await client.get("/login")).status_code == 303
    done = await client.post("/login", data={"token": "x"})
    assert (done.status_code, "set-cookie" in done.headers) == (303, False)


async def test_a_sign_out_ends_the_session_itself(door: Door) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["read"]))
    kept = cookie_value(browser)
    csrf = (await browser.get("/read")).json()["csrf"]

    done = await browser.post("/logout", data={"csrf_token": csrf})

    assert (done.status_code, done.headers["location"]) == (303, "/login")
    assert set_cookie(done)["max-age"] == "0"
    assert problem(await door.client(Cookie=f"mainstay-8330={kept}").get("/read")) == (401, "token_needed")


async def test_a_sign_out_holds_on_other_servers_and_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSTAY_SESSION_KEY", "k" * 64)
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.add("ann", ["read"])
    async with serving(tokens=tokens) as here, serving(tokens=Tokens(tokens.path)) as there:
        await here.client.post("/login", data={"token": secret})
        kept = {"Cookie": f"mainstay-8330={cookie_value(here.client)}"}
        page = await here.client.get("/jobs")
        csrf = re.search(r'name="csrf-token" content="([^"]+)"', page.text)
        assert csrf is not None
        assert (await there.client.get("/api/v1/jobs", headers=kept)).status_code == 200
        assert (await here.client.post("/logout", data={"csrf_token": csrf[1]})).status_code == 303
        assert (await there.client.get("/api/v1/jobs", headers=kept)).status_code == 401
    async with serving(tokens=Tokens(tokens.path)) as again:
        assert (await again.client.get("/api/v1/jobs", headers=kept)).status_code == 401


@pytest.mark.parametrize("data", [{}, {"csrf_token": "guessed"}])
async def test_no_other_site_signs_somebody_out(door: Door, data: dict[str, str]) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["read"]))

    assert problem(await browser.post("/logout", data=data)) == (403, "csrf_token_needed")
    assert (await browser.get("/read")).status_code == 200


async def test_a_sign_out_is_never_a_link(door: Door) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["read"]))

    assert (await browser.get("/logout")).status_code == 405


async def test_a_cookie_of_one_host_is_none_for_another(door: Door) -> None:
    browser = await door.signed_in(door.tokens.add("ann", ["read"]))
    [cookie] = list(browser.cookies.jar)

    assert isinstance(cookie, Cookie)
    assert cookie.domain_specified is False
    assert BASE.partition("//")[2].startswith(cookie.domain)
