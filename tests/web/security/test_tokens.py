"""Tokens: made once, kept as digests, read again when their file changes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from pathlib import Path

import pytest

from mainstay.errors import InvalidInput
from mainstay.testing import VirtualClock
from mainstay.web.security import tokens as module
from mainstay.web.security.tokens import Tokens


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def tokens(tmp_path: Path, clock: VirtualClock) -> Tokens:
    return Tokens(tmp_path / "keys" / "tokens.json", clock=clock)


def test_a_token_has_256_bits_and_only_its_digest_is_kept(tokens: Tokens) -> None:
    secret = tokens.add("ann", ["read"])

    content = tokens.path.read_text()
    assert secret.startswith("mst_")
    assert len(secret) == len("mst_") + 43
    assert secret[4:] not in content
    assert hashlib.sha256(secret.encode()).hexdigest() in content


def test_the_file_and_its_folder_are_for_nobody_else(tokens: Tokens) -> None:
    before = os.umask(0)
    try:
        tokens.add("ann", ["read"])
        tokens.add("ben", ["read"])
    finally:
        os.umask(before)

    assert tokens.path.stat().st_mode & 0o777 == 0o600
    assert tokens.path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644])
def test_a_file_that_others_may_read_or_write_is_refused(tokens: Tokens, mode: int) -> None:
    tokens.add("ann", ["read"])
    tokens.path.chmod(mode)

    with pytest.raises(InvalidInput, match="chmod 600"):
        Tokens.load(tokens.path)


def test_a_token_is_known_by_its_name_and_scopes(tokens: Tokens) -> None:
    secret = tokens.add("ann", ["admin", "read"])

    found = tokens.verify(secret)

    assert found is not None
    assert (found.name, found.scopes) == ("ann", ("read", "admin"))


@pytest.mark.parametrize(
    "hostile",
    ["", "mst_", "mst_" + "x" * 43, "\0", "mst_\0", "ünïcødé", "\ud800", "💥" * 20, "x" * 1_000_000, "mst_' or 1=1"],
    ids=["empty", "prefix", "guess", "nul", "prefix-nul", "latin", "surrogate", "emoji", "megabyte", "sql"],
)
def test_hostile_tokens_are_nobodys(tokens: Tokens, hostile: str) -> None:
    tokens.add("ann", ["read"])

    assert tokens.verify(hostile) is None


def test_a_digest_is_no_token(tokens: Tokens) -> None:
    tokens.add("ann", ["read"])

    assert tokens.verify(tokens.list()[0].digest) is None


def test_every_token_is_compared_in_constant_time(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """By construction: each digest goes through `compare_digest`, also after one has matched."""
    first = tokens.add("ann", ["read"])
    tokens.add("ben", ["read"])
    tokens.add("cid", ["read"])
    compared = []

    class Watched:
        @staticmethod
        def compare_digest(one: str, other: str) -> bool:
            compared.append(one)
            return hmac.compare_digest(one, other)

    monkeypatch.setattr(module, "hmac", Watched)
    found = tokens.verify(first)

    assert found is not None
    assert compared == [token.digest for token in tokens.list()]


def test_a_token_ends_when_it_expires(tokens: Tokens, clock: VirtualClock) -> None:
    secret = tokens.add("ann", ["read"], expires_s=60)
    clock.advance(59)
    assert tokens.verify(secret) is not None

    clock.advance(1)

    assert tokens.verify(secret) is None
    assert [token.name for token in tokens.list()] == ["ann"]


def test_a_server_sees_what_a_command_has_changed(tokens: Tokens) -> None:
    tokens.add("ann", ["read"])
    server = Tokens.load(tokens.path)

    secret = tokens.add("ben", ["read"])
    assert server.verify(secret) is not None
    tokens.revoke("ben")

    assert server.verify(secret) is None


def test_a_token_made_anew_under_an_old_name_is_another_one(tokens: Tokens) -> None:
    tokens.add("ann", ["read"])
    old = tokens.list()[0]
    tokens.revoke("ann")
    tokens.add("ann", ["read"])

    assert tokens.by_id(old.id) is None
    assert tokens.by_id(tokens.list()[0].id) is not None


@pytest.mark.parametrize("damage", ["unlink", "garbage", "opened"])
def test_a_file_that_cannot_be_read_lets_nobody_in_until_it_can(
    tokens: Tokens, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tokens.add("ann", ["read"])
    server = Tokens.load(tokens.path)
    whole = tokens.path.read_bytes()
    if damage == "unlink":
        tokens.path.unlink()
    elif damage == "garbage":
        tokens.path.write_bytes(b"{")
    else:
        tokens.path.chmod(0o644)

    assert [server.verify(secret) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
    assert "all requests are refused" in caplog.text

    tokens.path.write_bytes(whole)
    tokens.path.chmod(0o600)
    assert server.verify(secret) is not None


def test_an_interrupted_write_leaves_the_old_file(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.add("ann", ["read"])
    before = tokens.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InvalidInput, match="No space left on device.*nothing was changed"):
        tokens.add("ben", ["read"])

    monkeypatch.undo()
    assert tokens.path.read_bytes() == before
    assert tokens.add("ben", ["read"])


def test_of_many_changes_at_once_none_is_lost(tokens: Tokens) -> None:
    names = [f"n{i}" for i in range(8)]
    threads = [threading.Thread(target=Tokens(tokens.path).add, args=(name, ["read"])) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(token.name for token in tokens.list()) == names


@pytest.mark.parametrize("name", ["", "local", "a b", "a\nb", "ü", "x" * 65, "../x"])
def test_a_name_has_to_fit_into_the_audit_trail(tokens: Tokens, name: str) -> None:
    with pytest.raises(InvalidInput, match="name: "):
        tokens.add(name, ["read"])


def test_a_name_is_given_once(tokens: Tokens) -> None:
    tokens.add("ann", ["read"])

    with pytest.raises(InvalidInput, match="revoke that one first"):
        tokens.add("ann", ["admin"])


def test_scopes_that_there_are_not_are_refused(tokens: Tokens) -> None:
    with pytest.raises(InvalidInput, match="'root' is not one of read, submit, operate, admin"):
        tokens.add("ann", ["read", "root"])
    with pytest.raises(InvalidInput, match="give at least one of"):
        tokens.add("ann", [])


def test_to_revoke_what_is_not_there_names_what_is(tokens: Tokens) -> None:
    tokens.add("ann", ["read"])

    with pytest.raises(InvalidInput, match="no token 'bob'.*known: ann"):
        tokens.revoke("bob")


def test_a_file_without_a_valid_token_cannot_be_served_with(tokens: Tokens, clock: VirtualClock) -> None:
    with pytest.raises(InvalidInput, match="mainstay tokens add"):
        Tokens.load(tokens.path)
    tokens.add("ann", ["read"], expires_s=1)
    clock.advance(2)
    with pytest.raises(InvalidInput, match="no client could sign in"):
        Tokens.load(tokens.path, clock=clock)


def test_a_file_of_a_newer_version_is_left_alone(tokens: Tokens) -> None:
    tokens.add("ann", ["read"])
    tokens.path.write_text(json.dumps({"schema": 2, "tokens": []}))

    with pytest.raises(InvalidInput, match="newer Mainstay"):
        tokens.add("ben", ["read"])
