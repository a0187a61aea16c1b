"""API tokens, in a file that knows only their digests.

A token is 256 bits of chance. A plain SHA-256 of it is enough: a slow hash is there to make guessing costly, and nobody
guesses 256 bits. So a stolen file opens nothing, and a check costs a microsecond. When a token was last used is not
kept: a file that every request writes would be a bottleneck, and the access log has it.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ...clock import Clock, SystemClock
from ...errors import InvalidInput
from ..caller import SCOPES, Caller, Scope

PREFIX = "mst_"
_SCHEMA = 1
_BYTES = 32
#: nothing longer is looked at
_LONGEST = 128
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
#: whoever is let in without a token is called so
LOCAL = "local"

log = logging.getLogger(__name__)


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one."""

    name: str
    """who it was given to; stands in the audit trail"""
    digest: str
    """SHA-256 of it, in hex"""
    scopes: tuple[Scope, ...]
    created_ms: int
    expires_ms: int | None = None

    @property
    def id(self) -> str:
        """Names it where its name would not do: a token that was revoked and made anew is another one."""
        return self.digest[:16]

    def valid_at(self, now_ms: int) -> bool:
        return self.expires_ms is None or now_ms < self.expires_ms


class _File(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = _SCHEMA
    tokens: tuple[Token, ...] = ()


class Tokens:
    """The file of tokens; read again whenever it has changed.

    >>> import tempfile
    >>> tokens = Tokens(Path(tempfile.mkdtemp()) / "tokens.json")
    >>> secret = tokens.add("ann", ["operate"])
    >>> tokens.verify(secret).name, tokens.verify("mst_guessed")
    ('ann', None)
    """

    def __init__(self, path: Path | str, *, clock: Clock | None = None) -> None:
        self.path = Path(path)
        self._clock = clock or SystemClock()
        self._seen: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()

    @classmethod
    def load(cls, path: Path | str, *, clock: Clock | None = None) -> Tokens:
        """Those of a file that has to be there, readable by nobody else, with a token in it that is still valid."""
        tokens = cls(path, clock=clock)
        tokens._tokens, tokens._seen = tokens._read()
        if not any(token.valid_at(tokens._clock.now_ms()) for token in tokens._tokens):
            raise InvalidInput(
                "tokens",
                f"no token in {tokens.path} is valid, so no client could sign in; "
                f"run: mainstay tokens add NAME --scope admin --file {tokens.path}",
            )
        return tokens

    def verify(self, secret: str) -> Token | None:
        """Whose token this is; None if nobody's, or if it has expired.

        Compared in constant time, with each of them: how long it takes says nothing about which one was nearly met.
        """
        if len(secret) > _LONGEST:
            return None
        digest = digest_of(secret)
        found: Token | None = None
        for token in self._current():
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found if found is not None and found.valid_at(self._clock.now_ms()) else None

    def by_id(self, token_id: str) -> Token | None:
        """A token that is still there and valid; for the sessions that were begun with it."""
        now_ms = self._clock.now_ms()
        return next((token for token in self._current() if token.id == token_id and token.valid_at(now_ms)), None)

    def add(self, name: str, scopes: Sequence[str], *, expires_s: float | None = None) -> str:
        """Make a token and keep its digest. What is returned is shown to nobody again."""
        if not _NAME.fullmatch(name) or name == LOCAL:
            raise InvalidInput("name", f"{name!r} is not 1 to 64 of letters, digits and ._@- (nor {LOCAL!r})")
        secret = PREFIX + secrets.token_urlsafe(_BYTES)
        now_ms = self._clock.now_ms()
        token = Token(
            name=name,
            digest=digest_of(secret),
            scopes=_scopes(scopes),
            created_ms=now_ms,
            expires_ms=None if expires_s is None else now_ms + round(expires_s * 1000),
        )
        with self._locked():
            kept = self._kept()
            if any(one.name == name for one in kept):
                raise InvalidInput(
                    "name", f"there is a token {name!r} in {self.path}; choose another name, or revoke that one first"
                )
            self._write((*kept, token))
        return secret

    def list(self) -> tuple[Token, ...]:
        """All of them, the expired too."""
        return self._read()[0]

    def revoke(self, name: str) -> Token:
        """Take one away. Servers that read this file refuse it, and end its sessions, from the next request on."""
        with self._locked():
            kept = self._read()[0]
            found = next((token for token in kept if token.name == name), None)
            if found is None:
                known = ", ".join(token.name for token in kept) or "none"
                raise InvalidInput("name", f"there is no token {name!r} in {self.path}; there is {known}")
            self._write(tuple(token for token in kept if token is not found))
        return found

    def _current(self) -> tuple[Token, ...]:
        """As the file is now. One that cannot be read lets nobody in: to go on with what was in it would keep those
        in who were thrown out."""
        try:
            found = os.stat(self.path)
        except OSError:
            seen: tuple[int, ...] = ()
        else:
            seen = _mark(found)
        if seen != self._seen:
            self._seen = seen
            try:
                self._tokens, self._seen = self._read()
            except InvalidInput as error:
                self._tokens = ()
                log.error("all requests are refused: %s", error.rule)
        return self._tokens

    def _kept(self) -> tuple[Token, ...]:
        return self._read()[0] if self.path.exists() else ()

    def _read(self) -> tuple[tuple[Token, ...], tuple[int, ...]]:
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                content = file.read()
        except OSError as error:
            raise InvalidInput(
                "tokens",
                f"{self.path} cannot be read ({error.strerror}); "
                f"to make one: mainstay tokens add NAME --scope admin --file {self.path}",
            ) from None
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise InvalidInput("tokens", f"others may read or write {self.path}; run: chmod 600 {self.path}")
        try:
            decoded = msgspec.json.decode(content, type=_File)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput("tokens", f"{self.path} is not a file of tokens ({error})") from None
        if decoded.schema > _SCHEMA:
            raise InvalidInput("tokens", f"{self.path} was written by a newer Mainstay: use that one for it")
        return decoded.tokens, _mark(found)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One change at a time: of two commands at once, neither undoes what the other did."""
        with _in_our_words(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # not the file itself, which is replaced
            handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _write(self, tokens: tuple[Token, ...]) -> None:
        """Whole or not at all, for nobody else to read."""
        new = Path(f"{self.path}.new")
        with _in_our_words(self.path):
            new.unlink(missing_ok=True)
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(_File(tokens=tokens)), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def caller_of(token: Token, *, by_session: bool = False) -> Caller:
    """Whoever shows it, or has signed in with it."""
    return Caller(name=token.name, scopes=token.scopes, how="session" if by_session else "token")


def digest_of(secret: str) -> str:
    """What is kept of a token.

    >>> digest_of("mst_x")[:8]
    'd401d1a8'
    """
    # whatever bytes a header has are digested as they are, and match nothing
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _scopes(given: Sequence[str]) -> tuple[Scope, ...]:
    for scope in given:
        if scope not in SCOPES:
            raise InvalidInput("scope", f"{scope!r} is not one of {', '.join(SCOPES)}")
    if not given:
        raise InvalidInput("scope", f"what may it do? give one of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in given)


def _mark(found: os.stat_result) -> tuple[int, ...]:
    """Differs whenever the file was replaced, edited or opened to others."""
    return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)


@contextmanager
def _in_our_words(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput("tokens", f"{path} cannot be written ({error.strerror}); nothing was changed") from None


__all__ = ["LOCAL", "PREFIX", "Token", "Tokens", "caller_of", "digest_of"]
