"""What load tests need is an extra: imported when a command runs, and never for the help of another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...cli.command import error_as_json
from ...errors import MainstayError

#: in place of a path: to where a pipe reads it
STDOUT = "-"


@contextlib.contextmanager
def load_needed(what: str) -> Iterator[None]:
    """Wrap the imports with it: what is missing is said with the extra's name. `what` begins the sentence."""
    from ..extra import extra_needed  # noqa: PLC0415 - the package of load tests itself

    with extra_needed(what):
        yield


@contextlib.contextmanager
def errors_for(json: str | None) -> Iterator[None]:
    """Around a command whose JSON goes to a path: if that is stdout, so do its errors."""
    try:
        yield
    except MainstayError as error:
        if json != STDOUT:
            raise
        raise error_as_json(error) from None
