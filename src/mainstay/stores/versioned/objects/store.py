"""The five calls on a bucket."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import obstore

from ....errors import InvalidInput, StoreClosed, StoreUnavailable
from ....storage import SERVICE_ERRORS, BucketAddress, check_key
from ..idempotent_write import write_once
from ..input_check import check_listing, check_value, check_version, new_version
from ..port import Versioned
from .envelope import REMOVED_SIZE, nonce_of, opened, removed, sealed

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore

_ETAG = re.compile(r'"?[A-Za-z0-9_+/=.-]+"?')
_GENERATION = re.compile(r"[1-9][0-9]{0,18}")
#: the characters of keys, in byte order
_CHARACTERS = "".join(sorted("-./=_" + "0123456789" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "abcdefghijklmnopqrstuvwxyz"))
_PAGE = 1000


async def open_objects(url: str, *, options: dict[str, str]) -> ObjectsVersioned:
    """Open `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.

    Options: `endpoint`, `region`, `allow_http=on`, `timeout`, `connect_timeout`, `tries`, and credentials, which are
    better left in the environment, where each service has its usual variables. Sends no request yet.
    """
    return ObjectsVersioned(BucketAddress.read(url, options))


class ObjectsVersioned:
    """See the package's docstring."""

    def __init__(self, address: BucketAddress) -> None:
        self._address = address
        self._root = address.root
        self._reads: ObjectStore | None = address.connect(retries=address.tries - 1)
        # the driver repeats no write: see `write_once`
        self._writes: ObjectStore = address.connect(retries=0)

    @property
    def place(self) -> str:
        return self._address.place

    async def get(self, key: str) -> Versioned | None:
        stored = await self._stored(check_key(key))
        if stored is None or (value := opened(stored[0], f"{key} in {self.place}")) is None:
            return None
        return Versioned(value, stored[1])

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        check_key(key)
        nonce = bytes.fromhex(new_version())
        return await self._replace(key, sealed(check_value(value), nonce), nonce, version)

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        check_key(key)
        nonce = bytes.fromhex(new_version())
        body = sealed(check_value(value), nonce)
        for _ in range(self._address.tries):
            if version := await self._write(key, body, nonce, "create"):
                return version
            stored = await self._stored(key)
            if stored is None:  # a lifecycle rule has removed the object
                continue
            if opened(stored[0], f"{key} in {self.place}") is not None:
                return None
            if version := await self._replace(key, body, nonce, stored[1]):
                return version
        raise StoreUnavailable(f"{key} in {self.place} is created and deleted by others all the time; try again")

    async def delete(self, key: str, version: str) -> bool:
        check_key(key)
        nonce = bytes.fromhex(new_version())
        return await self._replace(key, removed(nonce), nonce, version) is not None

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_listing(prefix, after, limit)
        store = self._open()
        start = max(after, _just_before(prefix))
        # the list of a service begins at a complete part
        within = (self._root + prefix[: prefix.rfind("/") + 1]).rstrip("/") or None
        keys: list[str] = []
        try:
            stream = obstore.list(store, within, offset=self._root + start if start else None, chunk_size=_PAGE)
            async for page in stream:
                for item in page:
                    key = item["path"].removeprefix(self._root)
                    if key <= after or item["size"] <= REMOVED_SIZE or not _is_key(key):
                        continue
                    if not key.startswith(prefix):
                        if key > prefix:
                            return keys
                        continue
                    keys.append(key)
                    if len(keys) == limit:
                        return keys
        except SERVICE_ERRORS as error:
            self._address.classify(error)
        return keys

    async def close(self) -> None:
        self._reads = None

    def _open(self) -> ObjectStore:
        if self._reads is None:
            raise StoreClosed(f"{self.place} was closed; open it again")
        return self._reads

    async def _stored(self, key: str) -> tuple[bytes, str] | None:
        """The stored envelope, and its version."""
        store = self._open()
        try:
            response = await obstore.get_async(store, self._root + key)
            body = bytes(await response.bytes_async())
        except SERVICE_ERRORS as error:
            if self._address.classify(error) == "conflict":
                raise
            return None
        return body, self._version(response.meta["e_tag"], response.meta["version"])

    async def _replace(self, key: str, body: bytes, nonce: bytes, version: str) -> str | None:
        self._open()
        check_version(version)
        # a text that no service gives as a version: some would take it for any version, or for none
        is_google = self._address.scheme == "gs"
        if not (_GENERATION if is_google else _ETAG).fullmatch(version):
            return None
        mode: UpdateVersion = {"version": version} if is_google else {"e_tag": version}
        return await self._write(key, body, nonce, mode)

    async def _write(self, key: str, body: bytes, nonce: bytes, mode: Literal["create"] | UpdateVersion) -> str | None:
        self._open()

        async def write() -> str | None:
            try:
                # in one piece: a write in parts takes no condition
                done = await obstore.put_async(self._writes, self._root + key, body, mode=mode, use_multipart=False)
            except SERVICE_ERRORS as error:
                self._address.classify(error)
                return None
            return self._version(done["e_tag"], done["version"])

        async def mine() -> str | None:
            stored = await self._stored(key)
            return stored[1] if stored and nonce_of(stored[0]) == nonce else None

        return await write_once(write, mine, tries=self._address.tries, what=f"{key} in {self.place}")

    def _version(self, e_tag: str | None, generation: str | None) -> str:
        version = generation if self._address.scheme == "gs" else e_tag
        if version is None:
            raise StoreUnavailable(f"{self.place} responds without a version; is it a service of this kind?")
        return version


def _just_before(prefix: str) -> str:
    """A text that is less than the prefix, and greater than almost all texts that are less: lists begin after it.

    >>> _just_before("jobs/b")
    'jobs/azzz'
    >>> _just_before("jobs/-")
    'jobs/'
    """
    if not prefix or prefix.endswith("/"):
        return ""
    index = _CHARACTERS.find(prefix[-1])
    before = _CHARACTERS[index - 1] if index else ""
    # a path has no empty part
    return prefix[:-1] + (f"{before}zzz" if before not in ("", "/", ".") else "")


def _is_key(name: str) -> bool:
    try:
        check_key(name)
    except InvalidInput:
        return False
    return True
