"""A versioned store in a bucket of NATS JetStream's key-value store.

The version is the revision, a position in the bucket's stream that is never reused. Keys are subjects: `/` and `.` are
exchanged, because dots separate the parts of a subject. A delete writes a mark under the same condition, as the
key-value store does it; `nats kv` sees the same keys and values.

Every write carries an id, by which the server recognizes a repeated one (within two minutes), and by which we do. Reads
go to the stream's leader. A list reads the names, and the headers, of all keys below the complete parts of the prefix.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.kv import KV_DEL, KV_OP, KV_PURGE, KeyValue

from ...errors import InvalidInput, PayloadTooLarge, StoreClosed, StoreDenied, StoreError, StoreUnavailable
from ...storage import check_key, check_options, duration_of, is_on, number_of, options_in, shown_url
from .idempotent_write import read_again, write_once
from .input_check import check_listing, check_value, check_version, new_version
from .port import Versioned

T = TypeVar("T")

_OPTIONS = ("connect_timeout", "credentials", "replicas", "timeout", "tls", "tries")
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")
_REVISION = re.compile(r"[1-9][0-9]{0,18}")
_SWAPPED = str.maketrans("/.", "./")
_WRONG_SEQUENCE = (10071, 10164)
_NO_STREAM = 10059
#: bytes of the server's limit that are kept free for headers
_HEADERS = 512
#: concurrent requests of a list that has to read keys one by one
_AT_ONCE = 64
_DELETED = (KV_DEL, KV_PURGE)


async def open_nats(url: str, *, options: dict[str, str]) -> NatsVersioned:
    """Open `nats://host:port/bucket`, or `nats://host/bucket/prefix`.

    Options: `connect_timeout`, `timeout`, `tries`, `tls=on`, `credentials` (a file). User and password, or a token, go
    before the host.
    """
    bucket, prefix = _names(url, options)
    tries = number_of(options, "tries", 4, least=1, most=20)
    timeout_s = duration_of(options, "timeout", "5s")
    client = await _connect(url, options)
    try:
        stream = client.jetstream(timeout=timeout_s)
        values = await _translated(lambda: stream.key_value(bucket), shown_url(url))
    except BaseException:
        await client.close()
        raise
    return NatsVersioned(client, stream, values, bucket, prefix, shown_url(url), timeout_s=timeout_s, tries=tries)


async def prepare(url: str) -> list[str]:
    """Create the bucket of a URL if it does not exist. Returns what was done."""
    options = options_in(url)
    bucket, _ = _names(url, options)
    replicas = number_of(options, "replicas", 1, least=1, most=5)
    client = await _connect(url, options)
    try:
        stream = client.jetstream(timeout=duration_of(options, "timeout", "5s"))
        try:
            await _translated(lambda: stream.key_value(bucket), shown_url(url))
        except NoKeyValueBucket:
            await _translated(
                lambda: stream.create_key_value(api.KeyValueConfig(bucket=bucket, history=1, replicas=replicas)),
                shown_url(url),
            )
            return [f"created the bucket {bucket}"]
    finally:
        await client.close()
    return []


class _State(msgspec.Struct):
    subjects: dict[str, int] | None = None


class _Info(msgspec.Struct):
    """The fields that we use of the server's description of a stream."""

    state: _State | None = None
    total: int = 0
    error: dict[str, Any] | None = None


class NoKeyValueBucket(StoreError):
    """The bucket does not exist."""


