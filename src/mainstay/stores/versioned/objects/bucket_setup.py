"""Making a bucket or a container, which obstore cannot; where we cannot either, saying how it is made."""

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
from urllib.parse import parse_qsl, urlsplit
from urllib.request import Request, urlopen

import obstore
from obstore.store import S3Store

from ....errors import StoreError, StoreUnavailable
from ....storage.buckets import BucketAddress
from ....storage.service_errors import NoBucket
from .factory import open_objects

_AZURE_VERSION = "2021-12-02"
_FIRST_REGION = "us-east-1"  # the one that must not be named when a bucket is made


async def prepare(url: str) -> list[str]:
    """Make the bucket or container of a URL if there is none: what was done. Raises with the command to run if it
    cannot be made from here."""
    options = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    address = BucketAddress.read(url, options)
    store = await open_objects(url, options=options)
    try:
        await store.list_keys(limit=1)
    except NoBucket:
        await _make(address)
        await store.list_keys(limit=1)
        return [f"made the {'container' if address.scheme == 'az' else 'bucket'} {address.bucket}"]
    finally:
        await store.close()
    return []


async def _make(address: BucketAddress) -> None:
    if address.scheme == "s3":
        await _make_on_s3(address)
    elif address.scheme == "az":
        await _make_on_azure(address)
    else:
        raise StoreError(
            f"{address.place}: there is no such bucket; it takes storage.buckets.create on the project to make it: "
            f"gcloud storage buckets create gs://{address.bucket}"
        )


async def _make_on_s3(address: BucketAddress) -> None:
    region = address.settings.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    advice = (
        f"it takes s3:CreateBucket to make it: aws s3api create-bucket --bucket {address.bucket}"
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
    # the address of no object is that of the bucket
    signed = await obstore.sign_async(bucket, "PUT", "", timedelta(minutes=1))
    await _ask(signed, body, {}, address, advice)


async def _make_on_azure(address: BucketAddress) -> None:
    account = address.settings.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    key = address.settings.get("account_key") or os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
    advice = (
        "it takes the account's key, or the role Storage Blob Data Contributor, to make it: "
        f"az storage container create --name {address.bucket} --account-name {account or 'ACCOUNT'}"
    )
    if not (account and key):
        raise StoreError(f"{address.place}: there is no such container; {advice}")
    endpoint = address.settings.get("endpoint") or f"https://{account}.blob.core.windows.net"
    path = f"{urlsplit(endpoint).path.rstrip('/')}/{address.bucket}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _AZURE_VERSION}
    told = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    # eleven standard headers, none of which is sent: the type is named because urllib would add one
    kind = "application/octet-stream"
    signed = f"PUT\n\n\n\n\n{kind}\n\n\n\n\n\n\n{told}/{account}{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
    headers |= {
        "Authorization": f"SharedKey {account}:{base64.b64encode(digest).decode()}",
        "Content-Type": kind,
        "Content-Length": "0",
    }
    where = f"{endpoint.rstrip('/')}/{address.bucket}?restype=container"
    await _ask(where, b"", headers, address, advice)


async def _ask(where: str, body: bytes, headers: dict[str, str], address: BucketAddress, advice: str) -> None:
    if not where.startswith(("https://", "http://") if address.allow_http else "https://"):
        raise StoreError(f"{address.place}: its endpoint is not https; with allow_http=on it may be http")
    request = Request(where, data=body, method="PUT", headers=headers)  # noqa: S310 - its scheme was looked at above

    def ask() -> None:
        with urlopen(request, timeout=address.timeout_s):  # noqa: S310 - the same request
            pass

    try:
        await asyncio.to_thread(ask)
    except HTTPError as error:
        with error:
            if error.code == 409:  # somebody made it in the same moment
                return
            if error.code >= 500:
                raise StoreUnavailable(f"{address.place}: the service answers {error.code}; try again") from None
            raise StoreError(f"{address.place}: it could not be made ({error.code}); {advice}") from None
    except (OSError, HTTPException) as error:
        raise StoreUnavailable(f"{address.place}: the service does not answer ({error}); try again") from None
