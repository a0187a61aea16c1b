"""What the driver and the server say, in our own words and with advice. No password ever gets into a message: the
server is named by `shown_url`, and of the driver's words only those that cannot hold one are passed on."""

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

#: first words of answers after which the same call may succeed a moment later
_PASSING = ("LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "READONLY", "UNBLOCKED", "BUSY", "ASK")


def is_passing(error: BaseException) -> bool:
    """Whether the same call, sent again in a moment, may well succeed: the connection was lost or never made, or the
    server is starting, failing over or busy."""
    if isinstance(error, (driver.AuthenticationError, driver.AuthorizationError)):
        return False
    if isinstance(error, (driver.ConnectionError, driver.TimeoutError, OSError, EOFError, asyncio.IncompleteReadError)):
        return True
    if isinstance(error, (driver.AskError, driver.TryAgainError, driver.ClusterDownError)):
        return True
    return isinstance(error, driver.RedisError) and _code(error) in _PASSING


def needs_new_connection(error: BaseException) -> bool:
    """Whether what is at the other end of the connections is the wrong server by now, a primary that became a replica;
    or nobody: where one is silent, finding it out of the others would cost a try each."""
    return isinstance(error, (driver.ReadOnlyError, driver.TimeoutError)) or _code(error) == "READONLY"


def translated(error: Exception, shown: str) -> MainstayError | None:
    """Our error for what the driver raised; None if it is not the driver's."""
    if isinstance(error, MainstayError) or not isinstance(error, (driver.RedisError, OSError, EOFError)):
        return None
    code = _code(error)
    if isinstance(error, (driver.AuthenticationError, driver.AuthorizationError)) or code in ("NOAUTH", "WRONGPASS"):
        return StoreError(f"{shown} refused the user name or the password; check them in the store's URL")
    if isinstance(error, driver.NoPermissionError) or code == "NOPERM":
        return StoreError(
            f"{shown}: this user may not do that ({_said(error)}). It needs the commands that read and write data, "
            "EVAL, EVALSHA, TIME, INFO and PING, on the keys of the store's prefix; of a database other than 0, SELECT"
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
            f"{shown}: a key of this namespace is not what Mainstay made of it ({_said(error)}). Does another program "
            "write under this prefix? Choose another with ?prefix=NAME, or run: mainstay check"
        )
    if is_passing(error):
        return unavailable(error, shown)
    return StoreError(f"{shown} refused ({_said(error)})")


def unavailable(error: BaseException, shown: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{shown} cannot be reached ({_said(error)}). Whether the last call was carried out is not known; repeating it "
        "is safe: nothing is done twice, and a job that was submitted by it is refused by its id. Check that the "
        "server runs and that this machine reaches it"
    )


def _code(error: BaseException) -> str:
    """The first word of what the server answered. The driver cuts it off where it has a class for it."""
    if found := getattr(error, "status_code", None):
        return str(found)
    word, _, _ = str(error).partition(" ")
    return word if word.isupper() else ""


def _said(error: BaseException) -> str:
    """What the driver said, on one line and not at length: an answer may quote a script."""
    if isinstance(error, (asyncio.TimeoutError, driver.TimeoutError)):
        return "no answer in time"
    text = " ".join(str(error).split())
    return text[:200] or type(error).__name__
