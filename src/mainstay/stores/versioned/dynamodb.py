"""A versioned store in a table of DynamoDB.

An item is `place` (partition key, a string: the URL's prefix, or `-`), `name` (sort key, a string: the key), `value`
(binary) and `version` (a string that no other write has). All keys of a store are in one partition, so that they are
listed in order; DynamoDB gives a partition 1,000 writes of 1 KB and 3,000 reads of 4 KB in a second. A list reads whole
items, a megabyte at a time. Reads are consistent.

boto3 blocks during a request, so it runs in threads of the store.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError as NoConnection,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
)
from botocore.loaders import create_loader

from ...errors import InvalidInput, PayloadTooLarge, StoreClosed, StoreDenied, StoreError, StoreUnavailable
from ...storage import check_key, check_options, duration_of, number_of, options_in, shown_url
from .idempotent_write import read_again, write_once
from .input_check import check_listing, check_value, check_version, new_version
from .port import Versioned

_OPTIONS = (
    "access_key_id",
    "connect_timeout",
    "endpoint",
    "region",
    "secret_access_key",
    "session_token",
    "threads",
    "timeout",
    "tries",
)
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
#: an item may have 400 KB (409,600 bytes), its names and keys included
LARGEST = 400_000
#: greater than all characters of keys, and less
_ABOVE, _BELOW = "~", " "
#: caches the description of the service, which takes a fifth of a second to read
_LOADER = create_loader()
_CONDITION = "ConditionalCheckFailedException"
_READS = frozenset({"get_item", "query", "describe_table"})
_NO_TABLE = "ResourceNotFoundException"
_DENIED = {
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "ExpiredTokenException",
}
_BUSY = {
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "InternalServerError",
    "ServiceUnavailable",
    "TransactionInProgressException",
    "ReplicatedWriteConflictException",
}


async def open_dynamodb(url: str, *, options: dict[str, str]) -> DynamoVersioned:
    """Open `dynamodb://table/prefix`.

    Options: `region`, `endpoint`, `connect_timeout`, `timeout`, `tries`, `threads`, and credentials, which are better
    left in the environment or in the files that boto3 reads. Sends no request yet.
    """
    table, prefix = _names(url, options)
    tries = number_of(options, "tries", 4, least=1, most=20)
    # boto3 reads the description of the service from files
    return DynamoVersioned(await asyncio.to_thread(_DynamoClient, url, options), table, prefix, tries=tries)


async def prepare(url: str) -> list[str]:
    """Create the table of a URL if it does not exist, with on-demand billing. Returns what was done."""
    options = options_in(url)
    table, _ = _names(url, options)
    client = await asyncio.to_thread(_DynamoClient, url, options)
    try:
        try:
            await client.call("describe_table", TableName=table)
        except NoTable:
            await _create_table(client, table)
            await asyncio.to_thread(client.boto.get_waiter("table_exists").wait, TableName=table)
            return [f"created the table {table}"]
    finally:
        client.close()
    return []


async def _create_table(client: _DynamoClient, table: str) -> None:
    try:
        await client.call(
            "create_table",
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("place", "name")],
            KeySchema=[
                {"AttributeName": "place", "KeyType": "HASH"},
                {"AttributeName": "name", "KeyType": "RANGE"},
            ],
        )
    except DynamoRefusal as error:
        if error.reason == "ResourceInUseException":  # another program created it at the same moment
            return
        raise StoreError(
            f"{client.place}: the table could not be created ({error.reason}). To create it, with "
            f"dynamodb:CreateTable, run: aws dynamodb create-table --table-name {table} --billing-mode PAY_PER_REQUEST "
            f"--attribute-definitions AttributeName=place,AttributeType=S AttributeName=name,AttributeType=S "
            f"--key-schema AttributeName=place,KeyType=HASH AttributeName=name,KeyType=RANGE"
        ) from error


class DynamoRefusal(StoreError):
    """The service refused a request; `reason` is its name of the error."""

    def __init__(self, message: str, reason: str) -> None:
        self.reason = reason
        super().__init__(message)


class DynamoDenied(DynamoRefusal, StoreDenied):
    """The caller lacks a permission."""

    code = StoreDenied.code


class NoTable(DynamoRefusal):
    """The table does not exist."""


class _Conflict(Exception):
    """The condition did not hold; `stored` is the item that it was compared with, if there is one."""

    def __init__(self, stored: dict[str, Any] | None) -> None:
        self.stored = stored


class DynamoVersioned:
    """See the module's docstring."""

    def __init__(self, client: _DynamoClient, table: str, prefix: str, *, tries: int) -> None:
        self._client = client
        self._table = table
        self._partition = {"S": prefix or "-"}
        self._tries = tries

    @property
    def place(self) -> str:
        return self._client.place

    async def get(self, key: str) -> Versioned | None:
        response = await self._client.call("get_item", TableName=self._table, Key=self._key(key), ConsistentRead=True)
        item = response.get("Item")
        return None if item is None else Versioned(bytes(item["value"]["B"]), item["version"]["S"])

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        return await self._write(key, value, "version = :seen", {":seen": {"S": check_version(version)}})

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        return await self._write(key, value, "attribute_not_exists(version)", None)

    async def delete(self, key: str, version: str) -> bool:
        item = self._key(key)
        seen = {":seen": {"S": check_version(version)}}

        async def remove() -> str | None:
            try:
                await self._client.call(
                    "delete_item",
                    TableName=self._table,
                    Key=item,
                    ConditionExpression="version = :seen",
                    ExpressionAttributeValues=seen,
                )
            except _Conflict:
                return None
            return version

        async def mine() -> str | None:
            return None  # an absent item does not show which program deleted it

        return await write_once(remove, mine, tries=self._tries, what=f"{key} in {self.place}") is not None

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_listing(prefix, after, limit)
        first, last = max(prefix, after + _BELOW) or _BELOW, prefix + _ABOVE
        keys: list[str] = []
        more: dict[str, Any] = {}
        while first <= last:
            page = await self._client.call(
                "query",
                TableName=self._table,
                ConsistentRead=True,
                KeyConditionExpression="place = :place AND #name BETWEEN :first AND :last",
                ExpressionAttributeNames={"#name": "name"},
                ExpressionAttributeValues={":place": self._partition, ":first": {"S": first}, ":last": {"S": last}},
                ProjectionExpression="#name",
                Limit=limit - len(keys),
                **more,
            )
            keys += [item["name"]["S"] for item in page["Items"]]
            if len(keys) >= limit or not page.get("LastEvaluatedKey"):
                break
            more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
        return keys

    async def close(self) -> None:
        self._client.close()

    def _key(self, key: str) -> dict[str, Any]:
        return {"place": self._partition, "name": {"S": check_key(key)}}

    async def _write(self, key: str, value: bytes, condition: str, seen: dict[str, Any] | None) -> str | None:
        item = self._key(key)
        if len(check_value(value)) > LARGEST:
            raise PayloadTooLarge(
                "value",
                f"{len(value)} bytes are more than an item of DynamoDB holds (400 KB with its key); "
                f"keep large values in a bucket, or split them",
            )
        own = new_version()
        item |= {"value": {"B": value}, "version": {"S": own}}
        more = {"ExpressionAttributeValues": seen} if seen else {}
        stored: dict[str, Any] | None = None

        async def write() -> str | None:
            nonlocal stored
            try:
                await self._client.call(
                    "put_item",
                    TableName=self._table,
                    Item=item,
                    ConditionExpression=condition,
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                    **more,
                )
            except _Conflict as conflict:
                stored = conflict.stored
                return None
            return own

        async def mine() -> str | None:
            if stored and stored["version"]["S"] == own:
                return own
            found = await self.get(key)
            return own if found and found.version == own else None

        return await write_once(write, mine, tries=self._tries, what=f"{key} in {self.place}")


