"""The arguments of requests about bundles, in the envelope that calls of the store have, too.

A request goes to `data.bundle.ROLE.NAME.METHOD`. The server of the bus lets a caller publish only below its own role
and name, so the manager takes both from the subject, never from the body.
"""

from __future__ import annotations

import msgspec

#: what managers subscribe to
BUNDLE_PATTERN = "data.bundle.>"


class EmptyArguments(msgspec.Struct, frozen=True):
    """Of `limits` and `list`."""


class DigestArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Of `fetch` and `begin`."""

    digest: str
    by: str = ""


class ReferenceArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Of `find`, `history` and `remove`: a name, a digest or the beginning of one."""

    reference: str


class MissingArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Which of these are not stored?"""

    digests: list[str]


class PutArguments(msgspec.Struct, frozen=True, kw_only=True):
    """A part or a manifest to be stored."""

    digest: str
    packed: bytes


class CommitArguments(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle whose parts were sent."""

    digest: str
    name: str = ""
    by: str = ""


class PruneArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Which bundles go."""

    keep: int | None = None
    older_than_s: float | None = None


__all__ = [
    "BUNDLE_PATTERN",
    "CommitArguments",
    "DigestArguments",
    "EmptyArguments",
    "MissingArguments",
    "PruneArguments",
    "PutArguments",
    "ReferenceArguments",
]
