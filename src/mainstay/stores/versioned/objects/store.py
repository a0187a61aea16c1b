"""The five calls on a bucket."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import obstore

from ....errors import InvalidInput, StoreClosed, StoreUnavailable
from ....storage.keys import check_key
from ....storage.service_errors import TROUBLE, Kind, judge
from ..idempotent_write import written
from ..input_check import check_listing, check_value, new_version
from ..port import Versioned
from .envelope import REMOVED_SIZE, nonce_of, opened, removed, sealed

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore

_ETAG = re.compile(r'"?[A-Za-z0-9_+/=.-]+"?')
_GENERATION = re.compile(r"[1-9][0-9]{0,18}")
#: what keys are made of, in the order of its bytes
_CHARACTERS = "".join(sorted("-./=_" + "0123456789" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "abcdefghijklmnopqrstuvwxyz"))
_PAGE = 1000


class ObjectsVersioned:
    """See the package's head."""

    def __init__(
        self, *, reads: ObjectStore, writes: ObjectStore, scheme: str, prefix: str, place: str, tries: int
    ) -> None:
        self._reads: ObjectStore | None = reads
        self._writes = writes
        self._scheme = scheme
        self._root = f"{prefix}/" if prefix else ""
        self._place = place
        self._tries = tries

    @property
    def place(self) -> str:
        return self._place

    async def get(self, key: str) -> Versioned | None:
        found = await self._there(check_key(key))
        if found is None or (value := opened(found[0], f"{key} in {self._place}")) is None:
            return None
        return Versioned(value, found[1])

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        check_key(key)
        nonce = bytes.fromhex(new_version())
        return await self._replace(key, sealed(check_value(value), nonce), nonce, version)

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        check_key(key)
        nonce = bytes.fromhex(new_version())
        body = sealed(check_value(value), nonce)
        for _ in range(self._tries):
            if made := await self._write(key, body, nonce, "create"):
                return made
            found = await self._there(key)
            if found is None:  # what was there is gone for good
                continue
            if opened(found[0], f"{key} in {self._place}") is not None:
                return None
            if made := await self._replace(key, body, nonce, found[1]):
                return made
        raise StoreUnavailable(f"{key} in {self._place} is made and removed by others all the time; try again")

    async def delete(self, key: str, version: str) -> bool:
        check_key(key)
        nonce = bytes.fromhex(new_version())
        return await self._replace(key, removed(nonce), nonce, version) is not None

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_listing(prefix, after, limit)
        store = self._open()
        start = max(after, _just_before(prefix))
        # a service's list begins at a whole part
        within = (self._root + prefix[: prefix.rfind("/") + 1]).rstrip("/") or None
        keys: list[str] = []
        try:
            stream = obstore.list(store, within, offset=self._root + start if start else None, chunk_size=_PAGE)
            async for page in stream:
                for found in page:
                    key = found["path"].removeprefix(self._root)
                    if key <= after or found["size"] <= REMOVED_SIZE or not _is_key(key):
                        continue
                    if not key.startswith(prefix):
                        if key > prefix:
                            return keys
                        continue
                    keys.append(key)
                    if len(keys) == limit:
                        return keys
        except TROUBLE as error:
            self._judge(error)
        return keys

    async def close(self) -> None:
        self._reads = None

    def _open(self) -> ObjectStore:
        if self._reads is None:
            raise StoreClosed(f"{self._place} was closed; open it again")
        return self._reads

    async def _there(self, key: str) -> tuple[bytes, str] | None:
        """What is stored, and its version."""
        store = self._open()
        try:
            found = await obstore.get_async(store, self._root + key)
            body = bytes(await found.bytes_async())
        except TROUBLE as error:
            if self._judge(error) == "conflict":
                raise
            return None
        return body, self._version(found.meta["e_tag"], found.meta["version"])

    async def _replace(self, key: str, body: bytes, nonce: bytes, version: str) -> str | None:
        self._open()
        if not isinstance(version, str):
            raise InvalidInput("version", f"a {type(version).__name__} is not a version; use the one that was read")
        # what no service has given is nobody's version; some would mean any, or none
        if not (_GENERATION if self._scheme == "gs" else _ETAG).fullmatch(version):
            return None
        mode: UpdateVersion = {"version": version} if self._scheme == "gs" else {"e_tag": version}
        return await self._write(key, body, nonce, mode)

    async def _write(self, key: str, body: bytes, nonce: bytes, mode: Literal["create"] | UpdateVersion) -> str | None:
        self._open()

        async def write() -> str | None:
            try:
                # in one piece: a write in parts knows no condition
                done = await obstore.put_async(self._writes, self._root + key, body, mode=mode, use_multipart=False)
            except TROUBLE as error:
                self._judge(error)
                return None
            return self._version(done["e_tag"], done["version"])

        async def mine() -> str | None:
            found = await self._there(key)
            return found[1] if found and nonce_of(found[0]) == nonce else None

        return await written(write, mine, tries=self._tries, what=f"{key} in {self._place}")

    def _version(self, e_tag: str | None, version: str | None) -> str:
        found = version if self._scheme == "gs" else e_tag
        if found is None:
            raise StoreUnavailable(f"{self._place} answers without a version: it is not a store of this kind")
        return found

    def _judge(self, error: Exception) -> Kind:
        return judge(error, scheme=self._scheme, place=self._place)


def _just_before(prefix: str) -> str:
    """Something that is less than the prefix, and greater than almost all that is less: lists begin after it.

    >>> _just_before("jobs/b")
    'jobs/azzz'
    >>> _just_before("jobs/-")
    'jobs/'
    """
    if not prefix or prefix.endswith("/"):
        return ""
    place = _CHARACTERS.find(prefix[-1])
    before = _CHARACTERS[place - 1] if place else ""
    # an empty part is no part of a path
    return prefix[:-1] + (f"{before}zzz" if before not in ("", "/", ".") else "")


def _is_key(name: str) -> bool:
    try:
        check_key(name)
    except InvalidInput:
        return False
    return True
