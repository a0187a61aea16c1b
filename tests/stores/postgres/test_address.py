"""From a URL to a database, a schema and how patient to be."""

from __future__ import annotations

import pytest

from mainstay.errors import InvalidInput, UnknownOption
from mainstay.stores import open_store
from mainstay.stores.postgres.connection.address import parse


def test_a_plain_url_has_the_defaults() -> None:
    address = parse("postgresql://ann@db/jobs", {})

    assert (address.dsn, address.schema, address.auto_migrate) == ("postgresql://ann@db/jobs", "mainstay", False)
    assert (address.listen, address.durability) == (True, None)


def test_options_of_our_own_are_taken_out_and_those_of_the_driver_passed_on() -> None:
    options = {"schema": "shop", "pool": "9", "sslmode": "require", "listen": "off", "retries": "0"}
    address = parse("postgresql://ann@db/jobs?schema=shop&pool=9&sslmode=require", options)

    assert address.dsn == "postgresql://ann@db/jobs?sslmode=require"
    assert (address.schema, address.pool, address.listen, address.retries) == ("shop", 9, False, 0)


def test_durations_have_a_unit() -> None:
    assert parse("postgres://db/jobs", {"connect_timeout": "300ms"}).connect_timeout_s == 0.3
    with pytest.raises(InvalidInput, match="connect_timeout: '5' is not a duration"):
        parse("postgres://db/jobs", {"connect_timeout": "5"})


def test_a_misspelt_option_is_refused_with_the_closest_one() -> None:
    with pytest.raises(UnknownOption, match="shema: unknown option; did you mean 'schema'?"):
        parse("postgresql://db/jobs", {"shema": "shop"})


@pytest.mark.parametrize("schema", ["", "Shop", "1shop", "a-b", 'a"b', "pg_shop", "x" * 41])
def test_a_schema_is_a_plain_name(schema: str) -> None:
    with pytest.raises(InvalidInput, match="schema: .* a schema must have 1 to 40"):
        parse("postgresql://db/jobs", {"schema": schema})


@pytest.mark.parametrize(
    ("option", "value"),
    [("pool", "0"), ("pool", "many"), ("retries", "-1"), ("listen", "maybe"), ("durability", "remote")],
)
def test_a_value_that_means_nothing_is_refused_by_name(option: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=f"{option}: "):
        parse("postgresql://db/jobs", {option: value})


def test_a_url_without_a_database_is_refused() -> None:
    with pytest.raises(InvalidInput, match="does not name a database; write postgresql://user@host/database"):
        parse("postgresql://ann:secret@db", {})


def test_secrets_are_not_shown() -> None:
    address = parse("postgresql://ann:secret@db/jobs", {"sslpassword": "secret"})

    assert "secret" not in repr(address)
    assert "secret" not in address.shown


@pytest.mark.parametrize(
    "url", ["postgresql://ann:s3c/ret@db/jobs", "postgresql://ann:s3cret@[db/jobs", "postgresql://ann@db:s3c/jobs"]
)
async def test_what_is_no_url_is_refused_without_a_word_of_its_password(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await open_store(url)

    assert "s3c" not in str(refused.value)


@pytest.mark.parametrize("place", ["db:5432", "[::1]:5432", "a:1,b:2", "a,b", "", "db:"])
def test_hosts_are_written_as_libpq_takes_them(place: str) -> None:
    assert parse(f"postgresql://ann@{place}/jobs", {}).dsn == f"postgresql://ann@{place}/jobs"
