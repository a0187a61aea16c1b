"""Options of the HTTP server."""

from __future__ import annotations

import msgspec

#: names of secrets, of one or more words: those that Sentry and Django hide, without those that are as often harmless
#: (`key`, `pin`, `session`, `signature`)
SECRETS = (
    *("password", "passwd", "pwd", "passphrase", "passcode", "db_pass", "smtp_pass", "user_pass"),
    *("secret", "token", "jwt", "bearer", "otp", "credential", "cred"),
    *("auth", "authorization", "cookie", "session_id", "session_key", "csrf", "dsn", "connection_string"),
    *("api_key", "access_key", "account_key", "encryption_key", "master_key", "private_key", "signing_key"),
)


class WebOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `mainstay serve`. Times are in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    port: int = 8330
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    """listen for other machines without TLS: a proxy in front does TLS"""
    tokens: str | None = None
    """file of the API tokens; None: no token is needed, which is allowed for this machine only"""
    read_only: bool = False
    """refuse every request that changes something"""
    masked: tuple[str, ...] = SECRETS
    """words in the names of secret fields. Their values, at any depth of payloads, results and parameters, are shown as
    ***, also in error texts"""
    show_payloads: bool = True
    """False: payloads, results and parameters are hidden, and of errors only the type is shown"""
    body_limit: int = 2 * 1024 * 1024
    page_limit: int = 500
    """the most rows of a page"""
    bulk_limit: int = 10_000
    """the most jobs of a bulk request"""
    rate: float = 200.0
    """requests a second of one caller; short bursts of five times as many are allowed"""
    streams: int = 500
    """the most live streams"""
    snapshot_s: float = 1.0
    """time between two reads of a store for the overview; longer if a read takes long"""
    ready_s: float = 15.0
    """the server is ready if every store has answered within this time; within 10 s for a store whose last call
    failed"""
