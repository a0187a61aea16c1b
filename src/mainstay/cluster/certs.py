"""A small certificate authority for one cluster, and what the bus reads of its certificates.

A certificate names who connects: role, name, cluster, environment and, for a node, the queues that it may claim from.
The server of the bus checks it and maps it to a user with the permissions of that identity, so that no program can use
the subjects of another. Keys are files that only their owner can read.

    FOLDER/ca.pem, ca.key            the authority; `ca.pem` may hold several, while one replaces another
    FOLDER/ROLE-NAME.pem, .key       one certificate
    FOLDER/nats.conf                 the configuration of the server, rewritten with each certificate
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec

from ..clock import Clock, SystemClock
from ..errors import InvalidInput, MissingExtra
from .nats_server import NatsUser, server_config
from .permissions import ROLES, Identity

if TYPE_CHECKING:
    from cryptography import x509

_AUTHORITY_DAYS, _DAYS = 3650, 365
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_SERVER = "server"


class CertificateFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where a certificate is."""

    ca: Path
    cert: Path
    key: Path
    identity: Identity

    def url(self, server: str) -> str:
        """The URL of the cluster for the program that has these files; `server` is HOST:PORT of the bus."""
        files = {"ca": str(self.ca), "cert": str(self.cert), "key": str(self.key)}
        more = {} if self.identity.environment == "default" else {"environment": self.identity.environment}
        return f"tls://{server}/{quote(self.identity.cluster)}?{urlencode({**more, **files})}"


