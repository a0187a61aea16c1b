"""From a URL to whatever opens it, and what may be shown of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from ..errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def shown_url(url: str) -> str:
    """A store's URL without its secrets: for messages and logs.

    >>> shown_url("postgresql://ann:secret@db/jobs?password=x")
    'postgresql://ann:***@db/jobs'
    """
    head, _, _ = url.partition("?")
    scheme, slashes, rest = head.partition("://")
    if not slashes:
        scheme, _, rest = head.partition(":")
    who, at, place = rest.rpartition("@")
    if not at:
        return head
    if not slashes:  # there is no telling a name from a password then
        return f"{scheme}:***@{place}"
    user, colon, _ = who.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}@{place}"


#: options of URLs that open something; the rest says where it is, and how to speak to it
_SECRET = frozenset(
    {"secret_access_key", "session_token", "service_account", "token", "account_key", "sas_key", "password"}
)


def bare_url(url: str) -> str:
    """A URL as it may be stored: all of it but the secrets.

    >>> bare_url("s3://ours/runs?region=eu-1&secret_access_key=x")
    's3://ours/runs?region=eu-1'
    >>> bare_url("file:///srv/runs?sync=off")
    'file:///srv/runs?sync=off'
    """
    head, mark, query = url.partition("?")
    scheme, slashes, rest = head.partition("://")
    who, at, place = rest.rpartition("@")
    user, colon, _ = who.partition(":")
    if slashes and at and colon:
        head = f"{scheme}://{user}@{place}"
    kept = "&".join(option for option in query.split("&") if option.partition("=")[0].lower() not in _SECRET)
    return f"{head}{mark}{kept}" if kept else head


def split_url(url: str) -> SplitResult:
    """The parts of a URL; one that has none is refused without its secrets."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InvalidInput("store", f"{shown_url(url)!r} is not a store URL ({error})") from None


@contextlib.contextmanager
def driver_needed(scheme: str, drivers: Mapping[str, str]) -> Iterator[None]:
    """An adapter's driver is an extra, which may be missing. `drivers` names the extra that brings each."""
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
    """What opens stores of a scheme, imported only now; None if nobody does."""
    if target := ours.get(scheme):
        module, _, name = target.partition(":")
        return getattr(import_module(module), name)
    entries = [entry for entry in _others(group) if entry.name == scheme]
    return entries[0].load() if entries else None


def known_schemes(*, group: str, ours: Mapping[str, str]) -> str:
    return ", ".join(sorted({*ours, *(entry.name for entry in _others(group))}))


def _others(group: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415  # who opens one of ours starts without it

    return entry_points(group=group)
