"""How connections come to be: TLS, proxies, unix sockets, names, and what is in the way."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import resource
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mainstay.errors import CallFailed, InvalidInput
from mainstay.load.clients.http import HTTPClient
from mainstay.load.clients.http.connect import _bad_tls
from mainstay.load.clients.network import Address, Network, Timeouts, Tls
from mainstay.load.prepared import URL, split
from mainstay.load.target.certificate import self_signed
from tests.load.clients.http.scripted import OK, Heard, Talk, serving


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that signs itself, with its key in the same file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*made, *names, "-keyout", str(path), "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def server_tls(certificate: Path, *, wants_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificate)
    return context


@contextlib.asynccontextmanager
async def client(**settings):
    http = HTTPClient(Network(**settings))
    try:
        yield http
    finally:
        await http.close()


async def test_https_is_verified_and_its_handshake_is_measured(certificate: Path) -> None:
    async with serving(OK, tls=server_tls(certificate)) as server, client(tls=Tls(ca=str(certificate))) as http:
        first = await http.get(f"https://localhost:{server.port}/")
        second = await http.post(f"https://localhost:{server.port}/", data=bytes(3_000_000))

    assert first.content == second.content == b"ok"
    assert first.opening is not None
    assert first.opening.tls > 0
    assert second.opening is None
    assert (server.connections, len(server.heard[1].body)) == (1, 3_000_000)


async def test_a_large_answer_over_tls_arrives_in_full(certificate: Path) -> None:
    body = bytes(range(256)) * 8000
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    async with serving(whole, tls=server_tls(certificate)) as server, client(tls=Tls(ca=str(certificate))) as http:
        for _ in range(3):
            assert (await http.get(server.url)).content == body
        assert await (await http.get(server.url, stream=True)).read() == body

    assert server.connections == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_user_resumes_its_own_tls_session_and_no_other_does(certificate: Path, version) -> None:
    resumed: list[tuple[str, bool]] = []

    async def answer(heard: Heard, talk: Talk) -> bytes:
        resumed.append((heard.path, talk.writer.get_extra_info("ssl_object").session_reused))
        return b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

    network = Network(tls=Tls(ca=str(certificate)))
    tls = server_tls(certificate)
    tls.minimum_version = tls.maximum_version = version
    async with serving(answer, tls=tls) as server:
        ann, bob = HTTPClient(network), HTTPClient(network)
        for _ in range(3):
            await ann.get(f"{server.url}/ann")
            await bob.get(f"{server.url}/bob")
        await ann.close()
        await bob.close()
        eve = HTTPClient(network)
        await eve.get(f"{server.url}/eve")
        await eve.close()

    assert resumed == [
        *[("/ann", False), ("/bob", False), ("/ann", True), ("/bob", True), ("/ann", True), ("/bob", True)],
        ("/eve", False),
    ]


async def test_a_second_connection_of_a_user_resumes_the_session_of_its_first(certificate: Path) -> None:
    resumed: dict[str, bool] = {}
    both = asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> bytes:
        resumed[heard.path] = talk.writer.get_extra_info("ssl_object").session_reused
        if heard.path == "/second":
            both.set()
        elif heard.path == "/slow":
            await both.wait()
        return OK

    async with serving(answer, tls=server_tls(certificate)) as server, client(tls=Tls(ca=str(certificate))) as http:
        await http.get(f"{server.url}/first")
        await asyncio.gather(http.get(f"{server.url}/slow"), http.get(f"{server.url}/second"))

    assert resumed == {"/first": False, "/slow": False, "/second": True}
    assert server.connections == 2


async def test_users_that_stay_connected_hold_no_tls_sessions_beside_their_connections(certificate: Path) -> None:
    async with serving(OK, tls=server_tls(certificate)) as server, client(tls=Tls(ca=str(certificate))) as http:
        await http.get(server.url)
        (pool,) = http._pools.values()

        assert pool.tls is None


async def test_a_certificate_that_is_not_trusted_ends_the_call(certificate: Path) -> None:
    async with serving(OK, tls=server_tls(certificate)) as server, client() as http:
        with pytest.raises(
            CallFailed, match=r"not trusted .*self-signed.*--ca.*--insecure.*LoadOptions\(ca="
        ) as failed:
            await http.get(server.url)
        assert http._network.sent == 0

    assert failed.value.kind == "tls"


async def test_a_certificate_for_another_host_is_not_trusted(certificate: Path) -> None:
    async def here(host: str, port: int, kind: int) -> list[Address]:
        return [Address(socket.AF_INET, ("127.0.0.1", port))]

    async with (
        serving(OK, tls=server_tls(certificate)) as server,
        client(tls=Tls(ca=str(certificate)), lookup=here) as http,
    ):
        with pytest.raises(CallFailed, match="mismatch.*a name that its certificate has") as failed:
            await http.get(f"https://other.example:{server.port}/")

    assert failed.value.kind == "tls"
    assert "--ca" not in str(failed.value)


@pytest.mark.parametrize(("code", "says"), [(9, "renew it"), (10, "renew it"), (62, "call the server by a name")])
async def test_a_certificate_that_another_authority_cannot_mend_is_not_told_to_name_one(code: int, says: str) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = code, "certificate has expired"

    told = str(_bad_tls(Network(), split("https://shop.test/"), error))

    assert says in told
    assert "--ca" not in told


async def test_an_authority_that_did_not_sign_the_certificate_is_named(certificate: Path, tmp_path: Path) -> None:
    other = await self_signed(tmp_path, "127.0.0.1")
    async with serving(OK, tls=server_tls(certificate)) as server, client(tls=Tls(ca=str(other))) as http:
        with pytest.raises(CallFailed, match=f"its authority is not in {other}; name its authority with --ca"):
            await http.get(server.url)


async def test_verification_can_be_switched_off(certificate: Path) -> None:
    async with serving(OK, tls=server_tls(certificate)) as server, client(tls=Tls(verify=False)) as http:
        assert (await http.get(server.url)).ok


async def test_a_client_shows_its_certificate(certificate: Path) -> None:
    tls = server_tls(certificate, wants_certificate=True)
    async with serving(OK, tls=tls) as server:
        async with client(tls=Tls(ca=str(certificate), cert=str(certificate))) as http:
            assert (await http.get(server.url)).ok
        async with client(tls=Tls(ca=str(certificate))) as http:
            with pytest.raises(CallFailed) as failed:
                await http.get(server.url)

    # with TLS 1.3 the server says no only after the client's side of the handshake is over
    assert failed.value.kind in ("tls", "closed")


async def test_a_server_without_tls_is_named() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with client() as http:
        with pytest.raises(CallFailed, match=f"TLS handshake with 127.0.0.1:{port}") as failed:
            await http.get(f"https://127.0.0.1:{port}/")
    listening.close()
    assert failed.value.kind == "tls"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ca": "none.pem"}, "ca: .*none.pem cannot be read"),
        ({"cert": "none.pem"}, "cert: .*none.pem cannot be read"),
        ({"cert": "both.pem", "key": "none.pem"}, "key: .*none.pem cannot be read"),
        ({"key": "both.pem"}, "key: a key needs its certificate; name the file with --cert"),
        ({"ca": "text.pem"}, "ca: .*text.pem cannot be used"),
        ({"cert": "text.pem"}, "cert: .*text.pem cannot be used"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_before_any_call(
    certificate: Path, given: dict[str, str], said: str
) -> None:
    certificate.with_name("text.pem").write_text("no certificate")

    with pytest.raises(InvalidInput, match=said):
        Network(tls=Tls(**{name: str(certificate.with_name(file)) for name, file in given.items()}))


@pytest.mark.parametrize("limit", ["5s", 0, -1.0, float("nan")])
def test_a_limit_of_a_phase_that_is_no_time_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidInput, match=r"timeout\.connect: .* is not a number of seconds above 0"):
        Timeouts(connect=limit)


async def test_a_unix_socket_is_called_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    url = f"http+unix://{str(path).replace('/', '%2F')}/x?y=1"
    async with serving(OK, unix=str(path)) as server, client() as http:
        r = await http.get(url)
        await http.get(URL(url))

    assert (r.content, r.url, server.connections) == (b"ok", url, 1)
    assert (server.heard[0].path, server.heard[0].headers["host"]) == ("/x?y=1", "localhost")


async def test_what_refuses_or_does_not_resolve_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with client() as http:
            with pytest.raises(CallFailed, match=f"127.0.0.1:{port} refused") as refused:
                await http.get(f"http://127.0.0.1:{port}/")
            with pytest.raises(CallFailed, match="/none.sock") as missing:
                await http.get("http+unix://%2Fnone.sock/")
            assert (http._network.sent, http._network.aborted) == (0, 0)

    async def nowhere(host: str, port: int, kind: int) -> list[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with client(lookup=nowhere) as http:
        with pytest.raises(CallFailed, match=r"none.example cannot be resolved \(Name") as unknown:
            await http.get("http://none.example/")

    assert (refused.value.kind, missing.value.kind, unknown.value.kind) == ("refused", "connect", "dns")


async def test_a_host_is_looked_up_once_and_the_address_that_answers_is_remembered() -> None:
    asked, tried = [], []

    async def two(host: str, port: int, kind: int) -> list[Address]:
        asked.append(host)
        return [Address(socket.AF_INET, ("127.0.0.1", refusing)), Address(socket.AF_INET, ("127.0.0.1", port))]

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        refusing = taken.getsockname()[1]
        network = Network(lookup=two)
        async with serving(OK) as server:
            for _ in range(2):
                http = HTTPClient(network)
                r = await http.get(f"http://app.example:{server.port}/")
                tried.append((await network.resolve("app.example", server.port)).sockaddr)
                await http.close()

    assert asked == ["app.example"]
    assert tried == [("127.0.0.1", server.port)] * 2
    assert r.opening is not None


async def test_the_time_to_look_up_the_host_is_told() -> None:
    async def slowly(host: str, port: int, kind: int) -> list[Address]:
        await asyncio.sleep(0.02)
        return [Address(socket.AF_INET, ("127.0.0.1", port))]

    async with serving(OK) as server, client(lookup=slowly) as http:
        r = await http.get(f"http://app.example:{server.port}/")

    assert r.opening is not None
    assert r.opening.dns >= 0.015


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_an_address_is_not_looked_up_and_takes_no_time_for_it(host: str) -> None:
    async def never(host: str, port: int, kind: int) -> list[Address]:
        raise AssertionError(host)

    async with client(lookup=never) as http:
        with pytest.raises(CallFailed, match="refused the connection"):
            await http.get(f"http://{host}:1/")
    async with serving(OK) as server, client(lookup=never) as http:
        r = await http.get(server.url)

    assert r.opening is not None
    assert r.opening.dns == 0


async def test_no_connection_in_time_is_a_connect_timeout() -> None:
    # a listener that takes none, with its queue full
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        async with client(timeouts=Timeouts(connect=0.05)) as http:
            with pytest.raises(CallFailed, match="no connection was opened within 0.05 s") as failed:
                await http.get(f"http://127.0.0.1:{port}/")
        for filler in fillers:
            filler.close()

    assert failed.value.kind == "connect timeout"


async def test_no_file_descriptors_left_is_named_and_how_to_get_more() -> None:
    async with serving(OK) as server, client() as http:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        probe = socket.socket()
        lowest = probe.fileno()
        probe.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            with pytest.raises(CallFailed, match="ulimit -n") as failed:
                await http.get(server.url)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (await http.get(server.url)).ok

    assert failed.value.kind == "files"


async def test_users_that_start_at_once_look_the_host_up_once() -> None:
    asked, go = [], asyncio.Event()

    async def lookup(host: str, port: int, kind: int) -> list[Address]:
        asked.append(host)
        await go.wait()
        return [Address(socket.AF_INET, ("127.0.0.1", port))]

    network = Network(lookup=lookup)
    clients = [HTTPClient(network) for _ in range(5)]
    async with serving(OK) as server:
        calls = [http.get(f"http://app.example:{server.port}/") for http in clients]
        given_up = calls.pop()
        while not asked:
            await asyncio.sleep(0)
        given_up.cancel()
        go.set()
        answers = await asyncio.gather(*calls)
        for http in clients:
            await http.close()

    assert asked == ["app.example"]
    assert [r.status for r in answers] == [200] * 4
    assert (network.sent, network.aborted) == (4, 0)


class Proxy:
    """Passes on what it is told to, and remembers what that was."""

    def __init__(self, target: int, answer: bytes = b"HTTP/1.1 200 Connected\r\n\r\n") -> None:
        self.target = target
        self.answer = answer
        self.heard: list[bytes] = []
        self.tasks: set[asyncio.Task] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        with contextlib.suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heard.append(head)
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
            if head.startswith(b"CONNECT"):
                writer.write(self.answer)
            else:
                back.write(head)
            await asyncio.gather(_pass(reader, back), _pass(there, writer))
        writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def proxying(proxy: Proxy):
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for task in proxy.tasks:
            task.cancel()
        await asyncio.gather(*proxy.tasks)


async def test_a_proxy_is_asked_with_the_whole_url_and_told_who_we_are() -> None:
    async with (
        serving(OK) as server,
        proxying(Proxy(server.port)) as port,
        client(proxy=f"http://ann:s3cret@127.0.0.1:{port}") as http,
    ):
        # the proxy looks up the host, so that it need not be known here
        url = URL("http://none.example:81/x")
        await url.prepare(http._network)
        assert (await http.get(url)).ok
        assert (await http.post(url, json=1)).ok

    first = server.heard[0]
    assert first.line == "GET http://none.example:81/x HTTP/1.1"
    assert first.headers["host"] == "none.example:81"
    assert first.headers["proxy-authorization"] == f"Basic {base64.b64encode(b'ann:s3cret').decode()}"
    assert server.connections == 1


async def test_https_goes_through_a_proxy_unread(certificate: Path) -> None:
    async with serving(OK, tls=server_tls(certificate)) as server:
        proxy = Proxy(server.port)
        async with (
            proxying(proxy) as port,
            client(proxy=f"http://ann:pw@127.0.0.1:{port}", tls=Tls(ca=str(certificate))) as http,
        ):
            r = await http.get("https://localhost:444/x", auth="token")

    assert r.ok
    assert proxy.heard[0].startswith(b"CONNECT localhost:444 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic" in proxy.heard[0]
    assert b"token" not in proxy.heard[0]
    assert server.heard[0].line == "GET /x HTTP/1.1"
    assert "proxy-authorization" not in server.heard[0].headers


async def test_a_proxy_that_refuses_is_named_without_its_password() -> None:
    refuses = b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n"
    async with (
        serving(OK) as server,
        proxying(Proxy(server.port, refuses)) as port,
        client(proxy=f"http://ann:s3cret@127.0.0.1:{port}") as http,
    ):
        with pytest.raises(CallFailed, match="407 Who are you") as failed:
            await http.get("https://localhost:444/x")

    assert failed.value.kind == "proxy"
    assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize("url", ["http://localhost:444/x", "https://localhost:444/x"])
async def test_a_proxy_that_is_not_there_is_told_as_that(url: str) -> None:
    async with client(proxy="http://ann:s3cret@127.0.0.1:1") as http:
        with pytest.raises(CallFailed, match="the proxy cannot be reached: 127.0.0.1:1 refused") as failed:
            await http.get(url)

    assert failed.value.kind == "proxy"
    assert "s3cret" not in str(failed.value)


async def test_a_proxy_that_hangs_up_is_named() -> None:
    async with (
        serving(OK) as server,
        proxying(Proxy(server.port, b"")) as port,
        client(proxy=f"http://127.0.0.1:{port}", timeouts=Timeouts(connect=0.05)) as http,
    ):
        with pytest.raises(CallFailed) as silent:
            await http.get("https://localhost:444/x")
    async with serving(lambda heard, talk: asyncio.sleep(0)) as closing, client(proxy=closing.url) as http:
        with pytest.raises(CallFailed, match="did not answer CONNECT") as closed:
            await http.get("https://localhost:444/x")

    assert (silent.value.kind, closed.value.kind) == ("connect timeout", "proxy")


@pytest.mark.parametrize("proxy", ["socks5://u:s3cret@h:1", "127.0.0.1:8080", "http://u:s3cret@:x"])
async def test_what_is_no_proxy_is_refused_without_its_password(proxy: str) -> None:
    with pytest.raises(InvalidInput, match="proxy") as refused:
        HTTPClient(Network(proxy=proxy))

    assert "s3cret" not in str(refused.value)
