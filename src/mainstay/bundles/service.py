"""The manager's side: answers requests for bundles from the blobs of the cluster.

Nothing is kept between requests, so each may go to another manager. Nodes find and fetch; operators and managers do the
rest, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from ..bus import Admission, Bus, BusMessage, MessageClass, Subscription
from ..clock import Clock, SystemClock
from ..errors import (
    BusError,
    InvalidInput,
    MainstayError,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    RoleRefused,
    StoreUnavailable,
    VersionSkew,
    WrongCluster,
)
from ..outputs import Blobs
from ..stores.remote import (
    MAINSTAY_VERSION,
    ROLES,
    StoreAnswer,
    StoreRequest,
    caller_of,
    check_versions,
    fault_of,
    may_answer,
)
from .manifest import BundleLimits
from .messages import (
    BUNDLE_PATTERN,
    CommitArguments,
    DigestArguments,
    EmptyArguments,
    MissingArguments,
    PruneArguments,
    PutArguments,
    ReferenceArguments,
)
from .records import BundleListing, BundleRemoval, NameMove, PublishedBundle
from .removal import BundlesInUse, no_bundles_in_use, prune_bundles, remove_bundle
from .storage import RECENT_BYTES, BundleStorage

T = TypeVar("T")

log = logging.getLogger("mainstay.cluster")

_GROUP = "managers"
#: requests that are answered at a time: bounds the memory
_AT_ONCE = 4
#: parts in one question
_MOST_ASKED = 256
_NO_BLOBS = (
    "the managers of this cluster keep no bundles; start all of them with the same --blobs URL, "
    "such as file:///srv/blobs or s3://bucket/prefix"
)


class _Method(NamedTuple):
    """What a request asks for."""

    what: str
    """for the refusal of a caller: `publish a bundle`"""
    nodes: bool
    """nodes may"""
    arguments: type[Any]
    call: Callable[[Any, str], Awaitable[Any]]
    """takes the arguments, and the caller as role:name"""


class BundleService:
    """Answers `data.bundle.ROLE.NAME.METHOD` while it is entered (`async with`), or between `start` and `stop`."""

    def __init__(
        self,
        blobs: Blobs | None,
        bus: Bus,
        *,
        name: str,
        cluster: str,
        environment: str,
        version: str = MAINSTAY_VERSION,
        clock: Clock | None = None,
        limits: BundleLimits | None = None,
        in_use: BundlesInUse = no_bundles_in_use,
        recent_bytes: int = RECENT_BYTES,
        rng: random.Random | None = None,
        admission: Admission | None = None,
    ) -> None:
        """`name` is the manager's, `clock` the store's. Without `blobs` every request is refused. `in_use`
        reads the bundles that are not removed. `recent_bytes` bounds the parts that stay in memory for the next node.
        `admission` is that of the manager, for all of its services."""
        self._admission = admission or Admission()
        self._bus = bus
        self._name = name
        self._cluster = cluster
        self._environment = environment
        self._version = version
        self._clock = clock or SystemClock()
        self._in_use = in_use
        self._storage = (
            None
            if blobs is None
            else BundleStorage(blobs, limits=limits, clock=self._clock, rng=rng, recent_bytes=recent_bytes)
        )
        self._methods = {
            "limits": _Method("", True, EmptyArguments, self._limits),
            "find": _Method("", True, ReferenceArguments, self._find),
            "fetch": _Method("", True, DigestArguments, self._fetch),
            "list": _Method("list bundles", False, EmptyArguments, self._list),
            "history": _Method("read the history of a name", False, ReferenceArguments, self._history),
            "missing": _Method("publish a bundle", False, MissingArguments, self._missing),
            "put": _Method("publish a bundle", False, PutArguments, self._put),
            "begin": _Method("publish a bundle", False, DigestArguments, self._begin),
            "commit": _Method("publish a bundle", False, CommitArguments, self._commit),
            "remove": _Method("remove a bundle", False, ReferenceArguments, self._remove),
            "prune": _Method("prune bundles", False, PruneArguments, self._prune),
        }
        self._subscription: Subscription[BusMessage] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: refused requests by reason: cluster, version, role, input, size, overload, rate
        self.refused: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Begin to answer."""
        self._subscription = await self._bus.subscribe(BUNDLE_PATTERN, group=_GROUP)
        self._tasks = [
            asyncio.create_task(self._run(self._subscription), name="mainstay bundles") for _ in range(_AT_ONCE)
        ]

    async def stop(self) -> None:
        """Answer nothing more. A second call does nothing."""
        if self._subscription is not None:
            await self._subscription.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

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
            ok = msgspec.Raw(msgspec.msgpack.encode(await self._handled(subject, body)))
            answer = StoreAnswer(now=now, lease=lease, m=self._name, ok=ok)
        except MainstayError as error:
            self._count(error)
            answer = StoreAnswer(now=now, lease=lease, m=self._name, error=fault_of(error))
        except Exception as error:
            log.exception("a request for a bundle failed subject=%s", subject)
            failure = StoreUnavailable(f"manager {self._name} failed: {type(error).__name__}: {error}")
            answer = StoreAnswer(now=now, lease=lease, m=self._name, error=fault_of(failure))
        return msgspec.msgpack.encode(answer)

    async def _handled(self, subject: str, body: bytes) -> object:
        role, name, word = caller_of(subject, "bundle")
        self._admission.check(MessageClass.DATA, f"{role}:{name}", asyncio.get_running_loop().time())
        request = _decoded(body, StoreRequest)
        if (request.c, request.e) != (self._cluster, self._environment):
            raise WrongCluster(f"{self._cluster}/{self._environment}", f"{request.c[:80]}/{request.e[:80]}")
        check_versions(self._version, request.v)
        if role not in ROLES:
            raise RoleRefused(role[:40], name[:80], "use bundles", f"the roles are {', '.join(ROLES)}")
        method = self._methods.get(word)
        if method is None:
            raise InvalidInput("method", f"{word[:40]!r} is not known; use {', '.join(self._methods)}")
        if role == "node" and not method.nodes:
            raise RoleRefused(role, name, method.what, "nodes fetch bundles; only operators and managers change them")
        if self._storage is None:
            raise InvalidInput("blobs", _NO_BLOBS)
        return await method.call(_decoded(bytes(request.a), method.arguments), f"{role}:{name}")

    def _count(self, error: MainstayError) -> None:
        reasons: dict[type[MainstayError], str] = {
            WrongCluster: "cluster",
            VersionSkew: "version",
            RoleRefused: "role",
            PayloadTooLarge: "size",
            InvalidInput: "input",
            Overloaded: "overload",
            RateLimited: "rate",
        }
        reason = reasons.get(type(error))
        if reason is not None:
            self.refused[reason] += 1
            if isinstance(error, Overloaded):
                return  # there are many, and the metrics count them
            log.warning("refused reason=%s: %s", reason, error)

    # methods -------------------------------------------------------------------------------------

    @property
    def _bundles(self) -> BundleStorage:
        assert self._storage is not None
        return self._storage

    async def _limits(self, wanted: EmptyArguments, caller: str) -> BundleLimits:
        del wanted, caller
        return self._bundles.limits

    async def _find(self, wanted: ReferenceArguments, caller: str) -> PublishedBundle:
        del caller
        return await self._bundles.find(wanted.reference)

    async def _fetch(self, wanted: DigestArguments, caller: str) -> bytes:
        del caller
        return await self._bundles.fetch(wanted.digest)

    async def _list(self, wanted: EmptyArguments, caller: str) -> BundleListing:
        del wanted, caller
        return await self._bundles.listing()

    async def _history(self, wanted: ReferenceArguments, caller: str) -> list[NameMove]:
        del caller
        return await self._bundles.history(wanted.reference)

    async def _missing(self, wanted: MissingArguments, caller: str) -> list[str]:
        del caller
        if len(wanted.digests) > _MOST_ASKED:
            raise PayloadTooLarge("digests", f"{len(wanted.digests)} in one request; at most {_MOST_ASKED}")
        return await self._bundles.missing(wanted.digests)

    async def _put(self, wanted: PutArguments, caller: str) -> None:
        del caller
        await self._bundles.put(wanted.digest, wanted.packed)

    async def _begin(self, wanted: DigestArguments, caller: str) -> None:
        await self._bundles.begin(wanted.digest, by=wanted.by or caller)

    async def _commit(self, wanted: CommitArguments, caller: str) -> list[str]:
        by = wanted.by or caller
        missing = await self._bundles.commit(wanted.digest, name=wanted.name, by=by)
        if not missing:
            log.info("bundle published digest=%s name=%s by=%s", wanted.digest, wanted.name or "-", by)
        return missing

    async def _remove(self, wanted: ReferenceArguments, caller: str) -> BundleRemoval:
        done = await remove_bundle(self._bundles, wanted.reference, in_use=self._in_use)
        _log_removal(done, caller)
        return done

    async def _prune(self, wanted: PruneArguments, caller: str) -> BundleRemoval:
        done = await prune_bundles(
            self._bundles, keep=wanted.keep, older_than_s=wanted.older_than_s, in_use=self._in_use
        )
        _log_removal(done, caller)
        return done


def _log_removal(done: BundleRemoval, caller: str) -> None:
    if done.name:
        log.info("name of a bundle removed name=%s by=%s", done.name, caller)
    for bundle in done.removed:
        log.info("bundle removed digest=%s by=%s", bundle.digest, caller)


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("body", f"the request cannot be read ({error})") from None


__all__ = ["BundleService"]
