"""`store migrate` and `store status`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app
from mainstay.stores.postgres.schema.definition import VERSION
from mainstay.stores.sqlite import schema as sqlite_schema
from tests.stores.postgres.transactions import server
from tests.stores.sqlite.older import older_file


def run(*words: str, **environ: str) -> Result:
    return CliRunner().invoke(app, ["store", *words], catch_exceptions=False, env={"COLUMNS": "100", **environ})


def told(*words: str, code: int = 0) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.fixture
def url(postgres_url: str) -> str:
    """A place where nothing is set up, and nothing sets itself up."""
    return postgres_url.replace("&auto_migrate=on", "")


def test_a_store_is_migrated_once_and_says_so(url: str) -> None:
    shown = server(url)
    assert told("status", url, code=1) | {"durability": ""} == {
        "store": shown,
        "current": False,
        "durability": "",
        "version": 0,
        "known": VERSION,
        "schema": url.partition("schema=")[2],
        "server": told("status", url, code=1)["server"],
        "jobs": 0,
        "events": 0,
        "bytes": 0,
        "commits": None,
        "snapshot": None,
        "sessions": 0,
    }
    would = told("migrate", url, "--dry-run", code=1)
    assert (would["before"], would["after"], would["done"], would["changes"]) == (0, VERSION, False, True)
    assert "CREATE TABLE mainstay.jobs" in would["steps"][0]
    assert run("status", url).exit_code == 1

    done = run("migrate", url)

    assert (done.exit_code, done.stdout) == (0, f"{shown}: migrated from version 0 to {VERSION} (it is new)\n")
    assert run("migrate", url).stdout == f"{shown} is up to date: version {VERSION}\n"
    assert run("migrate", url, "--dry-run").exit_code == 0
    assert told("status", url)["current"] is True


def test_the_status_shows_what_is_there_and_how_safe_it_is(url: str) -> None:
    run("migrate", url)
    schema = url.partition("schema=")[2]
    with psycopg.connect(server(url)) as db:
        db.execute(f"SELECT {schema}.submit('mail.send')")

    lines = [line.split(maxsplit=1) for line in run("status", url).stdout.splitlines()]
    seen = {words[0]: words[1] for words in lines if len(words) == 2}

    assert seen["jobs"] == "1"
    assert seen["version"] == f"{VERSION}, as this Mainstay needs it"
    assert seen["schema"] == schema
    assert "fsync=off" in told("status", url)["durability"]
    assert told("status", f"{url}&durability=replicated")["durability"].startswith("replicated: ")


def test_what_is_out_of_date_names_the_command_to_run(url: str) -> None:
    done = run("status", url)

    assert done.exit_code == 1
    assert f"none; this Mainstay needs {VERSION}: migrate it" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("mainstay store migrate ")


def test_functions_of_another_release_are_made_anew(url: str) -> None:
    run("migrate", url)
    with psycopg.connect(server(url)) as db:
        db.execute(f"UPDATE {url.partition('schema=')[2]}.facts SET value = 'other' WHERE name = 'functions'")

    assert "functions of another release" in run("status", url).stdout
    assert run("migrate", url).stdout.endswith(": migrated to this release's functions\n")
    assert run("status", url).exit_code == 0


def test_a_newer_store_is_shown_and_not_touched(url: str) -> None:
    run("migrate", url)
    with psycopg.connect(server(url)) as db:
        db.execute(
            f"UPDATE {url.partition('schema=')[2]}.facts SET value = '99' WHERE name IN ('version', 'compatible_from')"
        )

    done = run("status", url)

    assert done.exit_code == 1
    assert f"99; this Mainstay knows versions up to {VERSION}: upgrade it" in done.stdout
    assert "mainstay store migrate" not in done.stdout
    assert run("migrate", url).exit_code == 2


def test_a_password_is_not_shown_again(url: str) -> None:
    with_password = url.replace("owner@", "owner:secret@")
    for words in (
        ("status", with_password),
        ("status", "--store", with_password),
        ("status", f"{url}&password=secret"),
    ):
        done = run(*words)
        assert done.exit_code == 1
        assert "secret" not in done.output


def test_a_file_of_sqlite_is_migrated_once_and_says_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    newest = sqlite_schema.VERSION

    would = told("migrate", url, "--dry-run", code=1)
    assert (would["before"], would["after"], len(would["steps"])) == (0, newest, newest)
    assert not (tmp_path / "jobs.db").exists()
    assert run("migrate", MAINSTAY_STORE=url).stdout == f"{url}: migrated from version 0 to {newest} (it is new)\n"
    assert run("migrate", url).stdout == f"{url} is up to date: version {newest}\n"
    assert run("migrate", url, "--dry-run").exit_code == 0
    status = told("status", url)
    assert (status["current"], status["jobs"], status["version"], status["known"]) == (True, 0, newest, newest)
    assert "synchronous=FULL" in status["durability"]


def test_a_file_of_an_older_version_names_the_command_to_run(tmp_path: Path) -> None:
    url = f"sqlite:///{older_file(tmp_path / 'jobs.db')}"

    done = run("status", url)

    assert done.exit_code == 1
    assert f"5; this Mainstay needs {sqlite_schema.VERSION}: migrate it" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1] == f"mainstay store migrate {url}"
    assert run("migrate", url).stdout == f"{url}: migrated from version 5 to {sqlite_schema.VERSION}\n"
    assert run("status", url).exit_code == 0


def test_a_command_that_looks_leaves_an_older_file_as_it_is(tmp_path: Path) -> None:
    path = older_file(tmp_path / "jobs.db")
    url = f"sqlite:///{path}"

    for words in (
        ["stats"],
        ["jobs", "list"],
        ["check"],
        ["workers", "list"],
        ["queues", "list"],
        ["schedules", "list"],
    ):
        done = CliRunner().invoke(app, [*words, "--store", url])
        assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["check", "--repair", "--store", url])
    assert done.exit_code == 2
    assert f"mainstay store migrate '{url}'" in " ".join(done.output.split())

    db = apsw.Connection(str(path))
    assert db.pragma("user_version") == 5
    db.close()


def test_a_command_that_looks_does_not_migrate_postgresql_whatever_its_url_says(postgres_url: str) -> None:
    assert "auto_migrate=on" in postgres_url

    done = CliRunner().invoke(app, ["stats", "--store", postgres_url])

    assert done.exit_code == 2
    assert "mainstay store migrate" in done.output
    assert told("status", postgres_url, code=1)["version"] == 0


def test_stores_without_versions_have_nothing_to_migrate() -> None:
    assert run("migrate", "memory:").stdout == "memory: has nothing to migrate\n"


@pytest.mark.parametrize("word", ["migrate", "status"])
def test_what_cannot_be_reached_or_is_no_store_is_an_error(word: str) -> None:
    assert run(word).exit_code == 2
    assert told(word, "teapot:", code=2)["error"]["code"] == "no_adapter"
    done = run(word, "postgresql://ann:secret@127.0.0.1:1/none?retries=0")
    assert done.exit_code == 2
    assert "secret" not in done.output
