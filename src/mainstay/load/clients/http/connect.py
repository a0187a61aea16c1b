"""Open a connection: resolve, connect, proxy, TLS. All on one non-blocking socket, which is then read and written
directly: with TLS that takes half the CPU time of a transport (measured: 41,000 calls per CPU-second instead of
21,000), and without TLS no more."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import time

from ....errors import CallFailed
from ...prepared import URLParts
from ...results import Opening
from ..network import Address, Network, is_address
from .heads import MOST, read_head

_now = time.perf_counter
OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})


async def open_socket(
    network: Network,
    parts: URLParts,
    *,
    proxy: URLParts | None,
    session: ssl.SSLSession | None,
    alpn: tuple[str, ...] = ("http/1.1",),
) -> tuple[socket.socket, Opening]:
    """A connected socket, and the times of its opening."""
    began = _now()
    place = proxy or parts
    if network.lease.is_over():
        await network.lease.wait()
    try:
        if place.unix is not None:
            addresses = [Address(socket.AF_UNIX, place.unix)]
        else:
            addresses = await network.addresses(place.host, place.port)
        looked_up = place.unix is None and not is_address(place.host)
        found = _now() if looked_up else began
        sock = await _connected(addresses, place)
    except CallFailed as error:
        if proxy is None or error.kind == "files":
            raise
        # the target was not reached at all
        raise CallFailed("proxy", f"the proxy cannot be reached: {error}") from None
    try:
        if proxy is not None and parts.scheme != "http":
            await _through(sock, proxy, parts)
        there = _now()
        if parts.secure:
            sock = await _secured(network, sock, parts, session, alpn)
    except BaseException:
        sock.close()
        raise
    return sock, Opening(0.0, there - found, _now() - there if parts.secure else 0.0, found - began)


def out_of_files() -> CallFailed:
    return CallFailed(
        "files", "there is no free file descriptor for a connection; raise the limit (ulimit -n), or use fewer users"
    )


async def _connected(addresses: list[Address], place: URLParts) -> socket.socket:
    """Connect to the first address that answers, and prefer it from now on."""
    failed: OSError | None = None
    for address in addresses[:]:
        try:
            sock = await _connect(address)
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                raise out_of_files() from None
            failed = error
            continue
        if address is not addresses[0]:
            addresses.remove(address)
            addresses.insert(0, address)
        return sock
    assert failed is not None
    where = place.unix or f"{place.host}:{place.port}"
    if isinstance(failed, ConnectionRefusedError):
        raise CallFailed("refused", f"{where} refused the connection; is the server running?") from None
    reason = failed.strerror or str(failed)
    raise CallFailed("connect", f"cannot connect to {where} ({reason})") from None


async def _connect(address: Address) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if address.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, address.sockaddr)
    except BaseException:
        sock.close()
        raise
    return sock


async def _through(sock: socket.socket, proxy: URLParts, parts: URLParts) -> None:
    """Make the proxy open a tunnel to a server."""
    loop = asyncio.get_running_loop()
    host = f"[{parts.host}]" if ":" in parts.host else parts.host
    authority = f"{host}:{parts.port}".encode()
    request = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, proxy_line(proxy))
    answer = b""
    try:
        await loop.sock_sendall(sock, request)
        while b"\r\n\r\n" not in answer:
            # a server sends nothing before the client does, so these bytes are from the proxy only
            piece = await loop.sock_recv(sock, 4096)
            if not piece or len(answer) > MOST:
                raise ConnectionError("it closed the connection, or sent too much")
            answer += piece
    except OSError as error:
        reason = error.strerror or error
        raise CallFailed("proxy", f"the proxy {proxy.host}:{proxy.port} did not answer CONNECT ({reason})") from None
    head = read_head(answer.partition(b"\r\n\r\n")[0])
    if not 200 <= head.status < 300:
        raise CallFailed(
            "proxy",
            f"the proxy {proxy.host}:{proxy.port} refused to connect to {parts.host}: {head.status} {head.reason}",
        )


def proxy_line(proxy: URLParts) -> bytes:
    """The credentials for a proxy, as a header line."""
    return b"Proxy-Authorization: %b\r\n" % proxy.auth if proxy.auth else b""


async def _secured(
    network: Network, sock: socket.socket, parts: URLParts, session: ssl.SSLSession | None, alpn: tuple[str, ...]
) -> ssl.SSLSocket:
    context = network.tls_context(*alpn)
    try:
        # a session belongs to its context; if the server rejects it, there is a full handshake
        secured = context.wrap_socket(sock, server_hostname=parts.host, do_handshake_on_connect=False, session=session)
    except (ssl.SSLError, ValueError) as error:
        raise _bad_tls(network, parts, error) from None
    try:
        while True:
            try:
                secured.do_handshake()
            except ssl.SSLWantReadError:
                await _ready(secured, reading=True)
            except ssl.SSLWantWriteError:
                await _ready(secured, reading=False)
            else:
                return secured
    except OSError as error:
        secured.close()
        raise _bad_tls(network, parts, error) from None
    except BaseException:
        secured.close()
        raise


#: codes of OpenSSL: X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED
_OUT_OF_DATE = (9, 10)
#: X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH
_OTHER_HOST = (62, 64)


def _bad_tls(network: Network, parts: URLParts, error: Exception) -> CallFailed:
    where = f"{parts.host}:{parts.port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        off = "switch verification off with --insecure (in code: LoadOptions(verify=False))"
        what = f"the certificate of {where} is not trusted ({error.verify_message})"
        if error.verify_code in _OUT_OF_DATE:
            return CallFailed("tls", f"{what}; renew it on the server, check the clock of this machine, or {off}")
        if error.verify_code in _OTHER_HOST:
            return CallFailed("tls", f"{what}; call the server by a name that its certificate has, or {off}")
        known = f"its authority is not in {network.tls.ca}; " if network.tls.ca is not None else ""
        return CallFailed(
            "tls",
            f"{what}; {known}name its authority with --ca, or switch verification off with --insecure (in code: "
            "LoadOptions(ca=...), LoadOptions(verify=False))",
        )
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return CallFailed("tls", f"the TLS handshake with {where} failed ({reason})")


async def _ready(sock: socket.socket, *, reading: bool) -> None:
    """Wait until the socket can be read or written."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    add, remove = (loop.add_reader, loop.remove_reader) if reading else (loop.add_writer, loop.remove_writer)
    add(sock.fileno(), wake)
    try:
        await waiter
    finally:
        with contextlib.suppress(ValueError):
            remove(sock.fileno())
