"""What the server and the driver say, in our words."""

from __future__ import annotations

import pytest
from redis import exceptions as driver
from redis._parsers.base import BaseParser

from mainstay.errors import (
    MainstayError,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)
from mainstay.stores.redis.errors import is_passing, needs_new_connection, translated

SHOWN = "redis://:***@cache/0"


def said(answer: str) -> Exception:
    """The error the driver makes of a server's answer."""
    found: Exception = BaseParser.parse_error(answer)
    return found


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (said("OOM command not allowed when used memory > 'maxmemory'."), StoreFull),
        (said("MISCONF Errors writing to the AOF file: No space left on device"), StoreFull),
        (said("READONLY You can't write against a read only replica."), StoreReadOnly),
        (said("BUSY Redis is busy running a script. You can only call SCRIPT KILL"), StoreLocked),
        (said("NOPERM this user has no permissions to run the 'evalsha' command"), StoreError),
        (said("WRONGPASS invalid username-password pair or user is disabled."), StoreError),
        (said("NOAUTH Authentication required."), StoreError),
        (said("WRONGTYPE Operation against a key holding the wrong kind of value"), StoreError),
        (said("LOADING Redis is loading the dataset in memory"), StoreUnavailable),
        (said("CLUSTERDOWN The cluster is down"), StoreUnavailable),
        (said("ERR something new"), StoreError),
        (driver.ConnectionError("Error 111 connecting to cache:6379."), StoreUnavailable),
        (driver.TimeoutError("Timeout reading from socket"), StoreUnavailable),
        (ConnectionResetError(104, "Connection reset by peer"), StoreUnavailable),
    ],
)
def test_every_trouble_has_a_word_of_ours_and_names_the_server(error: Exception, kind: type[MainstayError]) -> None:
    found = translated(error, SHOWN)
    assert type(found) is kind
    assert SHOWN in str(found)


def test_a_wrong_password_is_said_plainly_and_without_it() -> None:
    found = translated(said("WRONGPASS invalid username-password pair or user is disabled."), SHOWN)
    assert "refused the user name or the password" in str(found)


@pytest.mark.parametrize("error", [StoreClosed("over"), ValueError("a mistake of ours")])
def test_what_is_not_the_servers_is_left_as_it_is(error: Exception) -> None:
    assert translated(error, SHOWN) is None
    assert not is_passing(error)


@pytest.mark.parametrize(
    ("answer", "passing"),
    [
        ("LOADING Redis is loading the dataset in memory", True),
        ("READONLY You can't write against a read only replica.", True),
        ("TRYAGAIN Multiple keys request during rehashing of slot", True),
        ("NOREPLICAS Not enough good replicas to write.", True),
        ("BUSY Redis is busy running a script.", True),
        ("OOM command not allowed", False),
        ("WRONGPASS invalid username-password pair", False),
        ("ERR unknown command", False),
        ("MISCONF Errors writing to the AOF file", False),
    ],
)
def test_only_what_may_pass_by_itself_is_tried_again(answer: str, passing: bool) -> None:
    assert is_passing(said(answer)) is passing


def test_a_primary_that_became_a_replica_needs_a_new_connection() -> None:
    assert needs_new_connection(said("READONLY You can't write against a read only replica."))
    assert not needs_new_connection(said("LOADING Redis is loading the dataset in memory"))
