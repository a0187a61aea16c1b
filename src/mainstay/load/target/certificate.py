"""A self-signed certificate for a target without one: new for each start, and trusted by no client by default."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from pathlib import Path

from ...errors import InvalidInput
from ...process_end import kill_process


async def self_signed(folder: Path, host: str) -> Path:
    """Create one for this host and for localhost, with its key in the same file."""
    names = ["DNS:localhost", "IP:127.0.0.1", "IP:::1"]
    if host not in ("localhost", "127.0.0.1", "::1"):
        names.append(f"IP:{host}" if _is_address(host) else f"DNS:{host}")
    certificate = folder / "target.pem"
    key = folder / "target.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "30", "-subj", "/CN=localhost", "-addext", f"subjectAltName={','.join(names)}"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    try:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except FileNotFoundError:
        raise InvalidInput(
            "tls",
            "creating a certificate needs the program openssl, which is not installed; install it, "
            "or name a certificate (cert) and its key (key)",
        ) from None
    try:
        output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            await kill_process(child)
    if child.returncode != 0:
        why = output.decode(errors="replace").strip().splitlines()[-1:]
        raise InvalidInput("tls", f"openssl could not create a certificate ({' '.join(why)}); name one (cert, key)")
    certificate.write_bytes(certificate.read_bytes() + key.read_bytes())
    certificate.chmod(0o600)
    key.unlink()
    return certificate


def server_context(cert: str, key: str | None) -> ssl.SSLContext:
    """A context for HTTP/2 and HTTP/1.1, as the client chooses."""
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
