"""What the driver and the server refuse: what is worth another try, and the rest in our own words.

The text of a driver's error may hold a row's values, and an address its password: what is shown is the server's own
message line and the URL without its secrets.
"""

from __future__ import annotations

import asyncpg

from ...errors import (
    MainstayError,
    RowDamaged,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)

#: the statement met another transaction and lost; nothing of it was written
_CLASHES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
#: the server is going down, coming up, too full to answer now, or has become a standby
_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    # with the one for hosts of which none is the kind that was asked for; and for a driver that lost its place when the
    # connection broke under it
    asyncpg.InternalClientError,
)
#: a wrong name or password, a database that is not there, settings that contradict each other: it stays so
_HOPELESS = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ClientConfigurationError,
    asyncpg.ConnectionRejectionError,
)


def is_clash(error: BaseException) -> bool:
    """Whether the same transaction is likely to pass when it is tried again at once."""
    return isinstance(error, _CLASHES)


def is_lost(error: BaseException) -> bool:
    """Whether the connection, or the server behind it, is gone; so that another connection may do."""
    if isinstance(error, _HOPELESS):
        return False
    # the driver has no kind of its own for a connection that it found closed when it was about to use it
    if isinstance(error, asyncpg.InterfaceError):
        return "connection" in str(error) and "closed" in str(error)
    return isinstance(error, (*_AWAY, OSError, TimeoutError, EOFError))


def translated(error: BaseException, place: str) -> BaseException:
    """The same in our own words. What is ours already, or nobody's business here, comes back as it is."""
    if isinstance(error, MainstayError):
        return error
    if isinstance(error, (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.ConnectionRejectionError)):
        return StoreError(f"{place} lets nobody in so ({_line(error)}); check user, password and pg_hba.conf")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return StoreError(f"there is no such database ({_line(error)}); create it, or correct {place}")
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return StoreReadOnly(
            f"{place} takes no writes ({_line(error)}): it is a standby. Name the primary, or several hosts with "
            "target_session_attrs=read-write"
        )
    if is_lost(error):
        return unavailable(error, place)
    if isinstance(error, asyncpg.LockNotAvailableError):
        return StoreLocked(
            f"another transaction on {place} keeps locked what this call needs; nothing was written. Find the one that "
            "stays open (pg_stat_activity, state 'idle in transaction') and end it, then try again"
        )
    if isinstance(error, (asyncpg.DiskFullError, asyncpg.OutOfMemoryError)):
        return StoreFull(f"no space left on {place} ({_line(error)}); nothing was written. Free space, then try again")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreReadOnly(f"{place}: this user may not do that ({_line(error)}); grant it, or use another user")
    if isinstance(error, (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError)):
        return StoreDamaged(
            f"{place} is damaged as a database, not merely in its rows ({_line(error)}). Stop writing to it and look "
            "at the server's log"
        )
    if isinstance(error, UnicodeDecodeError):
        return RowDamaged(f"a row of {place} has text that is not text; find it with: mainstay check --store {place}")
    if isinstance(error, (asyncpg.PostgresError, asyncpg.InterfaceError)):
        return StoreError(f"{place}: the server refused ({_line(error)}); nothing of this call was written")
    return error


def unavailable(error: BaseException, place: str, tries: int = 1) -> StoreUnavailable:
    times = "" if tries == 1 else f" after {tries} tries"
    return StoreUnavailable(
        f"{place} does not answer{times} ({_line(error)}). What was asked may have been done; asking again is safe. "
        "Check that the server runs and can be reached from here"
    )


def _line(error: BaseException) -> str:
    """The first line of what was said: hints and details may hold values of rows."""
    if isinstance(error, TimeoutError) and not str(error):
        return "timed out"
    return (str(error).splitlines() or [type(error).__name__])[0]
