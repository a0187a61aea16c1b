"""A certificate for a target that was given none: made anew each time, trusted by nobody who is not told to."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from pathlib import Path

from ...errors import InvalidInput


async def self_signed(folder: Path, host: str) -> Path:
    """Make one for this host and for localhost, with its key in the same file."""
    names = ["DNS:localhost", "IP:127.0.0.1", "IP:::1"]
    if host not in ("localhost", "127.0.0.1", "::1"):
        names.append(f"IP:{host}" if _is_address(host) else f"DNS:{host}")
    made = folder / "target.pem"
    key = folder / "target.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "30", "-subj", "/CN=localhost", "-addext", f"subjectAltName={','.join(names)}"]
    command += ["-keyout", str(key), "-out", str(made)]
    try:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except FileNotFoundError:
        raise InvalidInput(
            "tls",
            "the program openssl is not installed, so no certificate can be made; install it, "
            "or name a certificate (cert) and its key (key)",
        ) from None
    told, _ = await child.communicate()
    if child.returncode != 0:
        why = told.decode(errors="replace").strip().splitlines()[-1:]
        raise InvalidInput("tls", f"openssl could not make a certificate ({' '.join(why)}); name one (cert, key)")
    made.write_bytes(made.read_bytes() + key.read_bytes())
    made.chmod(0o600)
    key.unlink()
    return made


def server_context(cert: str, key: str | None) -> ssl.SSLContext:
    """HTTP/2 for whoever asks for it, else HTTP/1.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput("cert", f"the certificate {cert} cannot be used ({error})") from None
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
