"""The manager's side: answers requests for bundles from the blobs of the cluster.

A manager keeps packed copies of the files that it sends on its own disk, because blobs are read as a whole. A copy is
checked once, when it is made: a damaged blob is refused by its digest and is never sent. An upload keeps no state in
the manager: parts are blobs (`bundles/parts/PACKED/OFFSET`), so each part may go to another manager of the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from ...bus import Bus, BusMessage, Subscription
from ...clock import Clock, SystemClock
from ...errors import (
    BundleCorrupt,
    BundleMissing,
    BusError,
    InvalidInput,
    MainstayError,
    PayloadTooLarge,
    RoleRefused,
    StoreError,
    WrongCluster,
)
from ...outputs import Blobs
from ...stores.remote import check_versions, may_answer
from .manifest import MB, BundleLimits, check_digest, read_manifest
from .messages import (
    BUNDLE_PATTERN,
    PART_BYTES,
    BundleAnswer,
    BundlePart,
    BundleRequest,
    PartArguments,
    UploadArguments,
    UploadState,
    fault_of,
)
from .packed import file_digest, unpack_file
from .storage import bundle_address, check_packed, save_packed

T = TypeVar("T")

log = logging.getLogger("mainstay.cluster")

_GROUP = "managers"
_PUBLISHERS = frozenset({"operator", "manager"})
#: requests that are answered at a time: bounds the memory
_AT_ONCE = 4


class BundleService:
    """Answers `data.bundle.ROLE.NAME.METHOD` while it is entered (`async with`). Methods: `fetch` and `manifest` for
    every role, `publish` for operators and managers."""

    def __init__(
        self,
        blobs: Blobs,
        bus: Bus,
        *,
        name: str,
        cluster: str,
        environment: str,
        version: str | None = None,
        clock: Clock | None = None,
        limits: BundleLimits | None = None,
        copies_bytes: int = 2048 * MB,
    ) -> None:
        """`name` is the manager's. `clock` is the store's. `copies_bytes` bounds the copies on this machine's disk;
        one file that is larger is kept alone."""
        self._blobs = blobs
        self._bus = bus
        self._name = name
        self._cluster = cluster
        self._environment = environment
        self._version = installed_version("mainstay") if version is None else version
        self._clock = clock or SystemClock()
        self._limits = limits or BundleLimits()
        self._copies = _PackedCopies(blobs, self._limits, copies_bytes)
        self._methods: Mapping[str, Callable[[msgspec.Raw], Awaitable[Any]]] = {
            "fetch": self._fetch,
            "manifest": self._manifest,
            "publish": self._publish,
        }
        self._subscription: Subscription[BusMessage] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: refused requests by reason: cluster, version, role, input
        self.refused: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        self._subscription = await self._bus.subscribe(BUNDLE_PATTERN, group=_GROUP)
        self._tasks = [asyncio.create_task(self._run(self._subscription)) for _ in range(_AT_ONCE)]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Answer nothing more. A second call does nothing."""
        if self._subscription is not None:
            await self._subscription.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await asyncio.to_thread(self._copies.close)

    async def _run(self, requests: Subscription[BusMessage]) -> None:
        async for message in requests:
            role, name = [*message.subject.split("."), "", "", ""][2:4]
            if message.reply is None or not may_answer(message.reply, role, name):
                continue
            body = await self.answer(message.subject, message.body)
            with contextlib.suppress(BusError):  # the caller asks again
                await self._bus.publish(message.reply, body)

    async def answer(self, subject: str, body: bytes) -> bytes:
        """The answer to one request."""
        now, lease = self._clock.now_ms(), self._clock.lease_ms()
        try:
            value = await self._handled(subject, body)
        except MainstayError as error:
            answer = BundleAnswer(now=now, lease=lease, m=self._name, error=fault_of(error))
        except OSError as error:  # this machine's disk: another manager may do better
            log.warning("a request for a bundle failed: subject=%s error=%s", subject, error)
            failure = StoreError(f"manager {self._name} cannot keep a copy of the bundle ({error}); free its disk")
            answer = BundleAnswer(now=now, lease=lease, m=self._name, error=fault_of(failure))
        else:
            ok = msgspec.Raw(msgspec.msgpack.encode(value))
            answer = BundleAnswer(now=now, lease=lease, m=self._name, ok=ok)
        return msgspec.msgpack.encode(answer)

    async def _handled(self, subject: str, body: bytes) -> object:
        role, name, method = _caller(subject)
        request = self._decoded(body, BundleRequest)
        ours, theirs = f"{self._cluster}/{self._environment}", f"{request.c[:80]}/{request.e[:80]}"
        if (request.c, request.e) != (self._cluster, self._environment):
            self.refused["cluster"] += 1
            raise WrongCluster(ours, theirs)
        try:
            check_versions(self._version, request.v)
        except MainstayError:
            self.refused["version"] += 1
            raise
        if method == "publish" and role not in _PUBLISHERS:
            self.refused["role"] += 1
            raise RoleRefused(role, name, "publish a bundle", "only operators and managers publish; nodes fetch")
        if method not in self._methods:
            self.refused["input"] += 1
            raise InvalidInput("method", f"{method!r} is not known; use {', '.join(self._methods)}")
        return await self._methods[method](request.a)

    # -- methods ----------------------------------------------------------------------------------

    async def _fetch(self, arguments: msgspec.Raw) -> BundlePart:
        wanted = self._range(arguments)
        return await self._copies.part(wanted.digest, wanted.offset, wanted.length)

    async def _manifest(self, arguments: msgspec.Raw) -> BundlePart:
        wanted = self._range(arguments)
        body = await self._copies.content(wanted.digest, self._limits.manifest_bytes)
        read_manifest(wanted.digest, body, self._limits)
        return BundlePart(data=body[wanted.offset : wanted.offset + wanted.length], size=len(body))

    async def _publish(self, arguments: msgspec.Raw) -> UploadState:
        part = self._decoded(bytes(arguments), UploadArguments)
        check_digest(part.digest)
        check_digest(part.packed, field="packed")
        # a packed file has at most one byte more than its content
        if not 0 <= part.offset + len(part.data) <= self._limits.data_bytes + 1:
            raise PayloadTooLarge("offset", f"a file of a bundle has at most {self._limits.data_bytes} bytes")
        if part.offset % PART_BYTES and not part.done:
            raise InvalidInput("offset", f"{part.offset} is not a multiple of {PART_BYTES}")
        if len(part.data) > PART_BYTES:
            raise PayloadTooLarge("data", f"a part has at most {PART_BYTES} bytes, not {len(part.data)}")
        if not part.done:
            # checked at the first part only: the copy is checked by reading all of it
            if part.offset == 0 and await self._is_stored(part.digest):
                return UploadState(stored=True)
            await self._blobs.write(_part_key(part.packed, part.offset), part.data)
            return UploadState(stored=False)
        await self._assemble(part)
        return UploadState(stored=True)

    async def _is_stored(self, digest: str) -> bool:
        try:
            await self._copies.part(digest, 0, 1)
        except (BundleMissing, BundleCorrupt):
            return False
        return True

    async def _assemble(self, end: UploadArguments) -> None:
        """Join the parts of an upload, check them, and store the content at its address."""
        keys = [_part_key(end.packed, offset) for offset in range(0, end.offset, PART_BYTES)]
        with tempfile.TemporaryDirectory(prefix="mainstay-upload-") as name:
            whole = Path(name, "packed")
            for key in keys:
                (piece,) = await self._blobs.read([key])
                if isinstance(piece, StoreError):
                    raise piece
                if piece is None:
                    # the end arrived twice: the first one has removed the parts
                    if await self._is_stored(end.digest):
                        return
                    raise BundleMissing(end.digest)
                await asyncio.to_thread(_append, whole, piece)
            if not keys or (await asyncio.to_thread(file_digest, whole)) != (end.offset, end.packed):
                await self._blobs.delete(keys)
                raise BundleCorrupt(end.digest, "its parts did not arrive intact")
            try:
                await asyncio.to_thread(check_packed, end.digest, whole, self._limits)
            except BundleCorrupt:
                await self._blobs.delete(keys)
                raise
            await self._blobs.write(bundle_address(end.digest), whole)
        await self._blobs.delete(keys)
        await asyncio.to_thread(self._copies.forget, end.digest)

    # -- input ------------------------------------------------------------------------------------

    def _range(self, arguments: msgspec.Raw) -> PartArguments:
        wanted = self._decoded(bytes(arguments), PartArguments)
        check_digest(wanted.digest)
        if wanted.offset < 0 or not 0 < wanted.length <= PART_BYTES:
            self.refused["input"] += 1
            raise InvalidInput("length", f"a part has 1 to {PART_BYTES} bytes and begins at 0 or later")
        return wanted

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.refused["input"] += 1
            raise InvalidInput("body", f"the request cannot be read ({error})") from None


