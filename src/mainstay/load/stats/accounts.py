"""What became of the iterations of a run. Each one that was due has one end, and the sums say so: they are checked in
every run, and a run whose sums are wrong is not to be trusted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .model import Window
from .shown import digits


class Account(msgspec.Struct, kw_only=True):
    """The iterations of a workflow in one process.

    due (open models) = begun + dropped, and begun = completed + failed + aborted.
    """

    open: bool = False
    """whether it has arrivals"""
    arrivals: int = 0
    dropped: int = 0
    begun: int = 0
    completed: int = 0
    failed: int = 0
    aborted: int = 0

    @property
    def error(self) -> str:
        """Which sum is wrong; empty if none is.

        >>> Account(begun=3, completed=1, failed=1, aborted=1).error
        ''
        >>> Account(open=True, arrivals=9, dropped=1, begun=7, completed=7).error
        '9 iterations were due, and 7 were started and 1 dropped'
        """
        if self.open and self.arrivals != self.begun + self.dropped:
            return (
                f"{digits(self.arrivals)} iterations were due, and {digits(self.begun)} were started and "
                f"{digits(self.dropped)} dropped"
            )
        if self.begun != self.completed + self.failed + self.aborted:
            return (
                f"{digits(self.begun)} iterations were started, and {digits(self.completed)} were completed, "
                f"{digits(self.failed)} failed and {digits(self.aborted)} were aborted"
            )
        return ""


class IterationLedger:
    """The accounts of all processes, beside the windows that came of them."""

    def __init__(self) -> None:
        self._seen = Account()
        self._told = Account()
        self._errors: list[str] = []

    def add(self, window: Window) -> None:
        """What a window says."""
        seen = self._seen
        seen.arrivals += window.arrivals
        seen.dropped += window.dropped
        seen.begun += window.begun
        seen.completed += window.iterations - window.failed_iterations
        seen.failed += window.failed_iterations
        seen.aborted += window.aborted_iterations

    def settle(self, workflow: str, accounts: Iterable[Account]) -> None:
        """A workflow is done: what each process says of it as a whole."""
        for account in accounts:
            if account.error:
                self._errors.append(f"{workflow}: {account.error}")
            for name in ("arrivals", "dropped", "begun", "completed", "failed", "aborted"):
                setattr(self._told, name, getattr(self._told, name) + getattr(account, name))

    @property
    def errors(self) -> list[str]:
        """What does not add up, once every process has come to its end."""
        found = list(self._errors)
        for name in ("arrivals", "dropped", "begun", "completed", "failed", "aborted"):
            told, seen = getattr(self._told, name), getattr(self._seen, name)
            if told != seen:
                found.append(f"{name}: {digits(seen)} in the windows, and {digits(told)} in the generators")
        return found

    @property
    def unknown(self) -> int:
        """Iterations that were started and whose end no window told of."""
        seen = self._seen
        return max(0, seen.begun - seen.completed - seen.failed - seen.aborted)
