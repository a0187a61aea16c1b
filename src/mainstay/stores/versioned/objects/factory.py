"""From a URL to a versioned store in a bucket."""

from __future__ import annotations

from ....storage.buckets import BucketAddress
from .store import ObjectsVersioned


async def open_objects(url: str, *, options: dict[str, str]) -> ObjectsVersioned:
    """Open `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.

    Options: `endpoint`, `region`, `allow_http=on`, `timeout`, `connect_timeout`, `tries`, and credentials, which are
    better left in the environment, where each service has its usual variables. Nothing is asked of the service yet.
    """
    address = BucketAddress.read(url, options)
    return ObjectsVersioned(
        reads=address.connect(retries=address.tries - 1),
        writes=address.connect(retries=0),
        scheme=address.scheme,
        prefix=address.prefix,
        place=address.place,
        tries=address.tries,
    )
