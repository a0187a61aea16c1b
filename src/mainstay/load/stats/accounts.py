"""How the iterations of a run ended. Each has exactly one end; every run checks the sums, and wrong sums make it
untrustworthy."""

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
    """whether it is an open model, with arrivals"""
    arrivals: int = 0
    dropped: int = 0
    begun: int = 0
    completed: int = 0
    failed: int = 0
    aborted: int = 0

    @property
    def error(self) -> str:
        """The wrong sum in words; empty if there is none.

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
    """Compares the accounts of all processes with their windows."""

    def __init__(self) -> None:
        self._windows = Account()
        self._generators = Account()
        self._errors: list[str] = []

    def add(self, window: Window) -> None:
        """Count the iterations of a window."""
        sums = self._windows
        sums.arrivals += window.arrivals
        sums.dropped += window.dropped
        sums.begun += window.begun
        sums.completed += window.iterations - window.failed_iterations
        sums.failed += window.failed_iterations
        sums.aborted += window.aborted_iterations

    def settle(self, workflow: str, accounts: Iterable[Account]) -> None:
        """A workflow is done: take the account of each process."""
        for account in accounts:
            if account.error:
                self._errors.append(f"{workflow}: {account.error}")
            for name in ("arrivals", "dropped", "begun", "completed", "failed", "aborted"):
                setattr(self._generators, name, getattr(self._generators, name) + getattr(account, name))

    def lose(self, total: Window) -> None:
        """Count what was received of processes that were lost, which have no account: the sum of their windows."""
        lost = self._generators
        lost.arrivals += total.arrivals
        lost.dropped += total.dropped
        lost.begun += total.begun
        lost.completed += total.iterations - total.failed_iterations
        lost.failed += total.failed_iterations
        lost.aborted += total.aborted_iterations

    @property
    def errors(self) -> list[str]:
        """The differences, after every process is done."""
        errors = list(self._errors)
        for name in ("arrivals", "dropped", "begun", "completed", "failed", "aborted"):
            in_generators, in_windows = getattr(self._generators, name), getattr(self._windows, name)
            if in_generators != in_windows:
                errors.append(f"{name}: {digits(in_windows)} in the windows, {digits(in_generators)} in the generators")
        return errors

    @property
    def unknown(self) -> int:
        """Started iterations whose end is in no window."""
        sums = self._windows
        return max(0, sums.begun - sums.completed - sums.failed - sums.aborted)
