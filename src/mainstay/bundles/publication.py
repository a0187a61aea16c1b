"""From a collected bundle to one that the nodes can use."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from ..errors import BundleMissing, BusError, InvalidInput, Overloaded, PayloadTooLarge
from .bounded import for_each
from .collection import Bundle
from .manifest import BundleLimits, BundlePart
from .packed import pack
from .storage import PACKED_BYTES

#: parts that are asked about in one request: the manager reads them to check them
_ASKED = 32
#: parts that are sent at a time
_AT_ONCE = 4
_ROUNDS = 3
_TRIES = 60
#: while a prune is under way
_AGAIN_S = 1.0


class BundleTarget(Protocol):
    """Where a bundle is published: `BundleClient`, or the `BundleStorage` itself."""

    async def put(self, digest: str, packed: bytes) -> None: ...

    async def missing(self, digests: Sequence[str]) -> list[str]: ...

    async def begin(self, digest: str, *, by: str) -> None: ...

    async def commit(self, digest: str, *, name: str, by: str) -> list[str]: ...


class PublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a publication has sent."""

    digest: str
    name: str
    """that points to it now; empty: none"""
    target: str
    files: int
    bytes: int
    """of all files"""
    sent_parts: int
    sent_bytes: int
    """of the parts that were sent, before they were packed"""
    present_parts: int
    """parts that were stored already"""
    present_bytes: int


class PublishProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a publication is."""

    done_bytes: int
    """of all files: checked and present, or sent"""
    total_bytes: int


class PutParts(NamedTuple):
    """Store these contents, in any order."""

    digests: Sequence[str]
    packed: Callable[[str], bytes]
    """reads the packed form of one; raises `InvalidInput` if its file has changed"""
    sent: Callable[[str], None]
    """is called with each that was stored"""


class AskMissing(NamedTuple):
    """Ask which of these parts are missing; the answer is a list."""

    digests: Sequence[str]


class BeginBundle(NamedTuple):
    """Begin the bundle, whose manifest is stored."""

    digest: str


class CommitBundle(NamedTuple):
    """Publish the bundle; the answer is the list of parts that are missing."""

    digest: str
    name: str


class PublishPause(NamedTuple):
    """Wait before the next step."""

    seconds: float


PublishStep = PutParts | AskMissing | BeginBundle | CommitBundle | PublishPause
#: yields steps, takes their answers and the errors `RETRIED`, and returns the result
Publication = Generator[PublishStep, Any, PublishResult]
#: errors of a step that the publication has to know; any other one ends it
RETRIED = (BundleMissing, Overloaded)


def publication_steps(
    bundle: Bundle,
    *,
    name: str = "",
    limits: BundleLimits | None = None,
    progress: Callable[[PublishProgress], None] = lambda _: None,
) -> Publication:
    """The steps of a publication, whichever way they are carried out: over the bus, over HTTP, or in this process."""
    limits = limits or BundleLimits()
    places = {part.sha256: (bundle.root / file.path, part) for file in bundle.manifest.files for part in file.parts}
    total = sum(part.size for _, part in places.values())
    sent: dict[str, int] = {}
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        progress(PublishProgress(done_bytes=min(done, total), total_bytes=total))

    def note_sent(digest: str) -> None:
        sent[digest] = places[digest][1].size
        advance(sent[digest])

    def parts(digests: Sequence[str]) -> PutParts:
        return PutParts(digests, lambda digest: _packed_part(*places[digest], limits), note_sent)

    manifest = pack(bundle.manifest.canonical, limits)
    if len(manifest) > PACKED_BYTES:
        rule = (
            f"the list of the {len(places)} parts has {len(manifest)} bytes; at most {PACKED_BYTES} fit into a message"
        )
        raise PayloadTooLarge("bundle", f"{rule}. Leave files out, or read them from a shared storage")
    yield from _begin(bundle.digest, manifest)
    wanted = list(places)
    for begin in range(0, len(wanted), _ASKED):
        asked = wanted[begin : begin + _ASKED]
        absent: list[str] = yield AskMissing(asked)
        advance(sum(places[digest][1].size for digest in set(asked) - set(absent)))
        yield parts(absent)
    for _ in range(_ROUNDS):
        absent = yield CommitBundle(bundle.digest, name)
        if not absent:
            break
        yield parts(absent)
    else:
        raise BusError(f"bundle {bundle.digest} was not published: its parts are removed again and again")
    sent_bytes = sum(sent.values())
    return PublishResult(
        digest=bundle.digest,
        name=name,
        target=bundle.manifest.target,
        files=len(bundle.manifest.files),
        bytes=sum(file.size for file in bundle.manifest.files),
        sent_parts=len(sent),
        sent_bytes=sent_bytes,
        present_parts=len(places) - len(sent),
        present_bytes=total - sent_bytes,
    )


def _begin(digest: str, manifest: bytes) -> Generator[PublishStep, Any, None]:
    """Store the manifest, and begin as soon as no prune is under way."""
    for left in reversed(range(_TRIES)):
        yield PutParts([digest], lambda _: manifest, lambda _: None)
        try:
            yield BeginBundle(digest)
        except RETRIED as error:
            if not left:
                raise
            # missing: a prune has removed the manifest since
            yield PublishPause(_AGAIN_S if isinstance(error, Overloaded) else 0.0)
        else:
            return


async def publish_bundle(
    target: BundleTarget,
    bundle: Bundle,
    *,
    name: str = "",
    by: str = "unknown",
    limits: BundleLimits | None = None,
    progress: Callable[[PublishProgress], None] = lambda _: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> PublishResult:
    """Store a bundle, and point a name to it. Parts that are stored and intact are not sent."""
    steps = publication_steps(bundle, name=name, limits=limits, progress=progress)
    try:
        # packing the list of the files takes a while if there are many
        step = await asyncio.to_thread(next, steps)
        while True:
            try:
                answer = await _carried_out(target, step, by, sleep)
            except RETRIED as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as done:
        result: PublishResult = done.value
        return result


async def _carried_out(
    target: BundleTarget, step: PublishStep, by: str, sleep: Callable[[float], Awaitable[None]]
) -> list[str] | None:
    match step:
        case PutParts(digests, packed, sent):

            async def send(digest: str) -> None:
                await target.put(digest, await asyncio.to_thread(packed, digest))
                sent(digest)

            await for_each(digests, send, at_once=_AT_ONCE)
        case AskMissing(digests):
            return await target.missing(digests)
        case BeginBundle(digest):
            await target.begin(digest, by=by)
        case CommitBundle(digest, name):
            return await target.commit(digest, name=name, by=by)
        case PublishPause(pause_s):
            await sleep(pause_s)
    return None


def _packed_part(path: Path, part: BundlePart, limits: BundleLimits) -> bytes:
    with path.open("rb") as file:
        file.seek(part.offset)
        content = file.read(part.size)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise InvalidInput(str(path), "the file has changed since the bundle was collected; push it again")
    return pack(content, limits)


__all__ = [
    "RETRIED",
    "AskMissing",
    "BeginBundle",
    "BundleTarget",
    "CommitBundle",
    "Publication",
    "PublishPause",
    "PublishProgress",
    "PublishResult",
    "PublishStep",
    "PutParts",
    "publication_steps",
    "publish_bundle",
]
