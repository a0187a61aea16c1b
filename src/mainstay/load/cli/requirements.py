"""The extra that load tests need. Commands import it when they run, so that other commands start without it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...cli import error_as_json
from ...errors import MainstayError

#: stands for stdout in place of a path
STDOUT = "-"


@contextlib.contextmanager
def load_needed(what: str) -> Iterator[None]:
    """Wraps imports: the error for a missing package names the extra. `what` begins the sentence."""
    from ..extra import extra_needed  # noqa: PLC0415 - the package of load tests itself

    with extra_needed(what):
        yield


@contextlib.contextmanager
def errors_for(json: str | None) -> Iterator[None]:
    """Prints errors as JSON if the JSON of the command goes to stdout."""
    try:
        yield
    except MainstayError as error:
        if json != STDOUT:
            raise
        raise error_as_json(error) from None
