"""The API of bundles: how the code of a program reaches the managers of a cluster over HTTP.

The scope `code` may do it, because nodes run what is published. The managers check every part against its digest.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...bundles import PACKED_BYTES, BundleClient, BundleLimits
from ...errors import BundleCorrupt, BusError
from ...web import ClusterSource, Problem
from ...web.api import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from .views import no_manager, watch_of

T = TypeVar("T")

#: a part in base64, which JSON needs, and what is around it
_PART_BYTES = PACKED_BYTES * 4 // 3 + 1024
#: digests in one request
_MOST_ASKED = 256
_REFUSALS = (404, 409, 503)

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="A SHA-256: 64 lower-case hexadecimal digits.")]


class PartDigests(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parts of bundles."""

    digests: Annotated[list[Digest], Meta(max_length=_MOST_ASKED)]


class BundlePartUpload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part, or the list of the files of a bundle."""

    digest: Digest
    """of its content"""
    packed: Annotated[bytes, Meta(max_length=PACKED_BYTES)]
    """a byte for the form, 0 plain or 1 Zstandard, and the content in that form"""


class BundleToBegin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bundle whose list of files is stored."""

    digest: Digest


class BundleToPublish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bundle whose parts are stored."""

    digest: Digest
    name: Annotated[str, Meta(max_length=100)] = ""
    """that points to it from now on; empty: none"""


async def get_bundle_limits(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response(await _answered(bundles_of(ask.site.cluster).limits()))


async def list_missing_parts(ask: ApiRequest[NoParameters, PartDigests]) -> Response:
    missing = await _answered(bundles_of(ask.site.cluster).missing(ask.body.digests))
    return json_response(PartDigests(digests=missing))


async def put_bundle_part(ask: ApiRequest[NoParameters, BundlePartUpload]) -> Response:
    # the log has the digest, not the code
    ask.audit_entry.takes(BundleToBegin(digest=ask.body.digest))
    try:
        await _answered(bundles_of(ask.site.cluster).put(ask.body.digest, ask.body.packed))
    except BundleCorrupt as error:
        raise Problem(422, error.code, str(error), field="packed") from None
    return json_response(PartDigests(digests=[ask.body.digest]))


async def begin_bundle(ask: ApiRequest[NoParameters, BundleToBegin]) -> Response:
    await _answered(bundles_of(ask.site.cluster).begin(ask.body.digest, by=ask.caller.actor))
    return json_response(ask.body)


async def publish_bundle(ask: ApiRequest[NoParameters, BundleToPublish]) -> Response:
    body = ask.body
    missing = await _answered(bundles_of(ask.site.cluster).commit(body.digest, name=body.name, by=ask.caller.actor))
    ask.audit_entry.result["missing"] = len(missing)
    return json_response(PartDigests(digests=missing[:_MOST_ASKED]))


def bundles_of(source: ClusterSource | None) -> BundleClient:
    """The bundles of the cluster of a server; raises a `Problem` if it has none."""
    bundles = watch_of(source).bundles
    assert bundles is not None, "every cluster that is served has managers"
    return bundles


async def _answered(answer: Awaitable[T]) -> T:
    """The answer of the managers; raises a `Problem` if none of them answers."""
    try:
        return await answer
    except BusError as error:
        raise no_manager(error) from None


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/bundles/limits",
        handler=get_bundle_limits,
        scope="read",
        tag="bundles",
        summary="Read how large a bundle may be",
        answers={200: ApiResponse(description="The limits of the managers.", type=BundleLimits)},
        refusals=_REFUSALS,
        in_store=False,
    ),
    ApiOperation(
        method="POST",
        path="/bundles/missing",
        handler=list_missing_parts,
        scope="code",
        tag="bundles",
        summary="Ask which parts are not stored, or damaged",
        body=PartDigests,
        packs=True,
        answers={200: ApiResponse(description="Those that have to be sent.", type=PartDigests)},
        refusals=_REFUSALS,
        in_store=False,
        audits=False,
    ),
    ApiOperation(
        method="POST",
        path="/bundles/parts",
        handler=put_bundle_part,
        scope="code",
        tag="bundles",
        summary="Store a part, or the list of the files of a bundle",
        about="A body as application/msgpack needs no base64.",
        body=BundlePartUpload,
        packs=True,
        answers={200: ApiResponse(description="The part is stored.", type=PartDigests)},
        refusals=_REFUSALS,
        in_store=False,
        audits=False,
        body_limit=_PART_BYTES,
    ),
    ApiOperation(
        method="POST",
        path="/bundles/begin",
        handler=begin_bundle,
        scope="code",
        tag="bundles",
        summary="Protect the parts of a bundle from a prune, for a day",
        about="The list of its files is stored before. 409 `overloaded`: a prune is under way; ask again in a second.",
        body=BundleToBegin,
        packs=True,
        answers={200: ApiResponse(description="Its parts stay.", type=BundleToBegin)},
        refusals=_REFUSALS,
        in_store=False,
        audits=False,
    ),
    ApiOperation(
        method="POST",
        path="/bundles/publish",
        handler=publish_bundle,
        scope="code",
        tag="bundles",
        summary="Publish a bundle, so that nodes can fetch it",
        body=BundleToPublish,
        packs=True,
        answers={
            200: ApiResponse(
                description="The parts that are missing: none, or nothing was published.", type=PartDigests
            )
        },
        refusals=_REFUSALS,
        in_store=False,
    ),
)

__all__ = ["OPERATIONS", "bundles_of"]
