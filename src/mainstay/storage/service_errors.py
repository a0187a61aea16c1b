"""What a service's refusal means: a conflict, a bucket that is not there, a permission that is missing, an outage."""

from __future__ import annotations

import re
from typing import Literal

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from ..errors import StoreDenied, StoreError, StoreUnavailable

Kind = Literal["conflict", "absent"]
#: what obstore raises: absence is Python's own error
TROUBLE = (BaseError, FileNotFoundError)
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_PERMISSIONS = {
    "s3": "s3:GetObject and s3:PutObject on its objects, and s3:ListBucket on the bucket (without it S3 denies what is "
    "merely absent)",
    "gs": "storage.objects.get, .create, .delete and .list (the role Storage Object User)",
    "az": "to read, write and list blobs (the role Storage Blob Data Contributor)",
}
#: where drivers look for credentials at last: the machine's own, which only a cloud's machine has
_METADATA = ("169.254.169.254", "metadata.google.internal")


class NoBucket(StoreError):
    """The bucket or container itself is not there."""


def judge(error: Exception, *, scheme: str, place: str) -> Kind:
    """A conflict or an absence is an answer; all else is raised."""
    text = str(error)
    status = int(found[1]) if (found := _STATUS.search(text)) else None
    code = found[1] if (found := _CODE.search(text)) else ""
    if any(address in text for address in _METADATA):
        raise StoreUnavailable(
            f"{place}: no credentials were found, and the machine has none of its own; set those of the service in the "
            f"environment"
        ) from None
    if code in _NO_BUCKET:
        noun = "container" if scheme == "az" else "bucket"
        raise NoBucket(f"{place}: there is no such {noun}; make it first: mainstay store init {place}") from None
    if isinstance(error, PreconditionError | AlreadyExistsError) or status in (409, 412):
        return "conflict"
    if isinstance(error, FileNotFoundError):
        return "absent"
    if status in (401, 403):
        raise StoreDenied(
            f"{place}: the service denies it ({code or status}); the caller needs {_PERMISSIONS[scheme]}"
        ) from None
    if status is None or status in (408, 425, 429) or status >= 500:
        raise StoreUnavailable(f"{place}: {_short(text)}; the outcome of the request is unknown") from None
    raise StoreError(f"{place}: {_short(text)}") from None


def _short(text: str) -> str:
    """Without the driver's own structures, and without the query of an address: it may be signed."""
    return re.sub(r"\?\S+", "", text.partition("\n\nDebug source")[0])[:400]
