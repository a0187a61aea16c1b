"""Rows of data for virtual users: from files, or from any iterable."""

from __future__ import annotations

import csv
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..errors import InvalidInput
from .shared_data import own

Share = Literal["split", "shared", "user"]
Order = Literal["as is", "random"]
AtEnd = Literal["repeat", "stop"]
Every = Literal["user", "iteration"]

#: rows of a feed; each process keeps all of them, to split, shuffle and repeat them
MOST_ROWS = 1_000_000


class Feed:
    """The source of `self.vu.data`.

    `share` sets how rows are distributed: "split" gives each row to one user until all are used; with "shared", each
    process goes through all rows; with "user", each virtual user does. `every` sets when the next row is taken: for
    each new "user", or for each "iteration". After the last row the feed starts again ("repeat"), or users without a
    row do not start ("stop"). A feed has at most a million rows. A user gets its own copy of a row.

    A process that replaces a lost one goes on after the rows that were taken, as far as the plan tells. A row may be
    used twice if each row is for one user of an open model, or for one iteration of a closed one without a number of
    iterations.

    >>> feed = Feed([{"user": "ann"}, {"user": "bob"}], every="iteration")
    >>> hand = feed.dealt(process=0, processes=1)
    >>> hand(0), hand(1), hand(0)
    ({'user': 'ann'}, {'user': 'bob'}, {'user': 'ann'})
    """

    def __init__(
        self,
        rows: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        share: Share = "split",
        every: Every = "user",
        order: Order = "as is",
        at_end: AtEnd = "repeat",
    ) -> None:
        _one_of("share", share, ("split", "shared", "user"))
        _one_of("every", every, ("user", "iteration"))
        _one_of("order", order, ("as is", "random"))
        _one_of("at_end", at_end, ("repeat", "stop"))
        self.rows = rows
        self.share = share
        self.every = every
        self.order = order
        self.at_end = at_end
        self.path: Path | None = None
        """the file that the rows are read from, if it is known"""
        self._read: list[Any] | None = None

    @classmethod
    def csv(cls, path: str | Path, **options: Any) -> Feed:
        """Rows of a CSV file, as dictionaries with the names of its first line."""
        return cls._of_file(_csv, Path(path), options)

    @classmethod
    def jsonl(cls, path: str | Path, **options: Any) -> Feed:
        """Lines of a file, each a JSON value."""
        return cls._of_file(_json_lines, Path(path), options)

    @classmethod
    def _of_file(cls, read: Callable[[Path], Iterable[Any]], path: Path, options: Mapping[str, Any]) -> Feed:
        feed = cls(lambda: read(path), **options)
        feed.path = path
        return feed

    def read(self) -> Sequence[Any]:
        """All rows; read once."""
        if self._read is None:
            rows = list(itertools.islice(self.rows() if callable(self.rows) else self.rows, MOST_ROWS + 1))
            if not rows:
                raise InvalidInput("data", "it has no rows")
            if len(rows) > MOST_ROWS:
                rule = f"it has more than {MOST_ROWS:,} rows, or never ends; every process keeps all rows"
                raise InvalidInput("data", f"{rule}. Give fewer rows, or build them in the steps, from self.vu.id")
            self._read = rows
        return self._read

    def dealt(self, *, process: int, processes: int, seed: int = 0, taken: int = 0) -> Callable[[int], Any]:
        """A function that returns the next row for a user, by its number, in one of the processes. It raises
        `NoMoreRows`. `taken`: how many rows this process gave out before. It continues after them, except that with
        `share="user"` each user begins with its first row."""
        rows = self.read()
        if self.share == "split":
            part = rows[process::processes]
            # fewer rows than processes: some processes share rows, unless each row is used once
            rows = part if part or self.at_end == "stop" else rows
        if self.share != "user":
            source = self._through(rows, f"{seed} {process}", taken)
            return lambda _: _next(source)
        sources: dict[int, Iterator[Any]] = {}

        def own(user: int) -> Any:
            if user not in sources:
                sources[user] = self._through(rows, f"{seed} {process} {user}")
            return _next(sources[user])

        return own

    def _through(self, rows: Sequence[Any], seed: str, taken: int = 0) -> Iterator[Any]:
        if not rows:
            return
        turn, at = divmod(taken, len(rows))
        while turn == 0 or self.at_end == "repeat":
            ordered = list(rows)
            if self.order == "random":
                # each turn has a seed of its own, so that a later one is found without those before
                random.Random(f"{seed} turn {turn}").shuffle(ordered)
            yield from itertools.islice(ordered, at, None)
            turn, at = turn + 1, 0


class NoMoreRows(Exception):
    """The data is used up."""


def _next(source: Iterator[Any]) -> Any:
    try:
        # a copy: rows repeat, and another user must not see the changes of this one
        return own(next(source))
    except StopIteration:
        raise NoMoreRows from None


def feed_of(data: Any) -> Feed | None:
    """The feed of a workflow's `data`."""
    if data is None or isinstance(data, Feed):
        return data
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise InvalidInput("data", f"{data!r} is not data; give rows, or Feed.csv('users.csv')")
    return Feed(data)


def _csv(path: Path) -> Iterator[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, row in enumerate(csv.DictReader(file), start=2):
                if None in row or None in row.values():
                    raise InvalidInput("data", f"{path}, line {number}: has more or fewer columns than the first line")
                yield row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput("data", f"{path} cannot be read: {error}") from None


def _json_lines(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    try:
                        yield msgspec.json.decode(line)
                    except msgspec.DecodeError as error:
                        raise InvalidInput("data", f"{path}, line {number}: {error}") from None
    except OSError as error:
        raise InvalidInput("data", f"{path} cannot be read: {error}") from None


def _one_of(field: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InvalidInput(field, f"unknown value {value!r}; write one of {', '.join(known)}")
