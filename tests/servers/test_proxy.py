"""The wire is spoilt exactly as ordered, and is a plain wire otherwise."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import Proxy
from servers.server import free_port

ROOT = Path(__file__).parents[2]


class Echo:
    """Answers what it hears, and remembers it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._echo, args=[connection], daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65536):
                self.heard += data
                connection.sendall(data)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.port) as made:
        yield made


def _connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), 5)


def _said(client: socket.socket, data: bytes) -> bytes:
    """Say something and hear as much, or what comes before the end."""
    client.sendall(data)
    heard = b""
    with contextlib.suppress(ConnectionError):
        while len(heard) < len(data) and (more := client.recv(65536)):
            heard += more
    return heard


def test_it_passes_on_everything_in_order(proxy: Proxy) -> None:
    data = bytes(range(256)) * 4000
    with _connected(proxy) as client:
        sender = threading.Thread(target=client.sendall, args=[data])
        sender.start()
        heard = b""
        while len(heard) < len(data):
            heard += client.recv(65536)
        sender.join()

    assert heard == data


def test_it_holds_nothing_back_to_send_more_at_once(proxy: Proxy) -> None:
    with _connected(proxy) as wire:
        wire.sendall(b"hello")
        assert wire.recv(5) == b"hello"
        ends = [end.get_extra_info("socket") for end in proxy._wire.transports]
        assert [end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for end in ends] == [1, 1]


def test_an_end_is_passed_on(proxy: Proxy) -> None:
    with _connected(proxy) as client:
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)

        assert client.makefile("rb").read() == b"last"


def test_a_cut_ends_all_connections_and_new_ones_are_taken(proxy: Proxy) -> None:
    with _connected(proxy) as one, _connected(proxy) as other:
        assert (_said(one, b"a"), _said(other, b"b")) == (b"a", b"b")
        assert proxy.cut() == 2
        assert (_said(one, b"c"), _said(other, b"d")) == (b"", b"")
    with _connected(proxy) as client:
        assert _said(client, b"e") == b"e"
        assert proxy.connections == 1


def test_an_answer_is_lost_after_so_many_bytes_though_the_server_has_heard(proxy: Proxy, echo: Echo) -> None:
    with _connected(proxy) as client:
        proxy.cut_after(down=3)
        assert _said(client, b"ab") == b"ab"
        assert _said(client, b"cde") == b"c"
    assert echo.heard == b"abcde"
    with _connected(proxy) as client:
        assert _said(client, b"more than three") == b"more than three", "once"
    assert proxy.cut_by_bytes == 1


def test_a_request_is_lost_after_so_many_bytes(proxy: Proxy, echo: Echo) -> None:
    with _connected(proxy) as client:
        proxy.cut_after(up=0)
        assert _said(client, b"ab") == b""
    assert echo.heard == b""


def test_it_refuses_as_a_server_that_is_not_there_and_takes_connections_again(proxy: Proxy) -> None:
    with _connected(proxy) as client:
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            _connected(proxy)
        assert _said(client, b"a") == b"a", "those that are stay"
    proxy.accept()
    with _connected(proxy) as client:
        assert _said(client, b"b") == b"b"


def test_a_wire_can_be_silent_in_one_direction_only(proxy: Proxy, echo: Echo) -> None:
    with _connected(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        proxy.stall("down")
        client.sendall(b"b")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert echo.heard == b"ab"
        proxy.flow()
        client.settimeout(10)
        assert client.recv(1) == b"b"


def test_a_stalled_wire_is_silent_and_what_was_held_up_arrives_in_order(proxy: Proxy) -> None:
    with _connected(proxy) as client:
        assert _said(client, b"a") == b"a"
        proxy.stall()
        client.sendall(b"bc")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(5)
        proxy.flow()
        assert _said(client, b"") == b""
        heard = client.recv(65536)
        assert heard == b"bc"


def test_a_delay_is_added_in_each_direction(proxy: Proxy) -> None:
    with _connected(proxy) as client:
        _said(client, b"a")
        proxy.delay(up=0.02, down=0.03)
        began = time.monotonic()
        assert _said(client, b"b" * 1000) == b"b" * 1000
        took = time.monotonic() - began

    assert took >= 0.05


def test_a_server_that_is_down_looks_like_one() -> None:
    with Proxy("127.0.0.1", free_port()) as proxy, _connected(proxy) as client:
        assert _said(client, b"a") == b""


def test_a_url_goes_through_it_with_its_user_and_options(echo: Echo) -> None:
    with Proxy.before(f"postgresql://ann:x@127.0.0.1:{echo.port}/jobs?schema=s") as proxy:
        assert proxy.url == f"postgresql://ann:x@127.0.0.1:{proxy.port}/jobs?schema=s"


def test_as_a_program_it_says_where_it_is(echo: Echo) -> None:
    command = [sys.executable, "-m", "servers.delayed", f"tcp://127.0.0.1:{echo.port}", "--up", "0.01"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            port = int(program.stdout.readline().rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), 5) as client:
                assert _said(client, b"a") == b"a"
        finally:
            program.kill()
