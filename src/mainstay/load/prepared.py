"""The parts of a call, encoded and resolved once, before the load starts: `URL`, `Headers`, `Data`, `Params`,
`Cookies`, `Auth`, `File`.

Each refuses values that cannot be sent, and names them. `prepare` does all the work, so that a call has none left. They
are immutable, and any number of virtual users may share them.
"""

from __future__ import annotations

import base64
import functools
import mimetypes
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from ..errors import InvalidInput
from ..storage import shown_url
from .clients.network import Network

_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443, "http+unix": 0, "tcp": 0, "tls": 0, "udp": 0}
_SECURE = frozenset({"https", "wss", "tls"})
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_LINE_BREAK = re.compile(r"[\r\n\x00]")
#: characters of a path or query that are not quoted; "%" because quoted ones stay as they are
_AS_IS = "/?:@!$&'()*+,;=%~[]|"


class URLParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a URL."""

    scheme: str
    host: str
    port: int
    target: bytes
    """path and query, as in a request line"""
    origin: str
    """scheme, host and port: the key of a connection"""
    authority: bytes
    """host and port, as in a Host header: without a default port"""
    path: str
    secure: bool
    unix: str | None = None
    """path of the socket"""
    auth: bytes | None = None
    """value of the Authorization header, if the URL has a user"""
    shown: str
    """without its secrets, for messages"""

    @property
    def full(self) -> str:
        """The URL itself, without user and fragment."""
        return f"{self.origin}{self.target.decode()}"


@functools.lru_cache(maxsize=4096)
def split(url: str) -> URLParts:
    """Split a URL; raises `InvalidInput`. The last few thousand are cached.

    >>> split("http://127.0.0.1:8080/a?b=c").target
    b'/a?b=c'
    """
    shown = shown_url(url)
    if _CONTROL.search(url):
        raise InvalidInput("url", f"{shown!r} contains a space or a control character; quote it, like %20")
    try:
        pieces = urlsplit(url)
        port = pieces.port
    except ValueError as error:
        raise InvalidInput("url", f"{shown!r} is not a URL ({error})") from None
    scheme = pieces.scheme
    if scheme not in _PORTS:
        known = ", ".join(_PORTS)
        raise InvalidInput("url", f"{shown!r} has no known scheme; write it like http://host/path ({known})")
    host = pieces.hostname or ""
    unix = None
    if scheme == "http+unix":
        unix, host = unquote(pieces.netloc), "localhost"
        if not unix.startswith("/"):
            raise InvalidInput("url", f"{shown!r} names no socket; write it like http+unix://%2Frun%2Fapp.sock/path")
    elif not host:
        raise InvalidInput("url", f"{shown!r} has no host; write it like {scheme}://host/path")
    elif port is None:
        port = _PORTS[scheme]
        if not port:
            raise InvalidInput("url", f"{shown!r} has no port; write it like {scheme}://host:9000")
    host = _ascii(host, shown)
    named = f"[{host}]" if ":" in host else host
    path = quote(pieces.path or "/", safe=_AS_IS)
    target = f"{path}?{quote(pieces.query, safe=_AS_IS)}" if pieces.query else path
    return URLParts(
        scheme=scheme,
        host=host,
        port=port or 0,
        target=target.encode(),
        origin=f"{scheme}://{pieces.netloc}" if unix else f"{scheme}://{named}:{port}",
        authority=(named if unix or port == _PORTS[scheme] else f"{named}:{port}").encode(),
        path=path,
        secure=scheme in _SECURE,
        unix=unix,
        auth=_basic(unquote(pieces.username or ""), unquote(pieces.password or "")) if pieces.username else None,
        shown=shown,
    )


def _ascii(host: str, shown: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        raise InvalidInput("url", f"{shown!r} has an invalid host name") from None


def _basic(user: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


def joined(url: str, base_url: str) -> str:
    """The absolute URL: a path is appended to `base_url`.

    >>> joined("/login", "http://127.0.0.1:8080/api")
    'http://127.0.0.1:8080/api/login'
    """
    if "://" in url:
        return url
    if not base_url:
        raise InvalidInput(
            "url", f"{shown_url(url)!r} has no scheme and host, and no base_url is set; write http://host/path"
        )
    return f"{base_url.rstrip('/')}/{url.lstrip('/')}"


class Prepared:
    """Base of the prepared types."""

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        """Each type documents the values it takes."""

    async def prepare(self, network: Network, base_url: str = "") -> None:
        """Read files and resolve hosts. A second call does nothing."""


class URL(str, Prepared):
    """The URL of a call. A string, so that f-strings and `+` work; split and resolved once.

    `http`, `https`, `ws`, `wss`, `tcp`, `tls`, `udp`, and `http+unix://%2Frun%2Fapp.sock/path` for a unix socket.

    >>> f"{URL('http://127.0.0.1:8080')}/login"
    'http://127.0.0.1:8080/login'
    """

    __slots__ = ("_whole",)

    _whole: str

    @property
    def whole(self) -> str:
        """With its base URL, once prepared; else as written."""
        try:
            return self._whole
        except AttributeError:
            return str(self)

    @property
    def parts(self) -> URLParts:
        return split(self.whole)

    async def prepare(self, network: Network, base_url: str = "") -> None:
        self._whole = joined(self.whole, base_url)
        parts = split(self._whole)
        if parts.unix is None and network.proxy is None:
            kind = socket.SOCK_DGRAM if parts.scheme == "udp" else socket.SOCK_STREAM
            await network.resolve(parts.host, parts.port, kind)


class Headers(Prepared):
    """Header lines of a request.

    >>> Headers({"X-Tenant": "blue"}).block
    b'X-Tenant: blue\\r\\n'
    """

    __slots__ = ("block", "names", "value")

    def __init__(self, value: Mapping[str, str] | Headers) -> None:
        given = value.value if isinstance(value, Headers) else value
        self.value: dict[str, str] = dict(given)
        self.names = frozenset(name.lower() for name in self.value)
        """in lower case"""
        self.block = b"".join(header_line(name, text) for name, text in self.value.items())

    def __repr__(self) -> str:
        return f"Headers({', '.join(self.value)})"


def header_line(name: str, value: str) -> bytes:
    """One header line; raises `InvalidInput` for values that would break the head."""
    text = str(value)
    if not _TOKEN.fullmatch(name):
        raise InvalidInput(f"header {name!r}", "is not a valid header name; use letters, digits and hyphens")
    if _LINE_BREAK.search(text):
        raise InvalidInput(f"header {name!r}", "its value contains a line break; a header is one line")
    try:
        return f"{name}: {text}\r\n".encode("latin-1")
    except UnicodeEncodeError:
        raise InvalidInput(f"header {name!r}", "its value has characters beyond Latin-1; quote or encode it") from None


class Params(Prepared):
    """The query of a URL: a mapping (a list as a value repeats the name), pairs, or text.

    >>> Params({"page": 2, "tag": ["a", "b"]}).query
    'page=2&tag=a&tag=b'
    """

    __slots__ = ("query", "value")

    def __init__(self, value: Mapping[str, Any] | Iterable[tuple[str, Any]] | str | Params) -> None:
        self.value: Mapping[str, Any] | Iterable[tuple[str, Any]] | str
        self.value = value.value if isinstance(value, Params) else value
        if isinstance(self.value, str):
            self.query = quote(self.value.removeprefix("?"), safe=_AS_IS)
        else:
            pairs = self.value.items() if isinstance(self.value, Mapping) else self.value
            self.query = urlencode([(name, _plain(each)) for name, each in pairs if each is not None], doseq=True)

    def __repr__(self) -> str:
        return f"Params({self.query!r})"


def _plain(value: Any) -> Any:
    """Booleans as other programs write them: true instead of True."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


