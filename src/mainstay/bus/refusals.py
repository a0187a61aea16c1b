"""Why a server of the bus cannot be used, in words that say what to do."""

from __future__ import annotations

import re
import ssl

#: a part of the error -> what it means. The texts are those of OpenSSL and of nats-server
_MEANINGS = (
    ("hostname mismatch", "the server's certificate does not name this host; issue it with --host and this name"),
    (
        "ip address mismatch",
        "the server's certificate does not name this address; issue it with --host and this address",
    ),
    ("certificate is not yet valid", "the server's certificate is not valid yet; is the clock of this machine slow?"),
    ("certificate has expired", "the server's certificate has expired, or the clock of this machine is fast"),
    (
        "unable to get local issuer",
        "the server's certificate is not of the authority in ca.pem; is it another cluster?",
    ),
    ("self-signed certificate", "the server's certificate is not of the authority in ca.pem; is it another cluster?"),
    ("wrong_version_number", "the server speaks no TLS first; its tls block needs handshake_first: auto"),
    ("alert_unknown_ca", "the server does not accept the authority of this certificate; is it another cluster?"),
    ("alert_certificate_required", "the server requires a certificate"),
    (
        "alert_bad_certificate",
        "the server does not accept this certificate; it may have expired, or be of another cluster",
    ),
    ("alert_certificate_expired", "this certificate has expired, by the clock of the server"),
    ("tls required", "the server requires TLS; pass ca, cert and key"),
    (
        "authorization violation",
        "the server does not know this certificate or password; write its configuration (certs config), and reload",
    ),
)
_REFUSED = ("authorization violation", "certificate", "alert_", "tls", "wrong_version_number")


def failure_text(error: BaseException) -> str:
    """Why a connection failed.

    >>> failure_text(ConnectionRefusedError(111, "Connection refused"))
    'nothing listens there'
    """
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    text = shown_error(error)
    lower = text.lower()
    for part, meaning in _MEANINGS:
        if part in lower:
            return meaning
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or text}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return text


def is_refusal(error: BaseException) -> bool:
    """Whether a server answered, and trying again changes nothing until its configuration or a certificate does."""
    text = shown_error(error).lower()
    return not isinstance(error, TimeoutError) and any(part in text for part in _REFUSED)


def shown_error(error: BaseException) -> str:
    """An error without the credentials of a URL that it may contain."""
    return re.sub(r"//[^@/ ]*@", "//***@", f"{type(error).__name__}: {error}".rstrip(": "))


__all__ = ["failure_text", "is_refusal", "shown_error"]
