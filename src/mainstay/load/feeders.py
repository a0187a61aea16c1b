"""Rows of data for virtual users: from files, or from anything that can be gone through."""

from __future__ import annotations

import csv
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..errors import InvalidInput
from .shared_data import own

Share = Literal["split", "shared", "user"]
Order = Literal["as is", "random"]
AtEnd = Literal["repeat", "stop"]
Every = Literal["user", "iteration"]

#: rows of a feed; each process keeps all of them, so that it can deal them out, shuffle them and start again
MOST_ROWS = 1_000_000


class Feed:
    """Where `self.vu.data` comes from.

    `share` says who goes through the rows: "split" deals them out, so that no two users have the same one until all
    were used; "shared" has each process go through all of them; "user" has each virtual user go through all of them.
    `every` says when the next row is taken: with each new "user", or with each "iteration". At the end it starts again
    ("repeat"), or users that find no row do not start ("stop"). There are a million rows at most. A row is the user's
    own copy.

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
        self._read: list[Any] | None = None

    @classmethod
    def csv(cls, path: str | Path, **how: Any) -> Feed:
        """Rows of a CSV file, as dictionaries by its first line."""
        return cls(lambda: _csv(Path(path)), **how)

    @classmethod
    def jsonl(cls, path: str | Path, **how: Any) -> Feed:
        """Lines of a file, each a JSON value."""
        return cls(lambda: _json_lines(Path(path)), **how)

    def read(self) -> Sequence[Any]:
        """All rows; read once."""
        if self._read is None:
            found = list(itertools.islice(self.rows() if callable(self.rows) else self.rows, MOST_ROWS + 1))
            if not found:
                raise InvalidInput("data", "there is not a single row in it")
            if len(found) > MOST_ROWS:
                rule = f"there are more than {MOST_ROWS:,} rows in it, or it never ends; every process keeps all rows"
                raise InvalidInput("data", f"{rule}. Give fewer, or make them in the steps, of self.vu.id, say")
            self._read = found
        return self._read

    def dealt(self, *, process: int, processes: int, seed: int = 0) -> Callable[[int], Any]:
        """What hands out rows in one of some processes: called with the number of the user that asks. Raises
        `NoMoreRows`."""
        rows = self.read()
        if self.share == "split":
            part = rows[process::processes]
            # fewer rows than processes: some share one, rather than none has any; unless each is to be used once
            rows = part if part or self.at_end == "stop" else rows
        order = random.Random(f"{seed} {process}") if self.order == "random" else None
        if self.share != "user":
            source = self._through(rows, order)
            return lambda _: _next(source)
        sources: dict[int, Iterator[Any]] = {}

        def own(user: int) -> Any:
            if user not in sources:
                mine = None if order is None else random.Random(f"{seed} {process} {user}")
                sources[user] = self._through(rows, mine)
            return _next(sources[user])

        return own

    def _through(self, rows: Sequence[Any], order: random.Random | None) -> Iterator[Any]:
        while rows:
            turn = list(rows)
            if order is not None:
                order.shuffle(turn)
            yield from turn
            if self.at_end == "stop":
                return


class NoMoreRows(Exception):
    """The data is used up."""


def _next(source: Iterator[Any]) -> Any:
    try:
        # a row comes round again, to another user: what the last one wrote into it is not for that one to see
        return own(next(source))
    except StopIteration:
        raise NoMoreRows from None


def feed_of(data: Any) -> Feed | None:
    """What a workflow's `data` means."""
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
        raise InvalidInput(field, f"{value!r} is none of {', '.join(known)}")