class _PackedCopies:
    """Checked copies of packed files on this machine's disk; the least recently used go first."""

    def __init__(self, blobs: Blobs, limits: BundleLimits, most_bytes: int) -> None:
        self._blobs = blobs
        self._limits = limits
        self._most = most_bytes
        self._folder: Path | None = None
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def part(self, digest: str, offset: int, length: int) -> BundlePart:
        copy = await self._copy(digest)
        return await asyncio.to_thread(_read_part, copy, offset, length)

    async def content(self, digest: str, most: int) -> bytes:
        """A small file, unpacked."""
        copy = await self._copy(digest)
        return await asyncio.to_thread(_read_content, copy, digest, most, self._limits)

    def forget(self, digest: str) -> None:
        if self._sizes.pop(digest, None) is not None and self._folder is not None:
            (self._folder / digest).unlink(missing_ok=True)

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
        self._sizes.clear()

    async def _copy(self, digest: str) -> Any:
        """An open copy: one that is removed meanwhile can be read to its end."""
        lock = self._locks.setdefault(digest, asyncio.Lock())
        try:
            async with lock:
                if self._folder is None:
                    self._folder = Path(tempfile.mkdtemp(prefix="mainstay-bundles-"))
                path = self._folder / digest
                if digest not in self._sizes:
                    await self._make(digest, path)
                self._sizes.move_to_end(digest)
                return path.open("rb")
        finally:
            if not lock.locked():
                self._locks.pop(digest, None)

    async def _make(self, digest: str, path: Path) -> None:
        draft = path.with_suffix(f".{os.urandom(4).hex()}")  # two requests may make the same copy
        try:
            if not await save_packed(self._blobs, digest, draft, self._limits):
                raise BundleMissing(digest)
            size = draft.stat().st_size
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        self._sizes[digest] = size
        while sum(self._sizes.values()) > self._most and len(self._sizes) > 1:
            self.forget(next(iter(self._sizes)))


def _read_part(copy: Any, offset: int, length: int) -> BundlePart:
    with copy:
        return BundlePart(data=os.pread(copy.fileno(), length, offset), size=os.fstat(copy.fileno()).st_size)


def _read_content(copy: Any, digest: str, most: int, limits: BundleLimits) -> bytes:
    with copy, tempfile.TemporaryFile() as target:
        small = msgspec.structs.replace(limits, data_bytes=most)
        size = unpack_file(copy, os.fstat(copy.fileno()).st_size, target, digest=digest, size=None, limits=small)
        target.seek(0)
        return target.read(size)


def _append(whole: Path, piece: bytes) -> None:
    with whole.open("ab") as file:
        file.write(piece)


def _part_key(packed: str, offset: int) -> str:
    return f"bundles/parts/{packed}/{offset:014d}"


def _caller(subject: str) -> tuple[str, str, str]:
    """Role, name and method of a request."""
    parts = subject.split(".")
    if len(parts) != 5:
        raise InvalidInput("subject", f"{subject!r} is not data.bundle.ROLE.NAME.METHOD")
    return parts[2], parts[3], parts[4]


__all__ = ["BundleService"]
