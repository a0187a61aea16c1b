"""The nginx that load tests are measured against answers on both its ports, and counts."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import servers
from servers.nginx import SMALL


@pytest.fixture
def place() -> Iterator[Path]:
    with servers.folder("mainstay-servers-") as made:
        yield made


@pytest.fixture
def nginx(place: Path) -> Iterator[servers.Nginx]:
    server = servers.Nginx(place)
    yield server
    server.stop()


def _body(url: str, data: bytes | None = None, tls: ssl.SSLContext | None = None) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60, context=tls) as answer:
        body: bytes = answer.read()
        return body


def test_it_serves_a_file_and_answers_a_post_with_json(nginx: servers.Nginx) -> None:
    assert _body(nginx.url()) == SMALL
    assert json.loads(_body(nginx.url("/json"), b"x" * 1024))["ok"] is True


def test_it_is_trusted_by_its_certificate_and_by_nobody_else(nginx: servers.Nginx) -> None:
    trusting = ssl.create_default_context(cafile=str(nginx.certificate))

    assert _body(nginx.tls_url(), tls=trusting) == SMALL
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        _body(nginx.tls_url(), tls=ssl.create_default_context())


def test_it_counts_what_it_answered_over_all_its_workers(place: Path) -> None:
    server = servers.Nginx(place, workers=2)
    try:
        before = server.status().requests
        for _ in range(20):
            _body(server.url())
        counted = server.status().requests - before
    finally:
        server.stop()

    # with the second look
    assert counted == 21


def test_it_tells_how_many_connections_are_open(nginx: servers.Nginx) -> None:
    with socket.create_connection(("127.0.0.1", nginx.port)), socket.create_connection(("127.0.0.1", nginx.port)):
        assert nginx.status().connections == 3


def test_it_keeps_its_ports_over_a_kill(nginx: servers.Nginx) -> None:
    nginx.kill()
    with pytest.raises(ConnectionRefusedError):
        nginx.answers()

    nginx.start()

    assert _body(nginx.url()) == SMALL
