"""What load tests need is an extra: imported when a command runs, and never for the help of another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def load_needed(what: str) -> Iterator[None]:
    """Wrap the imports with it: what is missing is said with the extra's name. `what` begins the sentence."""
    from ..load.extra import extra_needed  # noqa: PLC0415 - the package of load tests itself

    with extra_needed(what):
        yield
