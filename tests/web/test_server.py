"""What a server refuses to do in the open, and what it needs to listen."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from mainstay.errors import InvalidInput
from mainstay.load.target.certificate import self_signed
from mainstay.web.options import WebOptions
from mainstay.web.server import bound, check, tls_context, url_of

EVERYWHERE = ["0.0.0.0", "::", "192.0.2.7", "jobs.example", ""]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_on_this_machine_nothing_is_needed(host: str) -> None:
    check(WebOptions(host=host))


@pytest.mark.parametrize("host", EVERYWHERE)
def test_beyond_this_machine_tls_is_needed(host: str) -> None:
    with pytest.raises(InvalidInput, match="--tls-cert FILE and --tls-key FILE, or --insecure") as caught:
        check(WebOptions(host=host, tokens="tokens.json"))

    assert caught.value.field == "host"


@pytest.mark.parametrize("host", EVERYWHERE)
@pytest.mark.parametrize("how", [{"insecure": True}, {"tls_cert": "a.pem"}], ids=["insecure", "tls"])
def test_beyond_this_machine_tokens_are_needed_too(host: str, how: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="mainstay tokens add NAME --scope admin, and pass --tokens FILE") as caught:
        check(WebOptions(host=host, **how))

    assert caught.value.field == "tokens"


@pytest.mark.parametrize("host", EVERYWHERE)
@pytest.mark.parametrize("how", [{"insecure": True}, {"tls_cert": "a.pem"}], ids=["insecure", "tls"])
def test_with_both_it_may_listen_anywhere(host: str, how: dict[str, Any]) -> None:
    check(WebOptions(host=host, tokens="tokens.json", **how))


def test_a_key_without_a_certificate_is_a_mistake() -> None:
    with pytest.raises(InvalidInput, match="no certificate"):
        check(WebOptions(tls_key="a.key"))


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(InvalidInput, match=f"port: {port} is in use on 127.0.0.1"), bound(WebOptions(port=port)):
            pass


def test_a_host_that_there_is_not_is_named() -> None:
    with (
        pytest.raises(InvalidInput, match="nowhere.invalid:8330 cannot be opened"),
        bound(WebOptions(host="nowhere.invalid")),
    ):
        pass


@pytest.mark.parametrize(
    ("host", "cert", "expected"),
    [
        ("127.0.0.1", None, "http://127.0.0.1:{}"),
        ("0.0.0.0", "a.pem", "https://127.0.0.1:{}"),
        ("::1", None, "http://[::1]:{}"),
        ("localhost", None, "http://localhost:{}"),
    ],
)
def test_the_address_is_one_that_can_be_opened(host: str, cert: str | None, expected: str) -> None:
    options = WebOptions(host=host, port=0, tls_cert=cert)
    with bound(options) as opened:
        assert url_of(options, opened) == expected.format(opened.getsockname()[1])


def test_files_that_are_no_certificate_are_named(tmp_path: Path) -> None:
    good = asyncio.run(self_signed(tmp_path, "127.0.0.1"))
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")

    assert tls_context(WebOptions(tls_cert=str(good))) is not None
    with pytest.raises(InvalidInput, match=f"tls-cert: {bad} cannot be used"):
        tls_context(WebOptions(tls_cert=str(bad)))
    with pytest.raises(InvalidInput, match="missing.pem cannot be used .*No such file"):
        tls_context(WebOptions(tls_cert=str(tmp_path / "missing.pem")))
    with pytest.raises(InvalidInput, match="bad.pem cannot be used"):
        tls_context(WebOptions(tls_cert=str(good), tls_key=str(bad)))


def test_without_a_certificate_there_is_no_tls() -> None:
    assert tls_context(WebOptions()) is None
