"""The list of the files of a bundle. Its digest stands for the whole bundle.

The canonical form is JSON with the fields in a fixed order and the files by path, so the same files always have the
same digest. A manifest comes from another machine: its paths are checked before any of them is used.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property

import msgspec

from ..errors import BundleCorrupt, InvalidInput, PayloadTooLarge

MB = 1024 * 1024
#: files are stored, sent and checked in parts of this size; one fits into a message of the bus
PART_BYTES = 512 * 1024
_FORM = "mainstay bundle 1"
_LONGEST_PATH = 512
_LONGEST_PART = 255
_DIGEST = re.compile(r"[0-9a-f]{64}")
BUNDLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
#: the manifest in the folder of an unpacked bundle
MANIFEST_NAME = ".mainstay-bundle"
#: not in any bundle: history, files that Python writes beside the code, and the manifest itself
EXCLUDED = frozenset({".git", ".hg", ".svn", "__pycache__", MANIFEST_NAME})
#: a bundle is imported from before anything else, and would replace the Mainstay of the node
_OURS = frozenset({"mainstay", "mainstay.py"})
# a colon is a drive or a stream on Windows; a control character hides a name in messages
_BAD_CHARACTERS = re.compile(r"[\x00-\x1f\x7f\\:]")


class BundleLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a bundle may be."""

    code_bytes: int = 50 * MB
    """all files of code together; default 50 MB"""
    data_bytes: int = 4096 * MB
    """all data files together; default 4 GB"""
    files: int = 20_000
    manifest_bytes: int = 8 * MB
    """the list of the files; packed it has to fit into one message, too"""
    ratio: int = 100
    """unpacked bytes for each packed byte; more is refused while unpacking"""


class BundlePart(msgspec.Struct, frozen=True):
    """A piece of a file: it is stored, sent and checked by itself."""

    sha256: str
    offset: int
    size: int


class BundleFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a bundle."""

    path: str
    """below the root, with / between the parts"""
    size: int
    sha256: str
    data: bool = False
    """a data file: not counted to the limit of the code"""
    split: tuple[str, ...] = ()
    """the digests of its parts, if it is larger than one"""

    def __post_init__(self) -> None:
        check_bundle_path(self.path)
        check_digest(self.sha256, field=f"{self.path}: sha256")
        if not 0 <= self.size < 2**53:
            raise InvalidInput(self.path, f"{self.size} is not the size of a file")
        wanted = -(-self.size // PART_BYTES) if self.size > PART_BYTES else 0
        if len(self.split) != wanted:
            raise InvalidInput(self.path, f"it has {len(self.split)} parts; {self.size} bytes make {wanted}")
        for digest in self.split:
            check_digest(digest, field=f"{self.path}: split")

    @property
    def parts(self) -> list[BundlePart]:
        """Its parts in their order; a small file is one part."""
        return [
            BundlePart(digest, offset := number * PART_BYTES, min(PART_BYTES, self.size - offset))
            for number, digest in enumerate(self.split or (self.sha256,))
        ]


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a bundle consists of.

    >>> code = BundleFile(path="shop/tasks.py", size=0, sha256=hashlib.sha256(b"").hexdigest())
    >>> BundleManifest(name="shop", target="shop.tasks:app", files=(code,)).digest[:16]
    '2b6d7542bfeb1abd'
    """

    form: str = _FORM
    name: str
    target: str
    """`module:app`; empty: it has no app"""
    files: tuple[BundleFile, ...]
    """by path"""

    def __post_init__(self) -> None:
        if self.form != _FORM:
            raise InvalidInput("form", f"{self.form[:50]!r} is not known here; this version reads {_FORM!r}")
        if not BUNDLE_NAME.fullmatch(self.name):
            raise InvalidInput("name", f"{self.name[:100]!r} is not a name: up to 100 letters, digits and . _ -")
        if self.target:
            check_bundle_target(self.target)
        paths = [file.path for file in self.files]
        if paths != sorted(paths):
            raise InvalidInput("files", "they are not in the order of their paths")
        _check_distinct(paths)

    @cached_property
    def canonical(self) -> bytes:
        """The bytes whose digest is that of the bundle."""
        return msgspec.json.encode(self)

    @cached_property
    def digest(self) -> str:
        """64 hexadecimal digits."""
        return hashlib.sha256(self.canonical).hexdigest()

    @property
    def parts(self) -> list[str]:
        """The digests of all parts of its files, each once."""
        return list(dict.fromkeys(part.sha256 for file in self.files for part in file.parts))

    @property
    def code_bytes(self) -> int:
        return sum(file.size for file in self.files if not file.data)

    @property
    def data_bytes(self) -> int:
        return sum(file.size for file in self.files if file.data)


_DECODER = msgspec.json.Decoder(BundleManifest)


