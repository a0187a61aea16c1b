"""Creating a bucket or a container, which obstore cannot do; or the command to run where we cannot do it either."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from datetime import timedelta
from email.utils import formatdate
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import obstore
from obstore.store import S3Store

from ....errors import StoreError, StoreUnavailable
from ....storage import BucketAddress, NoBucket, options_in
from .store import ObjectsVersioned

_AZURE_VERSION = "2021-12-02"
_FIRST_REGION = "us-east-1"  # the one region that a request to create a bucket must not name


async def prepare(url: str) -> list[str]:
    """Create the bucket or container of a URL if it does not exist. Returns what was done. If it cannot be created from
    here, the error has the command to run."""
    address = BucketAddress.read(url, options_in(url))
    store = ObjectsVersioned(address)
    try:
        await store.list_keys(limit=1)
    except NoBucket:
        await _create(address)
        await store.list_keys(limit=1)
        return [f"created the {address.noun} {address.bucket}"]
    finally:
        await store.close()
    return []


async def _create(address: BucketAddress) -> None:
    if address.scheme == "s3":
        await _create_on_s3(address)
    elif address.scheme == "az":
        await _create_on_azure(address)
    else:
        raise StoreError(
            f"{address.place}: there is no such bucket. To create it, with storage.buckets.create on the project, run: "
            f"gcloud storage buckets create gs://{address.bucket}"
        )


async def _create_on_s3(address: BucketAddress) -> None:
    region = address.settings.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    advice = (
        f"to create it, with s3:CreateBucket, run: aws s3api create-bucket --bucket {address.bucket}"
        + (f" --region {region}" if region else "")
        + (f" --create-bucket-configuration LocationConstraint={region}" if region not in (None, _FIRST_REGION) else "")
    )
    body = b""
    if region not in (None, _FIRST_REGION):
        body = (
            '<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
        ).encode()
    bucket = address.connect(retries=0)
    assert isinstance(bucket, S3Store)
    # without a key, it is the URL of the bucket
    signed = await obstore.sign_async(bucket, "PUT", "", timedelta(minutes=1))
    await _put(signed, body, {}, address, advice)


async def _create_on_azure(address: BucketAddress) -> None:
    account = address.settings.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    key = address.settings.get("account_key") or os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
    advice = (
        "to create it, with the account's key or the role Storage Blob Data Contributor, run: "
        f"az storage container create --name {address.bucket} --account-name {account or 'ACCOUNT'}"
    )
    if not (account and key):
        raise StoreError(f"{address.place}: there is no such container; {advice}")
    endpoint = address.settings.get("endpoint") or f"https://{account}.blob.core.windows.net"
    path = f"{urlsplit(endpoint).path.rstrip('/')}/{address.bucket}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _AZURE_VERSION}
    signed_headers = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    # of eleven standard headers only the type is sent: urllib would add one
    kind = "application/octet-stream"
    signed = f"PUT\n\n\n\n\n{kind}\n\n\n\n\n\n\n{signed_headers}/{account}{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
    headers |= {
        "Authorization": f"SharedKey {account}:{base64.b64encode(digest).decode()}",
        "Content-Type": kind,
        "Content-Length": "0",
    }
    target = f"{endpoint.rstrip('/')}/{address.bucket}?restype=container"
    await _put(target, b"", headers, address, advice)


async def _put(target: str, body: bytes, headers: dict[str, str], address: BucketAddress, advice: str) -> None:
    if not target.startswith(("https://", "http://") if address.allow_http else "https://"):
        raise StoreError(f"{address.place}: its endpoint does not use https; to allow http, add allow_http=on")
    request = Request(target, data=body, method="PUT", headers=headers)  # noqa: S310 - its scheme was checked above

    def send() -> None:
        with urlopen(request, timeout=address.timeout_s):  # noqa: S310 - the same request
            pass

    try:
        await asyncio.to_thread(send)
    except HTTPError as error:
        with error:
            if error.code == 409:  # another program created it at the same moment
                return
            if error.code >= 500:
                raise StoreUnavailable(f"{address.place}: the service responds with {error.code}; try again") from None
            raise StoreError(f"{address.place}: it could not be created ({error.code}); {advice}") from None
    except (OSError, HTTPException) as error:
        raise StoreUnavailable(f"{address.place}: the service does not answer ({error}); try again") from None
