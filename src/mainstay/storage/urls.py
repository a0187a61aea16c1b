"""URLs of storage: their parts, the form that may be shown, and the adapter that opens each scheme."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from ..errors import InvalidInput, MissingExtra, NoAdapter

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def shown_url(url: str) -> str:
    """A store's URL without its secrets, for messages and logs.

    >>> shown_url("postgresql://ann:secret@db/jobs?password=x")
    'postgresql://ann:***@db/jobs'
    """
    head, _, _ = url.partition("?")
    scheme, slashes, rest = head.partition("://")
    if not slashes:
        scheme, _, rest = head.partition(":")
    credentials, at, place = rest.rpartition("@")
    if not at:
        return head
    if not slashes:  # then a user name cannot be told from a password
        return f"{scheme}:***@{place}"
    user, colon, _ = credentials.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}@{place}"


#: options of URLs that are secrets
_SECRET = frozenset(
    {"secret_access_key", "session_token", "service_account", "token", "account_key", "sas_key", "password"}
)


def bare_url(url: str) -> str:
    """A URL without its secrets and with its other options, for storing it.

    >>> bare_url("s3://ours/runs?region=eu-1&secret_access_key=x")
    's3://ours/runs?region=eu-1'
    >>> bare_url("file:///srv/runs?sync=off")
    'file:///srv/runs?sync=off'
    """
    head, mark, query = url.partition("?")
    scheme, slashes, rest = head.partition("://")
    credentials, at, place = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    if slashes and at and colon:
        head = f"{scheme}://{user}@{place}"
    kept = "&".join(option for option in query.split("&") if option.partition("=")[0].lower() not in _SECRET)
    return f"{head}{mark}{kept}" if kept else head


def split_url(url: str) -> SplitResult:
    """The parts of a URL. The error for a malformed one shows no secrets."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InvalidInput("store", f"{shown_url(url)!r} is not a store URL ({error})") from None


def options_in(url: str) -> dict[str, str]:
    """The options of a URL, which follow its question mark.

    >>> options_in("file:jobs?busy_timeout=5s")
    {'busy_timeout': '5s'}
    """
    return dict(parse_qsl(split_url(url).query, keep_blank_values=True))


def folder_in(url: str, *, field: str, example: str) -> Path:
    """The folder that a `file:` URL names."""
    parts = split_url(url)
    path = unquote(parts.path)
    if parts.netloc or not path.strip("/") or parts.fragment:
        raise InvalidInput(field, f"{shown_url(url)!r} names no folder; write file:///srv/{example}, or file:{example}")
    return Path(path)


class Adapters(msgspec.Struct, frozen=True, kw_only=True):
    """The adapters of one kind of storage, by the scheme of a URL: our own, and those of an entry point group."""

    noun: str
    field: str
    """the parameter that errors name"""
    example: str
    """a URL, for errors"""
    group: str
    ours: Mapping[str, str]
    """scheme -> "module:function" """
    drivers: Mapping[str, str]
    """a driver that may be missing -> the extra that installs it"""

    async def open(self, url: str) -> Any:
        """Have the adapter of a URL open it."""
        scheme = self.scheme_of(url)
        with driver_needed(scheme, self.drivers):
            opener = find_adapter(scheme, group=self.group, ours=self.ours)
            if opener is None:
                known = known_schemes(group=self.group, ours=self.ours)
                raise NoAdapter(
                    self.field, f"no {self.noun} for {scheme!r} (in {shown_url(url)!r}); known schemes: {known}"
                )
            return await opener(url, options=options_in(url))

    def scheme_of(self, url: str) -> str:
        if not isinstance(url, str) or ":" not in url:
            raise InvalidInput(self.field, f"{url!r} is not a store URL; write one like {self.example!r}")
        return split_url(url).scheme


@contextlib.contextmanager
def driver_needed(scheme: str, drivers: Mapping[str, str]) -> Iterator[None]:
    """Name the extra to install when a driver is missing. `drivers` maps each driver to its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name not in drivers:
            raise
        extra = f"mainstay[{drivers[error.name]}]"
        raise MissingExtra(
            "store", f"{scheme}: stores need {error.name}, which is not installed; run: pip install '{extra}'"
        ) from None


def find_adapter(scheme: str, *, group: str, ours: Mapping[str, str]) -> Any:
    """The adapter for a scheme, imported now; None if there is none."""
    if target := ours.get(scheme):
        module, _, name = target.partition(":")
        return getattr(import_module(module), name)
    entries = [entry for entry in _entry_points(group) if entry.name == scheme]
    return entries[0].load() if entries else None


def known_schemes(*, group: str, ours: Mapping[str, str]) -> str:
    return ", ".join(sorted({*ours, *(entry.name for entry in _entry_points(group))}))


def _entry_points(group: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415  # our own adapters start without it

    return entry_points(group=group)