class NatsVersioned:
    """See the module's docstring."""

    def __init__(
        self,
        client: Client,
        stream: JetStreamContext,
        values: KeyValue,
        bucket: str,
        prefix: str,
        place: str,
        *,
        timeout_s: float,
        tries: int,
    ) -> None:
        self._client = client
        self._stream = stream
        self._values = values
        self._name = f"KV_{bucket}"
        self._subject = f"$KV.{bucket}."
        self._root = f"{prefix}/" if prefix else ""
        self._place = place
        self._timeout_s = timeout_s
        self._tries = tries

    @property
    def place(self) -> str:
        return self._place

    async def get(self, key: str) -> Versioned | None:
        self._check_open()
        last = await self._last(check_key(key))
        if last is None or _is_deleted(last):
            return None
        return Versioned(last.data or b"", str(last.seq))

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        self._check_open()
        check_key(key)
        self._check_size(value)
        if not _REVISION.fullmatch(check_version(version)):
            return None
        return await self._write(key, value, version)

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        self._check_open()
        check_key(key)
        self._check_size(value)
        for _ in range(self._tries):
            if version := await self._write(key, value, "0"):
                return version
            last = await self._last(key)
            if last is None:
                continue
            if not _is_deleted(last):
                return None
            if version := await self._write(key, value, str(last.seq)):
                return version
        raise StoreUnavailable(f"{key} in {self._place} is created and deleted by others all the time; try again")

    async def delete(self, key: str, version: str) -> bool:
        self._check_open()
        check_key(key)
        if not _REVISION.fullmatch(check_version(version)):
            return False
        last = await self._last(key)
        # the mark of a delete has a revision, too
        if last is None or str(last.seq) != version or _is_deleted(last):
            return False
        return await self._write(key, b"", version, {KV_OP: KV_DEL}) is not None

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        self._check_open()
        check_listing(prefix, after, limit)
        pattern = (self._root + prefix[: prefix.rfind("/") + 1]).translate(_SWAPPED) + ">"
        names = await self._call(lambda: self._subjects(pattern))
        keys = sorted(name.translate(_SWAPPED).removeprefix(self._root) for name in names)
        wanted = [key for key in keys if key.startswith(prefix) and key > after]
        deleted = await self._call(lambda: self._deleted_keys(pattern)) if wanted else {}
        # the headers may end early while keys change; the missing keys are read one by one
        unseen = [key for key in wanted if key not in deleted]
        for start in range(0, len(unseen), _AT_ONCE):
            some = unseen[start : start + _AT_ONCE]
            for key, last in zip(some, await asyncio.gather(*map(self._last, some)), strict=True):
                deleted[key] = last is None or _is_deleted(last)
        return [key for key in wanted if not deleted[key]][:limit]

    async def close(self) -> None:
        await self._client.close()

    def _check_open(self) -> None:
        if self._client.is_closed:
            raise StoreClosed(f"{self._place} was closed; open it again")

    def _check_size(self, value: bytes) -> None:
        most = self._client.max_payload - _HEADERS
        if len(check_value(value)) > most:
            raise PayloadTooLarge(
                "value", f"{len(value)} bytes are more than this server takes ({most}); raise its max_payload"
            )

    async def _subjects(self, pattern: str) -> list[str]:
        """All names at one moment, deleted ones included."""
        names: list[str] = []
        while True:
            request = msgspec.json.encode({"subjects_filter": self._subject + pattern, "offset": len(names)})
            response = await self._client.request(f"$JS.API.STREAM.INFO.{self._name}", request, timeout=self._timeout_s)
            info = msgspec.json.decode(response.data, type=_Info)
            if info.error:
                raise nats.js.errors.APIError.from_error(msgspec.to_builtins(info.error))
            page = info.state.subjects if info.state else None
            names += [subject.removeprefix(self._subject) for subject in page or ()]
            if not page or len(names) >= info.total:
                return names

    async def _deleted_keys(self, pattern: str) -> dict[str, bool]:
        """Whether each key is deleted; reads no values."""
        watcher: Any = await self._values.watch(pattern, meta_only=True)
        deleted: dict[str, bool] = {}
        try:
            while (entry := await watcher.updates(timeout=self._timeout_s)) is not None:
                deleted[entry.key.translate(_SWAPPED).removeprefix(self._root)] = entry.operation in _DELETED
        finally:
            await watcher.stop()
        return deleted

    async def _last(self, key: str) -> api.RawStreamMsg | None:
        subject = self._subject + (self._root + key).translate(_SWAPPED)

        async def last() -> api.RawStreamMsg | None:
            try:
                return await self._stream.get_msg(self._name, subject=subject, direct=False)
            except nats.js.errors.NotFoundError as error:
                if error.err_code == _NO_STREAM:
                    raise
                return None

        return await read_again(lambda: self._call(last), tries=self._tries)

    async def _write(self, key: str, value: bytes, version: str, more: dict[str, str] | None = None) -> str | None:
        subject = self._subject + (self._root + key).translate(_SWAPPED)
        own = new_version()
        headers = {api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE: version, api.Header.MSG_ID: own, **(more or {})}

        async def publish() -> str | None:
            try:
                return str((await self._stream.publish(subject, value, headers=dict(headers))).seq)
            except nats.js.errors.APIError as error:
                if error.err_code in _WRONG_SEQUENCE:
                    return None
                raise

        async def mine() -> str | None:
            last = await self._last(key)
            return str(last.seq) if last and (last.headers or {}).get(api.Header.MSG_ID) == own else None

        return await write_once(lambda: self._call(publish), mine, tries=self._tries, what=f"{key} in {self._place}")

    async def _call(self, request: Callable[[], Awaitable[T]]) -> T:
        if not self._client.is_connected:
            # the client would queue the request, and write long after we reported that nothing was written
            raise StoreUnavailable(f"{self._place}: the connection was lost, and is being restored; try again")
        return await _translated(request, self._place)