class _DynamoClient:
    """The client, in threads. Its errors are translated into ours."""

    def __init__(self, url: str, options: dict[str, str]) -> None:
        self.place = shown_url(url)
        threads = number_of(options, "threads", 16, least=1, most=256)
        session = botocore.session.get_session()
        session.register_component("data_loader", _LOADER)
        try:
            self.boto: Any = boto3.session.Session(botocore_session=session).client(
                "dynamodb",
                region_name=options.get("region"),
                endpoint_url=options.get("endpoint"),
                aws_access_key_id=options.get("access_key_id"),
                aws_secret_access_key=options.get("secret_access_key"),
                aws_session_token=options.get("session_token"),
                config=Config(
                    connect_timeout=duration_of(options, "connect_timeout", "5s"),
                    read_timeout=duration_of(options, "timeout", "10s"),
                    max_pool_connections=threads,
                    # the driver repeats nothing: a repeated write may conflict with itself; see idempotent_write.py
                    retries={"total_max_attempts": 1, "mode": "standard"},
                ),
            )
        except NoRegionError:
            raise InvalidInput("region", "the region of the table is missing; set ?region=... or AWS_REGION") from None
        self._tries = number_of(options, "tries", 4, least=1, most=20)
        self._threads: ThreadPoolExecutor | None = ThreadPoolExecutor(threads, thread_name_prefix="dynamodb")

    async def call(self, name: str, **parameters: Any) -> dict[str, Any]:
        once = partial(self._once, name, parameters)
        return await read_again(once, tries=self._tries) if name in _READS else await once()

    async def _once(self, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if self._threads is None:
            raise StoreClosed(f"{self.place} was closed; open it again")
        call: Callable[..., dict[str, Any]] = getattr(self.boto, name)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(**parameters))
        except ClientError as error:
            raise self._translated(error) from None
        except NoCredentialsError:
            raise StoreError(
                f"{self.place}: no credentials were found; set AWS_ACCESS_KEY_ID and "
                f"AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            ) from None
        except (HTTPClientError, NoConnection) as error:
            raise StoreUnavailable(
                f"{self.place}: the service does not answer ({type(error).__name__}); the outcome of the request is "
                "unknown"
            ) from None
        except BotoCoreError as error:
            raise StoreError(f"{self.place}: {error}") from None

    def _translated(self, error: ClientError) -> Exception:
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == _CONDITION:
            return _Conflict(error.response.get("Item"))
        if code == _NO_TABLE:
            return NoTable(
                f"{self.place}: there is no such table; create it first: mainstay store init {self.place}", code
            )
        if code in _DENIED:
            return DynamoDenied(
                f"{self.place}: the service denies it ({code}); the caller needs dynamodb:GetItem, PutItem, "
                f"DeleteItem and Query on the table",
                code,
            )
        if code in _BUSY or status >= 500:
            return StoreUnavailable(f"{self.place}: the service is busy or unavailable ({code or status}); try again")
        return DynamoRefusal(
            f"{self.place}: the service refuses it ({code}: {error.response['Error'].get('Message')})", code
        )

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None
            self.boto.close()


def _names(url: str, options: dict[str, str]) -> tuple[str, str]:
    check_options(options, _OPTIONS)
    parts = urlsplit(url)
    if not _TABLE.fullmatch(parts.netloc):
        raise InvalidInput("store", f"write dynamodb://table/prefix; {shown_url(url)!r} names no table")
    prefix = parts.path.strip("/")
    if prefix:
        check_key(prefix)
    return parts.netloc, prefix