def make_authority(folder: Path, *, cluster: str, environment: str = "default", clock: Clock | None = None) -> None:
    """Make the authority of a cluster, once. If there is one already, a new one is put before it: certificates of both
    are accepted until the old one is retired (`retire_authority`)."""
    _check_name(cluster, "cluster")
    _check_name(environment, "environment")
    x509, hashes, _, ec = _cryptography()
    if (folder / "ca.pem").exists() and (known := _place_of(_authorities(folder)[0])) != f"{cluster}/{environment}":
        rule = f"{folder} has the authority of {known}; use a folder for each cluster and environment"
        raise InvalidInput("folder", rule)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    # two authorities of a cluster need two names: TLS looks up the issuer of a certificate by its name
    number = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest.hex()[:16]
    name = _subject(x509, f"{cluster}/{environment}", f"mainstay authority {number}")
    builder = _builder(x509, name, name, key.public_key(), clock or SystemClock(), _AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(x509, signs=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    made = builder.sign(key, hashes.SHA256())
    before = (folder / "ca.pem").read_bytes() if (folder / "ca.pem").exists() else b""
    _write(folder / "ca.key", _key_text(key))
    _write(folder / "ca.pem", _pem(made) + before, mode=0o644)


def issue(
    folder: Path,
    role: str,
    name: str,
    *,
    queues: Sequence[str] = (),
    hosts: Sequence[str] = (),
    days: int = _DAYS,
    clock: Clock | None = None,
) -> CertificateFiles:
    """Make a certificate for a manager, a node, an operator, or for the server of the bus (role `server`), which needs
    the `hosts` that its clients connect to."""
    if role not in (*ROLES, _SERVER):
        raise InvalidInput("role", f"{role!r} is not one of {', '.join((*ROLES, _SERVER))}")
    _check_name(name, "name")
    if queues and role != "node":
        raise InvalidInput("queues", "only the certificate of a node names queues")
    if role == _SERVER and not hosts:
        raise InvalidInput("hosts", "the server's certificate needs the names or addresses that clients connect to")
    x509, hashes, serialization, ec = _cryptography()
    authority, signer = _authority(folder, serialization)
    place = _place_of(authority)
    cluster, _, environment = place.partition("/")
    identity = Identity(role=role, name=name, cluster=cluster, environment=environment, queues=tuple(queues))
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(x509, place, f"{role}:{name}")
    builder = _builder(x509, subject, authority.subject, key.public_key(), clock or SystemClock(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    builder = builder.add_extension(issuer, critical=False)
    names: list[Any] = [x509.UniformResourceIdentifier(_uri(identity))]
    names += [_host(x509, host) for host in hosts]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(_usage(x509, signs=False), critical=True)
    purposes = [x509.ExtendedKeyUsageOID.CLIENT_AUTH]
    if role == _SERVER:  # it is the client of other servers of the same bus, too
        purposes.insert(0, x509.ExtendedKeyUsageOID.SERVER_AUTH)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    files = CertificateFiles(
        ca=folder / "ca.pem", cert=folder / f"{role}-{name}.pem", key=folder / f"{role}-{name}.key", identity=identity
    )
    _write(files.key, _key_text(key))
    _write(files.cert, _pem(builder.sign(signer, hashes.SHA256())), mode=0o644)
    return files


def identity_of(certificate: bytes) -> Identity:
    """Who a certificate (PEM) names."""
    x509, *_ = _cryptography()
    try:
        found = x509.load_pem_x509_certificate(certificate)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uri = urlsplit(names.get_values_for_type(x509.UniformResourceIdentifier)[0])
        environment, role, name = uri.path.strip("/").split("/")
    except (ValueError, IndexError, x509.ExtensionNotFound) as error:
        raise InvalidInput("certificate", f"it is not one of `mainstay cluster certs`: {error}") from None
    queues = tuple(parse_qs(uri.query).get("queue", ()))
    return Identity(role=role, name=name, cluster=uri.netloc, environment=environment, queues=queues)


def retire_authority(folder: Path) -> list[Path]:
    """Remove the authorities from `ca.pem` that were replaced. Refuses while a certificate in the folder is of one of
    them; the list of certificates that were checked."""
    newest, *replaced = _authorities(folder)
    x509, *_ = _cryptography()
    checked = sorted(folder.glob("*-*.pem"))
    old = [path.name for path in checked if not _issued_by(x509.load_pem_x509_certificate(path.read_bytes()), newest)]
    if old:
        raise InvalidInput("folder", f"not of the newest authority, and to be issued again first: {', '.join(old)}")
    if replaced:
        _write(folder / "ca.pem", _pem(newest), mode=0o644)
    return checked


def identities(folder: Path) -> list[Identity]:
    """Everything that was issued in a folder, but the server's own certificate."""
    found = [identity_of(path.read_bytes()) for path in sorted(folder.glob("*-*.pem"))]
    return [identity for identity in found if identity.role != _SERVER]


def node_queues(folder: Path) -> dict[str, tuple[str, ...]]:
    """By node that has a certificate in a folder: the queues that it may claim from; empty: all."""
    found = [identity_of(path.read_bytes()) for path in sorted(folder.glob("node-*.pem"))]
    return {identity.name: identity.queues for identity in found if identity.role == "node"}


def write_server_config(
    folder: Path,
    *,
    listen: str,
    server: str,
    routes: Sequence[str] = (),
    routes_listen: str = "0.0.0.0:6222",
    http: str = "",
    certs: Path | None = None,
) -> Path:
    """Write `nats.conf`: TLS with the certificate of this server, and one user with its own subjects for each
    certificate. A running server reads it again on SIGHUP. `certs` is the folder of the certificates on the machine of
    the server; by default this one."""
    host, _, port = listen.rpartition(":")
    if not port.isdecimal():
        raise InvalidInput("listen", f"{listen!r} is not HOST:PORT")
    if not (folder / f"server-{server}.pem").exists():
        fix = f"mainstay cluster certs issue server {server} --host NAME"
        raise InvalidInput("server", f"{folder} has no certificate of the server {server!r}; make it: {fix}")
    place = _place_of(_authorities(folder)[0])
    for each in identities(folder):
        if f"{each.cluster}/{each.environment}" != place:
            rule = f"{each.role}-{each.name}.pem is of {each.cluster}/{each.environment}, and the authority of {place}"
            raise InvalidInput("folder", f"{rule}; members of two clusters on one bus would reach each other")
    users = [
        NatsUser(name=f"CN={each.role}:{each.name},OU={each.cluster}/{each.environment},O=mainstay", identity=each)
        for each in identities(folder)
    ]
    if not users:  # without one, nats-server would ask for nothing but a certificate
        raise InvalidInput("folder", f"{folder} has no certificate of a member; make one: mainstay cluster certs issue")
    files = {"ca": folder / "ca.pem", "cert": folder / f"server-{server}.pem", "key": folder / f"server-{server}.key"}
    tls = {name: str(path.absolute() if certs is None else certs / path.name) for name, path in files.items()}
    path = folder / "nats.conf"
    text = server_config(
        host=host, port=int(port), users=users, tls=tls, routes=list(routes), routes_listen=routes_listen, http=http
    )
    _write(path, text.encode())
    return path


# within ----------------------------------------------------------------------------------------------


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtra("certs", "cryptography is not installed; run: pip install 'mainstay[cluster]'") from None
    return x509, hashes, serialization, ec


def _authority(folder: Path, serialization: Any) -> tuple[x509.Certificate, Any]:
    certificate = _authorities(folder)[0]
    try:
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    except FileNotFoundError:
        raise InvalidInput(
            "folder", f"{folder} has ca.pem and not its key (ca.key), which signs certificates"
        ) from None
    return certificate, key


def _authorities(folder: Path) -> list[x509.Certificate]:
    """Those in `ca.pem`, the newest first."""
    x509, *_ = _cryptography()
    try:
        found: list[Any] = x509.load_pem_x509_certificates((folder / "ca.pem").read_bytes())
    except FileNotFoundError:
        rule = f"{folder} has no authority; make one: mainstay cluster certs init --name CLUSTER"
        raise InvalidInput("folder", rule) from None
    return found


def _place_of(authority: x509.Certificate) -> str:
    """CLUSTER/ENVIRONMENT."""
    x509, *_ = _cryptography()
    return str(authority.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATIONAL_UNIT_NAME)[0].value)


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 - of three kinds, one for each reason why it does not fit
        return False
    return True


def issued_by_one_of(certificate: bytes, authorities: bytes) -> bool:
    """Whether one of these authorities (PEM) has signed a certificate (PEM)."""
    x509, *_ = _cryptography()
    found = x509.load_pem_x509_certificate(certificate)
    return any(_issued_by(found, each) for each in x509.load_pem_x509_certificates(authorities))


def validity(certificate: bytes) -> tuple[datetime.datetime, datetime.datetime]:
    """From when to when a certificate (PEM) is valid."""
    x509, *_ = _cryptography()
    found = x509.load_pem_x509_certificate(certificate)
    return found.not_valid_before_utc, found.not_valid_after_utc


def _builder(x509: Any, subject: Any, issuer: Any, key: Any, clock: Clock, days: int) -> Any:
    now = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # clocks of other machines may be behind
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _subject(x509: Any, place: str, name: str) -> Any:
    oid = x509.NameOID
    return x509.Name(
        [
            x509.NameAttribute(oid.ORGANIZATION_NAME, "mainstay"),
            x509.NameAttribute(oid.ORGANIZATIONAL_UNIT_NAME, place),
            x509.NameAttribute(oid.COMMON_NAME, name),
        ]
    )


def _usage(x509: Any, *, signs: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _host(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _uri(identity: Identity) -> str:
    queues = urlencode([("queue", queue) for queue in identity.queues])
    path = f"{identity.environment}/{identity.role}/{identity.name}"
    return f"mainstay://{identity.cluster}/{path}{'?' + queues if queues else ''}"


def _pem(certificate: Any) -> bytes:
    _, _, serialization, _ = _cryptography()
    text: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return text


def _key_text(key: Any) -> bytes:
    _, _, serialization, _ = _cryptography()
    text: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return text


def _write(path: Path, text: bytes, *, mode: int = 0o600) -> None:
    temporary = path.with_suffix(f"{path.suffix}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "wb") as file:
        file.write(text)
    temporary.replace(path)


def _check_name(name: str, field: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(field, f"{name!r} is not 1 to 60 letters, digits, '_' and '-'")


__all__ = [
    "CertificateFiles",
    "identities",
    "identity_of",
    "issue",
    "issued_by_one_of",
    "make_authority",
    "node_queues",
    "retire_authority",
    "validity",
    "write_server_config",
]
