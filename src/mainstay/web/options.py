"""How a server is set up."""

from __future__ import annotations

import msgspec

#: names of secrets, of one or more words: what Sentry and Django have people expect to be hidden, less what is as often
#: harmless (`key`, `pin`, `session`, `signature`)
SECRETS = (
    *("password", "passwd", "pwd", "passphrase", "passcode", "db_pass", "smtp_pass", "user_pass"),
    *("secret", "token", "jwt", "bearer", "otp", "credential", "cred"),
    *("auth", "authorization", "cookie", "session_id", "session_key", "csrf", "dsn", "connection_string"),
    *("api_key", "access_key", "account_key", "encryption_key", "master_key", "private_key", "signing_key"),
)


class WebOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `mainstay serve` is told. Times are seconds, sizes bytes."""

    host: str = "127.0.0.1"
    port: int = 8330
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    """listen beyond this machine without TLS: somebody else does that, in front of it"""
    tokens: str | None = None
    """file of the API tokens; None: nobody has to show one, which only this machine may be told"""
    read_only: bool = False
    """refuse everything that changes anything"""
    masked: tuple[str, ...] = SECRETS
    """fields of payloads, results and parameters, at any depth, that are shown as ***, in error texts as well; by the
    words in their names"""
    show_payloads: bool = True
    """False: no payloads, results and parameters, and of errors only their type"""
    body_limit: int = 2 * 1024 * 1024
    page_limit: int = 500
    """rows of one page at most"""
    bulk_limit: int = 10_000
    """jobs of one bulk request at most"""
    rate: float = 200.0
    """requests a second of one caller; short bursts of five times as many are let through"""
    streams: int = 500
    """live streams at most"""
    snapshot_s: float = 1.0
    """how often a store is looked at for the overview; seldomer when the look takes long"""
    ready_s: float = 15.0
    """ready means: every store has answered within this; within 10 s, if it was asked since and did not answer"""
