"""`mainstay tokens`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mainstay.cli import app
from mainstay.web.security.tokens import Tokens


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def run(*words: str, **environ: str) -> Result:
    return CliRunner().invoke(app, ["tokens", *words], env={"COLUMNS": "100", **environ}, catch_exceptions=False)


def as_json(*words: str) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_token_is_printed_once_alone_on_stdout(file: Path) -> None:
    done = run("add", "ann", "--scope", "operate", "--file", str(file))

    secret = done.stdout.strip()
    assert done.exit_code == 0
    found = Tokens.load(file).verify(secret)
    assert found is not None
    assert (found.name, found.scopes) == ("ann", ("operate",))
    assert secret not in done.stderr
    assert "It is not shown again" in done.stderr
    assert secret[4:] not in run("list", "--file", str(file)).output


def test_without_a_scope_it_reads(file: Path) -> None:
    assert as_json("add", "ann", "--file", str(file))["scopes"] == ["read"]


def test_scopes_add_up_and_a_time_ends_it(file: Path) -> None:
    told = as_json("add", "ci", "--scope", "submit", "--scope", "admin", "--expires", "30d", "--file", str(file))

    assert told["scopes"] == ["submit", "admin"]
    assert told["expires_ms"] - told["created_ms"] == 30 * 86_400_000
    assert told["token"].startswith("mst_")


def test_the_list_says_whose_they_are_and_what_is_over(file: Path) -> None:
    run("add", "ann", "--file", str(file))
    run("add", "old", "--expires", "0s", "--file", str(file))

    lines = run("list", "--file", str(file)).stdout.splitlines()

    assert [line.split()[0] for line in lines[2:]] == ["ann", "old"]
    assert lines[2].endswith("never")
    assert lines[3].endswith("(expired)")
    listed = as_json("list", "--file", str(file))["tokens"]
    assert [sorted(token) for token in listed] == [["created_ms", "expires_ms", "name", "scopes"]] * 2


def test_a_revoked_token_is_gone(file: Path) -> None:
    secret = run("add", "ann", "--file", str(file)).stdout.strip()

    assert run("revoke", "ann", "--file", str(file)).exit_code == 0

    assert Tokens(file).verify(secret) is None
    assert run("list", "--file", str(file)).stdout.strip() == "no tokens"
    assert run("revoke", "ann", "--file", str(file)).exit_code == 2


def test_the_environment_names_the_file_and_else_it_is_one_of_the_user(tmp_path: Path, file: Path) -> None:
    run("add", "ann", MAINSTAY_TOKENS=str(file))
    assert [token.name for token in Tokens(file).list()] == ["ann"]

    run("add", "ben", MAINSTAY_STATE=str(tmp_path / "state"))
    assert [token.name for token in Tokens(tmp_path / "state" / "web" / "tokens.json").list()] == ["ben"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["add", "a b"], "letters, digits"),
        (["add", "ann", "--scope", "root"], "'root' is not one of read, submit, operate, admin"),
        (["add", "ann", "--expires", "30"], "write it with a unit"),
        (["list"], "cannot be read"),
    ],
)
def test_mistakes_are_said_and_nothing_is_written(file: Path, words: list[str], complaint: str) -> None:
    done = run(*words, "--file", str(file))

    assert done.exit_code == 2
    assert complaint in done.stderr
    assert not file.exists()
