"""The errors of the driver and the server, translated into ours with advice. No password ever gets into a message: it
names the server by `shown_url`, and quotes only those texts of the driver that cannot contain one."""

from __future__ import annotations

import asyncio

from redis import exceptions as driver

from ...errors import (
    MainstayError,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)

#: first words of error replies after which the same call may succeed a moment later
_PASSING = ("LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "READONLY", "UNBLOCKED", "BUSY", "ASK")


def is_passing(error: BaseException) -> bool:
    """Whether the same call may succeed in a moment: the connection was lost or could not be made, or the server is
    starting, failing over or busy."""
    if isinstance(error, (driver.AuthenticationError, driver.AuthorizationError)):
        return False
    if isinstance(error, (driver.ConnectionError, driver.TimeoutError, OSError, EOFError, asyncio.IncompleteReadError)):
        return True
    if isinstance(error, (driver.AskError, driver.TryAgainError, driver.ClusterDownError)):
        return True
    return isinstance(error, driver.RedisError) and _code(error) in _PASSING


def needs_new_connection(error: BaseException) -> bool:
    """Whether the connections lead to the wrong server by now: a primary that became a replica, or a server that is
    silent. Without this, each of the other connections would cost an attempt."""
    return isinstance(error, (driver.ReadOnlyError, driver.TimeoutError)) or _code(error) == "READONLY"


def translated(error: Exception, shown: str) -> MainstayError | None:
    """Our error for one of the driver; None if it is not of the driver."""
    if isinstance(error, MainstayError) or not isinstance(error, (driver.RedisError, OSError, EOFError)):
        return None
    code = _code(error)
    if isinstance(error, (driver.AuthenticationError, driver.AuthorizationError)) or code in ("NOAUTH", "WRONGPASS"):
        return StoreError(f"{shown} refused the user name or the password; check them in the store's URL")
    if isinstance(error, driver.NoPermissionError) or code == "NOPERM":
        return StoreError(
            f"{shown}: this user lacks a permission ({_quoted(error)}). It needs the commands that read and write "
            "data, EVAL, EVALSHA, TIME, INFO and PING, on the keys of the store's prefix; for a database other than 0, "
            "SELECT"
        )
    if isinstance(error, driver.OutOfMemoryError) or code == "OOM":
        return StoreFull(
            f"{shown} has no memory left (maxmemory); nothing of this call was written. Trim settled jobs, or give the "
            "server more memory, then try again"
        )
    if code == "MISCONF":
        return StoreFull(
            f"{shown} cannot write to its disk and refuses changes; nothing of this call was written. Look at the "
            "server's log, free its disk, then try again"
        )
    if isinstance(error, driver.ReadOnlyError) or code == "READONLY":
        return StoreReadOnly(f"{shown} is a read-only replica; name the primary in the store's URL")
    if code == "BUSY":
        return StoreLocked(f"{shown} is busy with another program's script; look at it with: redis-cli SLOWLOG GET")
    if code in ("WRONGTYPE", "CROSSSLOT"):
        return StoreError(
            f"{shown}: a key of this namespace was not written by Mainstay ({_quoted(error)}). Does another program "
            "write under this prefix? Choose another with ?prefix=NAME, or run: mainstay check"
        )
    if is_passing(error):
        return unavailable(error, shown)
    return StoreError(f"{shown} refused ({_quoted(error)})")


def unavailable(error: BaseException, shown: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{shown} cannot be reached ({_quoted(error)}). The outcome of the last call is unknown; repeating it is safe: "
        "nothing is done twice, and a job that it submitted is refused by its id. Check that the server runs and that "
        "this machine reaches it"
    )


def _code(error: BaseException) -> str:
    """The first word of the server's error. The driver removes it if it has a class for the error."""
    if found := getattr(error, "status_code", None):
        return str(found)
    word, _, _ = str(error).partition(" ")
    return word if word.isupper() else ""


def _quoted(error: BaseException) -> str:
    """The driver's text, on one line and shortened: a reply may quote a script."""
    if isinstance(error, (asyncio.TimeoutError, driver.TimeoutError)):
        return "no answer in time"
    text = " ".join(str(error).split())
    return text[:200] or type(error).__name__
