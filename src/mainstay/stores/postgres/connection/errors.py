"""Errors of the driver and the server: which are worth another try, and all others as errors of Mainstay.

The text of a driver's error may contain values of a row, and an address its password. So messages have only the
server's own message line and the URL without its secrets.
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

#: the statement lost against another transaction; nothing of it was written
_CLASHES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
#: the server is stopping, starting, out of connections, or has become a standby
_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    # a migration has replaced functions that the connection has prepared: the next connection prepares them again
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
    # includes the error for a list of hosts without one of the requested kind, and the state of a driver whose
    # connection broke
    asyncpg.InternalClientError,
)
#: a wrong name or password, a missing database, contradictory settings: another try does not help
_HOPELESS = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ClientConfigurationError,
    asyncpg.ConnectionRejectionError,
)


def is_clash(error: BaseException) -> bool:
    """Whether the same transaction is likely to succeed at once on another try."""
    return isinstance(error, _CLASHES)


def is_lost(error: BaseException) -> bool:
    """Whether the connection or the server is lost, so that another connection may work."""
    if isinstance(error, _HOPELESS):
        return False
    # the driver has no error class of its own for a connection that was closed before use
    if isinstance(error, asyncpg.InterfaceError):
        return "connection" in str(error) and "closed" in str(error)
    if isinstance(error, asyncpg.InternalServerError):
        return "cache lookup failed for function" in str(error)  # the same, during the migration
    return isinstance(error, (*_AWAY, OSError, TimeoutError, EOFError))


def translated(error: BaseException, place: str) -> BaseException:
    """The error as one of ours. An error of ours, or one that is not of the driver, is returned as it is."""
    if isinstance(error, MainstayError):
        return error
    for kinds, translate in _TRANSLATIONS:
        if isinstance(error, kinds):
            return translate(place, _line(error))
    if is_lost(error):
        return unavailable(error, place)
    if isinstance(error, (asyncpg.PostgresError, asyncpg.InterfaceError)):
        return StoreError(f"{place}: the server refused the call ({_line(error)}); nothing of it was written")
    return error


#: error classes of the driver -> an error of ours, from the place and the server's own line
_TRANSLATIONS: tuple[tuple[tuple[type[BaseException], ...], Callable[[str, str], MainstayError]], ...] = (
    (
        (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.ConnectionRejectionError),
        lambda place, line: StoreError(f"{place} refuses the login ({line}); check user, password and pg_hba.conf"),
    ),
    (
        (asyncpg.InvalidCatalogNameError,),
        lambda place, line: StoreError(f"the database does not exist ({line}); create it, or correct {place}"),
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        lambda place, line: StoreReadOnly(
            f"{place} accepts no writes ({line}): it is a standby. Use the address of the primary, or several hosts "
            "with target_session_attrs=read-write"
        ),
    ),
    (
        (asyncpg.LockNotAvailableError,),
        lambda place, _: StoreLocked(
            f"another transaction on {place} holds a lock that this call needs; nothing was written. Find the "
            "transaction that stays open (pg_stat_activity, state 'idle in transaction') and end it, then try again"
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
            f"{place}: the call is too large for one statement ({line}); nothing of it was written. Send several "
            "smaller ones"
        ),
    ),
    (
        (asyncpg.InsufficientPrivilegeError,),
        lambda place, line: StoreReadOnly(
            f"{place}: the user lacks a privilege ({line}); grant it, or use another user"
        ),
    ),
    (
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError),
        lambda place, line: StoreDamaged(
            f"{place} is damaged as a database, not only in its rows ({line}). Stop writing to it, and read the "
            "server's log"
        ),
    ),
    (
        (asyncpg.InvalidSQLStatementNameError,),
        lambda place, line: StoreError(
            f"{place}: a prepared statement is gone ({line}). A pooler shares the connection with other clients "
            "(transaction mode): add listen=off to the URL"
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
        lambda place, _: InvalidInput("text", f"it has a NUL character, which {place} cannot store; remove it"),
    ),
    (
        (UnicodeDecodeError,),
        lambda place, _: RowDamaged(f"a row of {place} has invalid text; find it with: mainstay check --store {place}"),
    ),
)


def unavailable(error: BaseException, place: str, tries: int = 1) -> StoreUnavailable:
    times = "" if tries == 1 else f" after {tries} tries"
    return StoreUnavailable(
        f"{place} does not answer{times} ({_line(error)}). The call may have been executed; it is safe to repeat it. "
        "Check that the server runs and can be reached from here"
    )


def _line(error: BaseException) -> str:
    """The first line of a message: hints and details may contain values of rows."""
    if isinstance(error, TimeoutError) and not str(error):
        return "timed out"
    return (str(error).splitlines() or [type(error).__name__])[0]
