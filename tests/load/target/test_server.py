"""A target opens its ports, closes them, and says what is wrong with its options."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mainstay.errors import InvalidInput
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.target.talk import Talk


async def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"port: {port} is in use .*choose another"):
            async with TargetServer(TargetOptions(port=port)):
                pass


@pytest.mark.parametrize("field", ["tcp_port", "udp_port"])
async def test_nothing_stays_open_when_a_second_port_is_in_use(field: str) -> None:
    kind = socket.SOCK_STREAM if field == "tcp_port" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as taken, socket.socket() as free:
        taken.bind(("127.0.0.1", 0))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        if kind == socket.SOCK_STREAM:
            taken.listen()
        options = TargetOptions(port=port, **{field: taken.getsockname()[1]})
        with pytest.raises(InvalidInput, match=f"^{field}: "):
            async with TargetServer(options):
                pass
        async with TargetServer(TargetOptions(port=port)) as again:
            assert again.port == port


@pytest.mark.parametrize(
    "options",
    [
        TargetOptions(latency="soon"),
        TargetOptions(errors="200%"),
        TargetOptions(size="huge"),
        TargetOptions(size="1GB"),
        TargetOptions(error_status=7),
        TargetOptions(tls=True, cert="/nowhere/at-all.pem"),
        TargetOptions(cert="/nowhere/at-all.pem", key="/nowhere/at-all.pem"),
        TargetOptions(key="/nowhere/at-all.pem"),
        TargetOptions(host="no-such-host.invalid"),
    ],
)
async def test_bad_options_are_refused_at_the_start(options: TargetOptions) -> None:
    with pytest.raises(InvalidInput):
        async with TargetServer(options):
            pass


async def test_a_closed_target_drops_its_connections_and_frees_its_port() -> None:
    async with TargetServer() as target:
        talk = await Talk(target).__aenter__()
        await talk.get("/")
    assert await talk.reader.read() == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", target.port)
    talk.writer.close()


async def test_a_certificate_is_made_that_can_be_trusted() -> None:
    async with TargetServer(TargetOptions(tls=True)) as target:
        assert target.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=target.certificate)
        async with Talk(target, tls=trusting) as talk:
            assert (await talk.get("/"))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", target.port, ssl=ssl.create_default_context())
        made = Path(target.certificate)
    assert not made.exists()


async def test_a_certificate_that_is_named_is_used_without_being_told_to() -> None:
    async with (
        TargetServer(TargetOptions(tls=True)) as maker,
        TargetServer(TargetOptions(cert=maker.certificate)) as target,
    ):
        assert target.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=maker.certificate)
        async with Talk(target, tls=trusting) as talk:
            assert (await talk.get("/"))[0] == 200


async def test_without_openssl_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match="needs the program openssl.*name a certificate"):
        async with TargetServer(TargetOptions(tls=True)):
            pass


async def test_openssl_ends_with_a_target_that_is_cancelled_while_it_opens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    openssl = tmp_path / "openssl"
    openssl.write_text(f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600\n")
    openssl.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    opening = asyncio.ensure_future(TargetServer(TargetOptions(tls=True)).__aenter__())
    while not pid.exists():
        await asyncio.sleep(0.01)

    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.slow
def test_a_process_of_its_own_tells_its_address_and_in_the_end_its_counts() -> None:
    command = [sys.executable, "-m", "mainstay", "load", "target", "--port=0", "--latency=1ms", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = msgspec.json.decode(child.stdout.readline())
        with socket.create_connection(("127.0.0.1", told["port"])) as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert line.recv(100).startswith(b"HTTP/1.1 200")
        child.send_signal(signal.SIGTERM)
        assert msgspec.json.decode(child.stdout.readline())["completed"] == 1
        assert child.wait(60) == 0