class Cookies(Prepared):
    """Cookies of a call, in addition to those that servers have set for the user.

    >>> Cookies({"theme": "dark", "lang": "de"}).text
    'theme=dark; lang=de'
    """

    __slots__ = ("text", "value")

    def __init__(self, value: Mapping[str, str] | Cookies) -> None:
        self.value: dict[str, str] = dict(value.value if isinstance(value, Cookies) else value)
        for name, text in self.value.items():
            if not _TOKEN.fullmatch(name):
                raise InvalidInput(f"cookie {name!r}", "is not a valid cookie name; use letters, digits, hyphens")
            if _LINE_BREAK.search(str(text)) or ";" in str(text):
                raise InvalidInput(f"cookie {name!r}", "its value contains a line break or a semicolon; quote it")
        self.text = "; ".join(f"{name}={text}" for name, text in self.value.items())

    def __repr__(self) -> str:
        return f"Cookies({', '.join(self.value)})"


class Auth(Prepared):
    """Credentials: `("user", "password")` for Basic, `"token"` for Bearer. Never shown.

    >>> Auth("abc").line
    b'Authorization: Bearer abc\\r\\n'
    """

    __slots__ = ("line",)

    def __init__(self, value: tuple[str, str] | list[str] | str | Auth) -> None:
        self.line: bytes
        if isinstance(value, Auth):
            self.line = value.line
        elif isinstance(value, str):
            self.line = header_line("Authorization", f"Bearer {value}")
        elif isinstance(value, tuple | list) and len(value) == 2:
            self.line = header_line("Authorization", _basic(*value).decode())
        else:
            raise InvalidInput("auth", 'write ("user", "password") for Basic, or "token" for Bearer')

    def __repr__(self) -> str:
        return "Auth(***)"