def _is_deleted(message: api.RawStreamMsg) -> bool:
    return (message.headers or {}).get(KV_OP) in _DELETED


def _names(url: str, options: dict[str, str]) -> tuple[str, str]:
    check_options(options, _OPTIONS)
    bucket, _, prefix = urlsplit(url).path.strip("/").partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidInput("store", f"write nats://host/bucket; {shown_url(url)!r} names no bucket")
    if prefix:
        check_key(prefix)
    return bucket, prefix


async def _connect(url: str, options: dict[str, str]) -> Client:
    parts = urlsplit(url)
    wait_s = duration_of(options, "connect_timeout", "5s")
    settings: dict[str, Any] = {}
    if parts.username and parts.password:
        settings = {"user": unquote(parts.username), "password": unquote(parts.password)}
    elif parts.username:
        settings = {"token": unquote(parts.username)}
    if "credentials" in options:
        settings["user_credentials"] = options["credentials"]
    scheme = "tls" if is_on(options, "tls") else "nats"
    client = Client()
    last_error: list[Exception] = []

    async def note(error: Exception) -> None:
        last_error[:] = [error]

    async def connect() -> None:
        await client.connect(
            f"{scheme}://{parts.hostname or 'localhost'}:{parts.port or 4222}",
            connect_timeout=max(1, round(wait_s)),
            reconnect_time_wait=0.1,  # type: ignore[arg-type]  # it sleeps for it
            max_reconnect_attempts=-1,
            error_cb=note,
            **settings,
        )

    try:
        async with asyncio.timeout(wait_s):
            await _translated(connect, shown_url(url))
    except BaseException as error:
        await client.close()
        if isinstance(error, TimeoutError):
            why = f" ({last_error[0]})" if last_error else ""
            raise StoreUnavailable(f"{shown_url(url)}: the server does not answer{why}; is it running?") from None
        raise
    return client


async def _translated(request: Callable[[], Awaitable[T]], place: str) -> T:
    """Send a request, and raise our own errors."""
    try:
        return await request()
    except (nats.js.errors.BucketNotFoundError, nats.js.errors.NoStreamResponseError) as error:
        raise _no_bucket(place) from error
    except (nats.js.errors.ServiceUnavailableError, nats.js.errors.ServerError) as error:
        raise StoreUnavailable(f"{place}: JetStream is not available now, or not enabled ({error})") from error
    except nats.js.errors.APIError as error:
        if error.err_code == _NO_STREAM:
            raise _no_bucket(place) from error
        raise StoreError(f"{place}: the server refuses it ({error.description})") from error
    except nats.errors.AuthorizationError as error:
        raise StoreDenied(
            f"{place}: the server denies it; the client must be allowed to publish on $KV.> and $JS.API.>, and to "
            "subscribe to _INBOX.>"
        ) from error
    except (nats.errors.Error, OSError) as error:
        why = str(error) or type(error).__name__
        raise StoreUnavailable(
            f"{place}: the server does not answer ({why}); the outcome of the request is unknown"
        ) from error


def _no_bucket(place: str) -> NoKeyValueBucket:
    return NoKeyValueBucket(f"{place}: there is no such bucket; create it first: mainstay store init {place}")