def read_manifest(digest: str, body: bytes, limits: BundleLimits | None = None) -> BundleManifest:
    """The manifest with this digest; refuses other bytes, bad paths and too much of anything."""
    limits = limits or BundleLimits()
    if len(body) > limits.manifest_bytes:
        raise BundleCorrupt(digest, f"its manifest has {len(body)} bytes; at most {limits.manifest_bytes} are allowed")
    if hashlib.sha256(body).hexdigest() != digest:
        raise BundleCorrupt(digest, "its manifest has another digest")
    try:
        manifest = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BundleCorrupt(digest, f"its manifest cannot be read ({error})") from None
    if manifest.canonical != body:  # one bundle has one digest
        raise BundleCorrupt(digest, "its manifest is not in the canonical form")
    check_bundle_size(manifest.name, [(file.path, file.size, file.data) for file in manifest.files], limits)
    return manifest


def check_bundle_size(name: str, files: Sequence[tuple[str, int, bool]], limits: BundleLimits) -> None:
    """Refuse files above a limit, with the largest by name. Each is a path, a size, and whether it is data."""
    if len(files) > limits.files:
        rule = f"{name} has {len(files)} files; at most {limits.files} are allowed. Pack small files into archives"
        raise PayloadTooLarge("bundle", f"{rule}, or read them from a shared storage")
    for what, data, most in (("code", False, limits.code_bytes), ("data", True, limits.data_bytes)):
        sizes = {path: size for path, size, is_data in files if is_data == data}
        total = sum(sizes.values())
        if total > most:
            largest = max(sizes, key=lambda path: sizes[path])
            advice = "read it from a shared storage" if data else "give large files as data"
            raise PayloadTooLarge(
                "bundle",
                f"the {what} of {name} has {total} bytes; at most {most} are allowed. "
                f"The largest file is {largest} with {sizes[largest]} bytes: leave it out, or {advice}",
            )


def check_digest(digest: str, *, field: str = "digest") -> str:
    """Return a digest; refuse any other text."""
    if not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise InvalidInput(field, f"{str(digest)[:80]!r} is not a SHA-256: 64 lower-case hexadecimal digits")
    return digest


def check_bundle_target(target: str) -> str:
    """Return the target of a bundle; refuse any other text."""
    if not _TARGET.fullmatch(target):
        raise InvalidInput("target", f"{target[:100]!r} does not name an app; write it as module:app")
    return target


def check_bundle_path(path: str) -> str:
    """Return the path of a file of a bundle; refuse one that could leave the folder that it is unpacked to.

    >>> check_bundle_path("shop/../../etc/passwd")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: path: 'shop/../../etc/passwd' cannot be in a bundle: it has the part '..'
    """

    def refused(why: str) -> InvalidInput:
        return InvalidInput("path", f"{path[:200]!r} cannot be in a bundle: {why}")

    if len(path) > _LONGEST_PATH:
        raise refused(f"it has {len(path)} characters; at most {_LONGEST_PATH} are allowed")
    if path.startswith("/"):
        raise refused("it is absolute; paths begin below the root")
    if _BAD_CHARACTERS.search(path):
        raise refused("it has a backslash, a colon or a control character")
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise refused(f"it has the part {part!r}")
        if part.lower() in EXCLUDED:
            raise refused(f"{part} is left out of bundles")
        try:
            length = len(part.encode())
        except UnicodeEncodeError:
            raise refused("it cannot be written as UTF-8") from None
        if length > _LONGEST_PART:
            raise refused(f"a part of it has {length} bytes; at most {_LONGEST_PART} are allowed")
    if path.partition("/")[0].lower() in _OURS:
        raise refused("the nodes have their own Mainstay")
    return path


def _check_distinct(paths: list[str]) -> None:
    """Refuse two files in one place, also on disks that ignore case, and a file in place of a folder."""
    files: dict[str, str] = {}
    for path in paths:
        key = _on_disk(path)
        if key in files:
            raise InvalidInput("files", f"{files[key]!r} and {path!r} would be the same file on some disks; rename one")
        files[key] = path
    for path in paths:
        folder = _on_disk(path)
        while folder := folder.rpartition("/")[0]:
            if folder in files:
                raise InvalidInput("files", f"{files[folder]!r} is a file and the folder of {path!r}")


def _on_disk(path: str) -> str:
    """A path as the disks see it that know neither case nor two ways to write an accent."""
    return unicodedata.normalize("NFC", path.casefold())


__all__ = [
    "EXCLUDED",
    "MANIFEST_NAME",
    "MB",
    "PART_BYTES",
    "BundleFile",
    "BundleLimits",
    "BundleManifest",
    "BundlePart",
    "check_bundle_path",
    "check_bundle_size",
    "check_bundle_target",
    "check_digest",
    "read_manifest",
]
