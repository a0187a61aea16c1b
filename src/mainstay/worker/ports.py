"""Listening ports: clear errors, and enough open files."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from ..errors import InvalidInput


@contextlib.contextmanager
def port_errors(host: str, port: int, *, field: str = "port") -> Iterator[None]:
    """Turn an error of the system into one that says what to do.

    >>> with port_errors("127.0.0.1", 80):
    ...     raise PermissionError(errno.EACCES, "Permission denied")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: port: 80 may not be opened by this user; choose one above 1023, or 0 for ...
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            rule = f"{port} is in use on {host}; choose another port, or 0 for any that is free"
        elif error.errno in (errno.EACCES, errno.EPERM):
            rule = f"{port} may not be opened by this user; choose one above 1023, or 0 for any that is free"
        else:
            rule = f"{host}:{port} cannot be opened ({error.strerror or error})"
        raise InvalidInput(field, rule) from None


def raise_open_files() -> None:
    """Raise the limit of open files as far as this user may: each connection needs one."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ModuleNotFoundError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


__all__ = ["port_errors", "raise_open_files"]
