"""The errors of cloud services: a conflict, a missing bucket, a missing permission, an outage."""

from __future__ import annotations

import re
from typing import Literal

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from ..errors import StoreDenied, StoreError, StoreUnavailable

Answer = Literal["conflict", "absent"]
#: what obstore raises. For an absent object it is Python's own error
SERVICE_ERRORS = (BaseError, FileNotFoundError)
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_PERMISSIONS = {
    "s3": "s3:GetObject and s3:PutObject on its objects, and s3:ListBucket on the bucket (without it S3 denies access "
    "to absent objects)",
    "gs": "storage.objects.get, .create, .delete and .list (the role Storage Object User)",
    "az": "to read, write and list blobs (the role Storage Blob Data Contributor)",
}
#: the last place where drivers look for credentials: only a cloud's machine has it
_METADATA = ("169.254.169.254", "metadata.google.internal")


class NoBucket(StoreError):
    """The bucket or container does not exist."""


def classify(error: Exception, *, scheme: str, place: str) -> Answer:
    """Return a conflict or an absence, which are answers; raise our own error for everything else."""
    text = str(error)
    status = int(match[1]) if (match := _STATUS.search(text)) else None
    code = match[1] if (match := _CODE.search(text)) else ""
    if any(address in text for address in _METADATA):
        raise StoreUnavailable(
            f"{place}: no credentials were found, and the machine has none of its own; set those of the service in the "
            f"environment"
        ) from None
    if code in _NO_BUCKET:
        noun = "container" if scheme == "az" else "bucket"
        raise NoBucket(f"{place}: there is no such {noun}; create it first: mainstay store init {place}") from None
    if isinstance(error, PreconditionError | AlreadyExistsError) or status in (409, 412):
        return "conflict"
    if isinstance(error, FileNotFoundError):
        return "absent"
    if status in (401, 403):
        raise StoreDenied(
            f"{place}: the service denies it ({code or status}); the caller needs {_PERMISSIONS[scheme]}"
        ) from None
    if status is None or status in (408, 425, 429) or status >= 500:
        raise StoreUnavailable(f"{place}: {_shortened(text)}; the outcome of the request is unknown") from None
    raise StoreError(f"{place}: {_shortened(text)}") from None


def _shortened(text: str) -> str:
    """Without the driver's own structures, and without the query of a URL, which may be signed."""
    return re.sub(r"\?\S+", "", text.partition("\n\nDebug source")[0])[:400]
