"""Cookies: whatever was not signed here is nothing."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from mainstay.testing import VirtualClock
from mainstay.web.security.ended_sessions import EndedSessions
from mainstay.web.security.login_sessions import LASTS_S, LoginSessions

KEY = b"k" * 32


@given(st.text(max_size=300))
def test_whatever_was_not_made_here_is_no_session(text: str) -> None:
    assert LoginSessions(key=KEY).read(text) is None


@given(st.integers(0, 10_000), st.characters())
def test_a_cookie_with_any_character_changed_is_no_session(place: int, other: str) -> None:
    sessions = LoginSessions(key=KEY)
    cookie = sessions.begin("ab12")
    at = place % len(cookie)
    assume(cookie[at] != other)

    assert sessions.read(cookie[:at] + other + cookie[at + 1 :]) is None


def test_a_body_signed_by_another_key_is_no_session() -> None:
    assert LoginSessions(key=KEY).read(LoginSessions(key=b"x" * 32).begin("ab12")) is None
    assert LoginSessions().read(LoginSessions().begin("ab12")) is None


def test_a_csrf_token_signs_no_session() -> None:
    """What was signed for one purpose is worth nothing for the other."""
    sessions = LoginSessions(key=KEY)
    session = sessions.read(sessions.begin("ab12"))
    assert session is not None
    forged = base64.urlsafe_b64encode(
        json.dumps({"id": "x", "token_id": "ab12", "expires_ms": 10**15}).encode()
    ).decode()
    as_session = type(session)(id=forged, token_id="", expires_ms=0)

    assert sessions.read(f"{forged}.{sessions.csrf_token(as_session)}") is None


def test_a_session_ends_by_itself() -> None:
    clock = VirtualClock()
    sessions = LoginSessions(key=KEY, clock=clock)
    cookie = sessions.begin("ab12")
    clock.advance(LASTS_S - 1)
    assert sessions.read(cookie) is not None

    clock.advance(1)

    assert sessions.read(cookie) is None


def test_a_session_that_was_ended_stays_ended_and_no_other_is() -> None:
    clock = VirtualClock()
    sessions = LoginSessions(key=KEY, clock=clock)
    one, other = sessions.begin("ab12"), sessions.begin("ab12")
    session = sessions.read(one)
    assert session is not None

    sessions.end(session)

    assert sessions.read(one) is None
    assert sessions.read(other) is not None


def test_ended_sessions_are_forgotten_once_they_would_be_over() -> None:
    clock = VirtualClock()
    sessions = LoginSessions(key=KEY, clock=clock)
    for _ in range(3):
        session = sessions.read(sessions.begin("ab12"))
        assert session is not None
        sessions.end(session)
        clock.advance(LASTS_S)

    assert len(sessions._ended) == 1


@pytest.mark.parametrize("given", ["", "0" * 64, "ü", "\ud800"])
def test_only_the_csrf_token_of_the_session_is_one(given: str) -> None:
    sessions = LoginSessions(key=KEY)
    session, other = sessions.read(sessions.begin("ab12")), sessions.read(sessions.begin("ab12"))
    assert session is not None
    assert other is not None

    assert not sessions.is_csrf_token(session, given)
    assert not sessions.is_csrf_token(session, sessions.csrf_token(other))
    assert sessions.is_csrf_token(session, sessions.csrf_token(session))


def test_a_session_that_was_ended_is_ended_for_all_servers_and_after_a_restart(tmp_path: Path) -> None:
    clock = VirtualClock()

    def server() -> LoginSessions:
        return LoginSessions(key=KEY, clock=clock, ended=EndedSessions(tmp_path / "tokens.json.ended"))

    here, there = server(), server()
    cookie, other = here.begin("ab12"), here.begin("ab12")
    session = there.read(cookie)
    assert session is not None
    here.end(session)

    assert [each.read(cookie) for each in (here, there, server())] == [None] * 3
    assert all(each.read(other) is not None for each in (here, there, server()))
    assert (tmp_path / "tokens.json.ended").stat().st_mode & 0o777 == 0o700


def test_what_is_kept_of_ended_sessions_goes_when_they_would_be_over(tmp_path: Path) -> None:
    clock = VirtualClock()
    folder = tmp_path / "ended"
    sessions = LoginSessions(key=KEY, clock=clock, ended=EndedSessions(folder))

    def end_one() -> None:
        session = sessions.read(sessions.begin("ab12"))
        assert session is not None
        sessions.end(session)

    end_one()
    end_one()
    assert len(list(folder.iterdir())) == 2
    clock.advance(LASTS_S + 1)
    end_one()
    assert len(list(folder.iterdir())) == 1


def test_a_folder_that_cannot_be_written_ends_the_session_here_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ended").write_text("a file")
    sessions = LoginSessions(key=KEY, ended=EndedSessions(tmp_path / "ended"))
    cookie = sessions.begin("ab12")
    session = sessions.read(cookie)
    assert session is not None
    sessions.end(session)
    assert sessions.read(cookie) is None
    assert "a session was ended on this server only" in caplog.text