class Data(Prepared):
    """The body of a request: bytes and text unchanged; other values as JSON.

    >>> Data({"user": "ann"}).body, Data({"user": "ann"}).content_type
    (b'{"user":"ann"}', 'application/json')
    """

    __slots__ = ("body", "content_type", "value")

    def __init__(self, value: Any, *, content_type: str | None = None) -> None:
        self.value: Any
        self.body: bytes
        self.content_type: str
        """empty: no header is sent"""
        if isinstance(value, Data):
            self.value, self.body, self.content_type = value.value, value.body, value.content_type
            return
        self.value = value
        if isinstance(value, bytes | bytearray | memoryview):
            self.body, kind = bytes(value), ""
        elif isinstance(value, str):
            self.body, kind = value.encode(), "text/plain; charset=utf-8"
        else:
            self.body, kind = json_bytes(value), "application/json"
        self.content_type = kind if content_type is None else content_type

    def __repr__(self) -> str:
        return f"Data({len(self.body)} bytes)"


def json_bytes(value: Any) -> bytes:
    """Data as JSON."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput("json", f"the value cannot be encoded as JSON ({error})") from None


class File(Prepared):
    """A file to send, as a body or in `files`; read once."""

    __slots__ = ("_body", "content_type", "name", "path")

    def __init__(self, path: str | Path | File, *, content_type: str | None = None) -> None:
        self.path: Path = path.path if isinstance(path, File) else Path(path)
        self.name = self.path.name
        self.content_type = content_type or mimetypes.guess_type(self.name)[0] or "application/octet-stream"
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        if self._body is None:
            try:
                self._body = self.path.read_bytes()
            except OSError as error:
                reason = error.strerror or str(error)
                raise InvalidInput("file", f"{self.path} cannot be read ({reason}); check the path") from None
        return self._body

    async def prepare(self, network: Network, base_url: str = "") -> None:  # noqa: ARG002 - the signature of all prepared types
        _ = self.body

    def __repr__(self) -> str:
        return f"File({str(self.path)!r})"
