"""What a cluster knows of its bundles: which are published, and which names point to them."""

from __future__ import annotations

import re

import msgspec

from ..errors import InvalidInput
from .manifest import BUNDLE_NAME

#: a digest, or its beginning
_DIGEST_START = re.compile(r"[0-9a-f]{8,64}")


class PublishedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle whose files are all stored."""

    digest: str
    name: str
    """of its top-level package"""
    target: str
    """`module:app`; empty: it has no app"""
    files: int
    code_bytes: int
    data_bytes: int
    at_ms: int
    """when it was published"""
    by: str
    """by whom"""


class NameMove(msgspec.Struct, frozen=True, kw_only=True):
    """A name was pointed to a bundle."""

    digest: str
    at_ms: int
    by: str


class BundleListing(msgspec.Struct, frozen=True, kw_only=True):
    """All bundles of a cluster."""

    bundles: list[PublishedBundle]
    """the newest first"""
    names: dict[str, str]
    """name -> digest"""


class BundleRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """What a removal or a prune did."""

    removed: list[PublishedBundle] = []
    kept: dict[str, str] = {}
    """bundles that would have been removed: digest -> why they stay"""
    parts: int = 0
    """parts of files that no other bundle needs, and that were removed"""
    name: str = ""
    """a name that was removed; its bundle stays"""


def is_digest_start(text: str) -> bool:
    """Whether a text can be the digest of a bundle, or the first 8 or more digits of one."""
    return _DIGEST_START.fullmatch(text) is not None


def check_bundle_name(name: str) -> str:
    """Return a name for a bundle; refuse any other text.

    >>> check_bundle_name("shop-1.2")
    'shop-1.2'
    """
    if not BUNDLE_NAME.fullmatch(name):
        raise InvalidInput("name", f"{name[:100]!r} is not a name: up to 100 letters, digits and . _ -")
    if is_digest_start(name):
        raise InvalidInput("name", f"{name!r} looks like a digest; use a name with another letter")
    return name


__all__ = [
    "BundleListing",
    "BundleRemoval",
    "NameMove",
    "PublishedBundle",
    "check_bundle_name",
    "is_digest_start",
]
