"""From a URL to a bucket: the service, the address, the credentials and the timeouts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import msgspec
from obstore.store import AzureStore, GCSStore, S3Store

from ..errors import InvalidInput
from .keys import check_key
from .options import check_options, duration_of, is_on, number_of
from .runtime_exit import settle_at_exit
from .service_errors import Answer, classify
from .urls import shown_url

Bucket = S3Store | GCSStore | AzureStore

#: for each service: option of the URL -> setting of obstore
_SETTINGS = {
    "s3": {
        "endpoint": "endpoint",
        "region": "region",
        "access_key_id": "access_key_id",
        "secret_access_key": "secret_access_key",
        "session_token": "session_token",
    },
    "gs": {"endpoint": "base_url", "service_account": "service_account", "token": "bearer_token"},
    "az": {
        "endpoint": "endpoint",
        "account_name": "account_name",
        "account_key": "account_key",
        "sas_key": "sas_key",
    },
}
_COMMON = ("allow_http", "connect_timeout", "timeout", "tries")


class BucketAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL."""

    scheme: str
    bucket: str
    prefix: str
    place: str
    settings: dict[str, str]
    allow_http: bool
    timeout_s: float
    connect_s: float
    tries: int

    @classmethod
    def read(cls, url: str, options: dict[str, str]) -> BucketAddress:
        parts = urlsplit(url)
        settings = _SETTINGS[parts.scheme]
        check_options(options, (*settings, *_COMMON))
        if not parts.netloc or "@" in parts.netloc:
            raise InvalidInput("store", f"write {parts.scheme}://bucket/prefix; {shown_url(url)!r} names no bucket")
        prefix = parts.path.strip("/")
        if prefix:
            check_key(prefix)
        return cls(
            scheme=parts.scheme,
            bucket=parts.netloc,
            prefix=prefix,
            place=shown_url(url),
            settings={settings[name]: value for name, value in options.items() if name in settings},
            allow_http=is_on(options, "allow_http"),
            timeout_s=duration_of(options, "timeout", "30s"),
            connect_s=duration_of(options, "connect_timeout", "5s"),
            tries=number_of(options, "tries", 4, least=1, most=20),
        )

    @property
    def root(self) -> str:
        """What every key in the bucket begins with."""
        return f"{self.prefix}/" if self.prefix else ""

    @property
    def noun(self) -> str:
        return "container" if self.scheme == "az" else "bucket"

    def classify(self, error: Exception) -> Answer:
        """See `service_errors.classify`."""
        return classify(error, scheme=self.scheme, place=self.place)

    def connect(self, *, retries: int) -> Bucket:
        settle_at_exit()
        kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
        bucket: Bucket = kinds[self.scheme](
            self.bucket,
            client_options={
                "allow_http": self.allow_http,
                "connect_timeout": timedelta(seconds=self.connect_s),
                "timeout": timedelta(seconds=self.timeout_s),
            },
            retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=self.timeout_s)},
            **self.settings,
        )
        return bucket
