"""API tokens, in a file that contains only their digests.

A token is 256 random bits, so a plain SHA-256 is enough: a slow hash would make guessing costly, and 256 bits cannot be
guessed. A stolen file gives no access, and a check costs a microsecond. The last use of a token is not stored: a file
that every request writes would be a bottleneck, and the access log has it.
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
#: longer tokens are not checked
_LONGEST = 128
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
#: the name of callers without a token
LOCAL = "local"

log = logging.getLogger(__name__)


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """The stored part of a token."""

    name: str
    """its owner, who is named in the audit trail"""
    digest: str
    """SHA-256 of the token, in hex"""
    scopes: tuple[Scope, ...]
    created_ms: int
    expires_ms: int | None = None

    @property
    def id(self) -> str:
        """Identifies the token: one that is created after a revocation may have the same name."""
        return self.digest[:16]

    def valid_at(self, now_ms: int) -> bool:
        return self.expires_ms is None or now_ms < self.expires_ms


class _File(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = _SCHEMA
    tokens: tuple[Token, ...] = ()


class Tokens:
    """The file of tokens, which is read again when it has changed.

    >>> import tempfile
    >>> tokens = Tokens(Path(tempfile.mkdtemp()) / "tokens.json")
    >>> secret = tokens.add("ann", ["operate"])
    >>> tokens.verify(secret).name, tokens.verify("mst_guessed")
    ('ann', None)
    """

    def __init__(self, path: Path | str, *, clock: Clock | None = None) -> None:
        self.path = Path(path)
        self._clock = clock or SystemClock()
        self._read_mark: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()

    @classmethod
    def load(cls, path: Path | str, *, clock: Clock | None = None) -> Tokens:
        """Read a file that must exist, be readable by its owner only, and contain a valid token."""
        tokens = cls(path, clock=clock)
        tokens._tokens, tokens._read_mark = tokens._read()
        if not any(token.valid_at(tokens._clock.now_ms()) for token in tokens._tokens):
            raise InvalidInput(
                "tokens",
                f"no token in {tokens.path} is valid, so no client could sign in; "
                f"run: mainstay tokens add NAME --scope admin --file {tokens.path}",
            )
        return tokens

    def verify(self, secret: str) -> Token | None:
        """The stored token; None if it is unknown or has expired.

        It is compared with every token, in constant time, so that the time of a check reveals nothing.
        """
        if len(secret) > _LONGEST:
            return None
        digest = digest_of(secret)
        match: Token | None = None
        for token in self._current():
            if hmac.compare_digest(token.digest, digest):
                match = token
        return match if match is not None and match.valid_at(self._clock.now_ms()) else None

    def by_id(self, token_id: str) -> Token | None:
        """The token with this id, if it still exists and is valid; for sessions that began with it."""
        now_ms = self._clock.now_ms()
        return next((token for token in self._current() if token.id == token_id and token.valid_at(now_ms)), None)

    def add(self, name: str, scopes: Sequence[str], *, expires_s: float | None = None) -> str:
        """Create a token and store its digest. The returned secret cannot be read again."""
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
                    "name", f"{self.path} has a token {name!r} already; choose another name, or revoke that one first"
                )
            self._write((*kept, token))
        return secret

    def list(self) -> tuple[Token, ...]:
        """All tokens, including expired ones."""
        return self._read()[0]

    def revoke(self, name: str) -> Token:
        """Remove a token. Servers that use this file refuse it, and end its sessions, from the next request on."""
        with self._locked():
            kept = self._read()[0]
            revoked = next((token for token in kept if token.name == name), None)
            if revoked is None:
                known = ", ".join(token.name for token in kept) or "none"
                raise InvalidInput("name", f"there is no token {name!r} in {self.path}; known: {known}")
            self._write(tuple(token for token in kept if token is not revoked))
        return revoked

    def _current(self) -> tuple[Token, ...]:
        """The tokens of the file as it is now. A file that cannot be read has no tokens: with those it had before,
        revoked ones would stay valid."""
        try:
            mark = _mark(os.stat(self.path))
        except OSError:
            mark = ()
        if mark != self._read_mark:
            self._read_mark = mark
            try:
                self._tokens, self._read_mark = self._read()
            except InvalidInput as error:
                self._tokens = ()
                log.error("all requests are refused: %s", error.rule)
        return self._tokens

    def _kept(self) -> tuple[Token, ...]:
        return self._read()[0] if self.path.exists() else ()

    def _read(self) -> tuple[tuple[Token, ...], tuple[int, ...]]:
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                content = file.read()
        except OSError as error:
            raise InvalidInput(
                "tokens",
                f"{self.path} cannot be read ({error.strerror}); "
                f"create it with: mainstay tokens add NAME --scope admin --file {self.path}",
            ) from None
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise InvalidInput("tokens", f"other users may read or write {self.path}; run: chmod 600 {self.path}")
        try:
            decoded = msgspec.json.decode(content, type=_File)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput("tokens", f"{self.path} is not a file of tokens ({error})") from None
        if decoded.schema > _SCHEMA:
            raise InvalidInput("tokens", f"{self.path} was written by a newer Mainstay; upgrade this one")
        return decoded.tokens, _mark(status)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One change at a time, so that concurrent commands do not undo each other's changes."""
        with _writing_errors(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # a file of its own, since the file of tokens is replaced
            handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _write(self, tokens: tuple[Token, ...]) -> None:
        """Replace the file atomically, readable by its owner only."""
        new = Path(f"{self.path}.new")
        with _writing_errors(self.path):
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
    """The caller that sent the token, or signed in with it."""
    return Caller(name=token.name, scopes=token.scopes, how="session" if by_session else "token")


def digest_of(secret: str) -> str:
    """The stored digest of a token.

    >>> digest_of("mst_x")[:8]
    'd401d1a8'
    """
    # a header may contain any bytes; they get a digest that matches nothing
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _scopes(given: Sequence[str]) -> tuple[Scope, ...]:
    for scope in given:
        if scope not in SCOPES:
            raise InvalidInput("scope", f"{scope!r} is not one of {', '.join(SCOPES)}")
    if not given:
        raise InvalidInput("scope", f"give at least one of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in given)


def _mark(status: os.stat_result) -> tuple[int, ...]:
    """Changes when the file was replaced or edited, or its permissions changed."""
    return (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)


@contextmanager
def _writing_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput("tokens", f"{path} cannot be written ({error.strerror}); nothing was changed") from None


__all__ = ["LOCAL", "PREFIX", "Token", "Tokens", "caller_of", "digest_of"]
