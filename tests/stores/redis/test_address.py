"""The URL of a Redis store."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest

from mainstay.errors import InvalidInput, UnknownOption
from mainstay.stores.redis.address import RedisAddress, parse


def parsed(url: str) -> RedisAddress:
    return parse(url, dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)))


def test_a_bare_url_means_the_usual_port_and_the_first_database() -> None:
    found = parsed("redis://cache")
    assert (found.host, found.port, found.db, found.path, found.tls) == ("cache", 6379, 0, None, False)
    assert (found.prefix, found.tag) == ("mainstay", "{mainstay}:")


def test_everything_may_be_said_in_the_url() -> None:
    found = parsed(
        "redis://ann:p%40ss@cache:7000/3?prefix=shop&pool=2&connect_timeout=250ms&retries=0&allow_eviction=on"
        "&auto_migrate=on"
    )
    assert (found.username, found.password, found.host, found.port, found.db) == ("ann", "p@ss", "cache", 7000, 3)
    assert (found.prefix, found.pool, found.connect_timeout_s, found.retries) == ("shop", 2, 0.25, 0)
    assert (found.allow_eviction, found.auto_migrate) == (True, True)


@pytest.mark.parametrize(("scheme", "tls"), [("redis", False), ("valkey", False), ("rediss", True), ("valkeys", True)])
def test_the_scheme_says_whether_the_wire_is_encrypted(scheme: str, tls: bool) -> None:
    assert parsed(f"{scheme}://cache/1").tls is tls


def test_tls_is_checked_unless_told_otherwise() -> None:
    assert parsed("rediss://cache").tls_options == {"ssl_check_hostname": True}
    own = parsed("rediss://cache?ssl_ca_certs=/etc/ca.pem&ssl_certfile=/c.pem&ssl_keyfile=/k.pem")
    assert own.tls_options == {
        "ssl_ca_certs": "/etc/ca.pem",
        "ssl_certfile": "/c.pem",
        "ssl_keyfile": "/k.pem",
        "ssl_check_hostname": True,
    }
    lax = parsed("rediss://cache?ssl_cert_reqs=none")
    assert lax.tls_options == {"ssl_cert_reqs": "none", "ssl_check_hostname": False}


def test_a_socket_of_this_machine_is_named_by_its_path() -> None:
    found = parsed("redis:///run/redis/redis.sock?db=2")
    assert (found.path, found.db, found.tls) == ("/run/redis/redis.sock", 2, False)
    assert (parsed("redis:///3").path, parsed("redis:///3").db) == (None, 3)


@pytest.mark.parametrize("shown", [str, repr])
def test_the_password_is_never_shown(shown: type[str]) -> None:
    found = parsed("redis://ann:hunter2@cache/0?prefix=a")
    assert "hunter2" not in shown(found)
    assert found.shown == "redis://ann:***@cache/0"


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("redis://cache/zero", "store"),
        ("redis://cache:99999/0", "store"),
        ("redis://cache/0#x", "store"),
        ("redis://cache/1?db=1", "db"),
        ("redis://cache?db=-1", "db"),
        ("redis://cache?prefix=", "prefix"),
        ("redis://cache?prefix={x}", "prefix"),
        ("redis://cache?pool=0", "pool"),
        ("redis://cache?pool=many", "pool"),
        ("redis://cache?retries=-1", "retries"),
        ("redis://cache?connect_timeout=5", "connect_timeout"),
        ("redis://cache?connect_timeout=0s", "connect_timeout"),
        ("redis://cache?allow_eviction=maybe", "allow_eviction"),
        ("redis://cache?ssl_ca_certs=/ca.pem", "ssl_ca_certs"),
        ("rediss://cache?ssl_cert_reqs=perhaps", "ssl_cert_reqs"),
        ("redis://host/run/redis.sock", "store"),
        ("rediss:///run/redis.sock", "store"),
        ("redis:///run/redis.sock?ssl_keyfile=/k.pem", "store"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(url: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsed(url)
    assert caught.value.field == field


def test_an_unknown_option_is_refused_with_the_closest_one() -> None:
    with pytest.raises(UnknownOption, match="did you mean 'prefix'"):
        parsed("redis://cache?prefx=a")
