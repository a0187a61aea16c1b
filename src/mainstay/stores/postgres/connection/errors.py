"""What the driver and the server refuse: what is worth another try, and the rest in our own words.

The text of a driver's error may hold a row's values, and an address its password: what is shown is the server's own
message line and the URL without its secrets.
"""

from __future__ import annotations

from collections.abc import Callable

import asyncpg

from ....errors import (
    InvalidInput,
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
    # what a connection has prepared is of functions that a migration has made anew: the next one prepares them again
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
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
    if isinstance(error, asyncpg.InternalServerError):
        return "cache lookup failed for function" in str(error)  # the same, in the very moment of the migration
    return isinstance(error, (*_AWAY, OSError, TimeoutError, EOFError))


def translated(error: BaseException, place: str) -> BaseException:
    """The same in our own words. What is ours already, or nobody's business here, comes back as it is."""
    if isinstance(error, MainstayError):
        return error
    for kinds, words in _WORDS:
        if isinstance(error, kinds):
            return words(place, _line(error))
    if is_lost(error):
        return unavailable(error, place)
    if isinstance(error, (asyncpg.PostgresError, asyncpg.InterfaceError)):
        return StoreError(f"{place}: the server refused ({_line(error)}); nothing of this call was written")
    return error


#: what is said for each kind: of which place, and the server's own line
_WORDS: tuple[tuple[tuple[type[BaseException], ...], Callable[[str, str], MainstayError]], ...] = (
    (
        (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.ConnectionRejectionError),
        lambda place, line: StoreError(f"{place} refuses the login ({line}); check user, password and pg_hba.conf"),
    ),
    (
        (asyncpg.InvalidCatalogNameError,),
        lambda place, line: StoreError(f"there is no such database ({line}); create it, or correct {place}"),
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        lambda place, line: StoreReadOnly(
            f"{place} takes no writes ({line}): it is a standby. Name the primary, or several hosts with "
            "target_session_attrs=read-write"
        ),
    ),
    (
        (asyncpg.LockNotAvailableError,),
        lambda place, _: StoreLocked(
            f"another transaction on {place} keeps locked what this call needs; nothing was written. Find the one that "
            "stays open (pg_stat_activity, state 'idle in transaction') and end it, then try again"
        ),
    ),
    (
        (asyncpg.DiskFullError, asyncpg.OutOfMemoryError),
        lambda place, line: StoreFull(
            f"no space left on {place} ({line}); nothing was written. Free space, then try again"
        ),
    ),
    (
        (asyncpg.ProgramLimitExceededError,),
        lambda place, line: StoreError(
            f"{place}: that is too much for one statement ({line}); nothing of this call was written. Send it in "
            "several smaller ones"
        ),
    ),
    (
        (asyncpg.InsufficientPrivilegeError,),
        lambda place, line: StoreReadOnly(
            f"{place}: this user may not do that ({line}); grant it, or use another user"
        ),
    ),
    (
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError),
        lambda place, line: StoreDamaged(
            f"{place} is damaged as a database, not merely in its rows ({line}). Stop writing to it and look at the "
            "server's log"
        ),
    ),
    (
        (asyncpg.InvalidSQLStatementNameError,),
        lambda place, line: StoreError(
            f"{place}: what was prepared on a connection is not there any more ({line}). There is a pooler in between "
            "that shares connections (transaction mode): add listen=off to the URL"
        ),
    ),
    (
        (asyncpg.UndefinedFunctionError,),
        lambda place, line: StoreError(
            f"{place} lacks a function that this Mainstay calls ({line}): it was migrated by another release, or the "
            "function was dropped. Run: mainstay store status, then mainstay store migrate or mainstay check --repair"
        ),
    ),
    (
        (asyncpg.CharacterNotInRepertoireError,),
        lambda place, _: InvalidInput("text", f"it has a NUL character, which {place} cannot store; take it out"),
    ),
    (
        (UnicodeDecodeError,),
        lambda place, _: RowDamaged(
            f"a row of {place} has text that is not text; find it with: mainstay check --store {place}"
        ),
    ),
)


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
