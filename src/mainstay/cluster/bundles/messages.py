"""The messages about bundles: requests in the envelope of the cluster, and their answers.

A request goes to `data.bundle.ROLE.NAME.METHOD`. The server of the bus lets a caller publish only below its own role
and name, so the manager takes both from the subject, never from the body.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import (
    BundleCorrupt,
    BundleMissing,
    InvalidInput,
    MainstayError,
    PayloadTooLarge,
    RequestRefused,
    RoleRefused,
    VersionSkew,
    WrongCluster,
)

#: bytes of a file in one message
PART_BYTES = 256 * 1024
#: what managers subscribe to
BUNDLE_PATTERN = "data.bundle.>"


class BundleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The envelope of a request."""

    v: str
    """the caller's version of Mainstay"""
    c: str
    """cluster"""
    e: str
    """environment"""
    id: str
    a: msgspec.Raw
    """the arguments: `PartArguments` or `UploadArguments`"""


class PartArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a stored file is wanted. `fetch` counts in its packed form, `manifest` in the manifest itself."""

    digest: str
    offset: int = 0
    length: int = PART_BYTES


class UploadArguments(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a packed file that is published, or the end of one: `done`, without data."""

    digest: str
    """of the content"""
    packed: str
    """of the packed form: two uploads of other bytes never mix"""
    offset: int
    """where the part begins; at the end, how long the packed form is"""
    data: bytes = b""
    done: bool = False


class BundlePart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a file."""

    data: bytes
    size: int
    """of the whole file in the form that is sent"""


class UploadState(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a part that is published."""

    stored: bool
    """the whole content is stored: no more parts are needed"""


class BundleFault(msgspec.Struct, frozen=True, kw_only=True):
    """An error as an answer carries it."""

    code: str
    message: str
    fields: dict[str, Any] = {}


class BundleAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope of an answer: either `ok` or `error`."""

    now: int
    lease: int
    m: str
    """the manager that answers"""
    ok: msgspec.Raw = msgspec.Raw(b"")
    error: BundleFault | None = None


def fault_of(error: MainstayError) -> BundleFault:
    """What an answer says about an error."""
    names = ("digest", "path", "why", "field", "rule", "role", "name", "request", "expected", "given", "ours", "theirs")
    fields = {name: value for name in names if isinstance(value := getattr(error, name, None), str)}
    return BundleFault(code=error.code, message=str(error), fields=fields)


def error_of(fault: BundleFault) -> MainstayError:
    """The error of an answer, of the class that the manager raised where the caller can act on it."""
    fields: dict[str, Any] = fault.fields
    error: MainstayError
    if fault.code == BundleMissing.code:
        error = BundleMissing(fields.get("digest", ""), path=fields.get("path", ""))
    elif fault.code == BundleCorrupt.code:
        error = BundleCorrupt(fields.get("digest", ""), fields.get("why", ""), path=fields.get("path", ""))
    elif fault.code == PayloadTooLarge.code:
        error = PayloadTooLarge(fields.get("field", ""), fields.get("rule", ""))
    elif fault.code == InvalidInput.code:
        error = InvalidInput(fields.get("field", ""), fields.get("rule", ""))
    elif fault.code == WrongCluster.code:
        error = WrongCluster(fields.get("expected", ""), fields.get("given", ""))
    elif fault.code == VersionSkew.code:
        error = VersionSkew(fields.get("ours", ""), fields.get("theirs", ""))
    elif fault.code == RoleRefused.code:
        error = RoleRefused(fields.get("role", ""), fields.get("name", ""), fields.get("request", ""), "")
        error.args = (fault.message,)
    else:
        error = RequestRefused(503, fault.code, fault.message)
    return error


__all__ = [
    "BUNDLE_PATTERN",
    "PART_BYTES",
    "BundleAnswer",
    "BundleFault",
    "BundlePart",
    "BundleRequest",
    "PartArguments",
    "UploadArguments",
    "UploadState",
    "error_of",
    "fault_of",
]
