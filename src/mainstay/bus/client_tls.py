"""The TLS of a client of the bus."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InvalidInput

TLS_FILES = ("ca", "cert", "key")


class BusTls(ssl.SSLContext):
    """A client's settings: its certificate, and whom it trusts.

    A name can stand for several addresses, and a connection is made to one of them. The certificate of the server is
    still checked for the name, which `names` has by address.
    """

    names: dict[str, str]
    files: Mapping[str, str]

    def read_files(self) -> None:
        """Read its files, also again: a certificate that was replaced is used by the next connection."""
        for name in TLS_FILES:
            _check_readable(name, self.files[name])
        try:
            self.load_verify_locations(self.files["ca"])
        except ssl.SSLError as error:
            raise InvalidInput("url", f"ca: {self.files['ca']} holds no certificate ({error.reason})") from None
        cert, key = self.files["cert"], self.files["key"]
        try:
            self.load_cert_chain(cert, key)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                rule = f"key: {key} is not the key of {cert}"
            else:
                rule = f"{cert} or {key} is damaged, or not PEM ({error.reason or error})"
            raise InvalidInput("url", rule) from None

    def wrap_bio(self, incoming: Any, outgoing: Any, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        host = kwargs.get("server_hostname")
        if isinstance(host, str):
            kwargs["server_hostname"] = self.names.get(host, host)
        return super().wrap_bio(incoming, outgoing, *args, **kwargs)


def client_tls(files: Mapping[str, str]) -> BusTls | None:
    """Read ca, cert and key; None without files. Refuses files that are missing, damaged or do not fit together."""
    if not files:
        return None
    for name in TLS_FILES:
        if name not in files:
            raise InvalidInput("url", f"TLS needs ca, cert and key; missing: {name}")
    context = BusTls(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.names, context.files = {}, files
    context.read_files()
    return context


def _check_readable(name: str, path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except FileNotFoundError:
        raise InvalidInput("url", f"{name}: there is no file {path}") from None
    except OSError as error:
        raise InvalidInput("url", f"{name}: {path} cannot be read: {error.strerror}") from None


__all__ = ["TLS_FILES", "BusTls", "client_tls"]
