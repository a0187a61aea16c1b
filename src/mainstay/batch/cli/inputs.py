"""Parameter sets and seeds from the command line or a file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec

from ...cli import key_value
from ...errors import InvalidInput, MainstayError
from .. import grid
from .values import UNDECLARED, is_text, value_of

#: a range with more values is a typing error
_MOST = 1_000_000
_SEEDS = re.compile(r"(\d+)(?:-(\d+))?")
#: a value between commas; text in double quotes may contain commas
_PIECE = re.compile(r'\s*"(?:[^"\\]|\\.)*"\s*(?=,|$)|[^,]*')
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def sets_given(
    words: Sequence[str], file: str | None, declared: Mapping[str, Any] | None = None
) -> list[dict[str, Any]] | None:
    """Every combination of the values, for each set of the file; None if no parameter was named. `declared` are the
    parameter types of the study.

    >>> sets_given(["beta=0.2,0.3", "gamma=0.1"], None)
    [{'beta': 0.2, 'gamma': 0.1}, {'beta': 0.3, 'gamma': 0.1}]
    """
    types = declared or {}
    values: dict[str, list[Any]] = {}
    for word in words:
        name, text = key_value(word, field="param", form="name=values, like beta=0.2,0.3")
        if name in values:
            raise InvalidInput(f"param {name}", "is given twice; write all values together: name=1,2,3")
        values[name] = values_of(text, types.get(name, UNDECLARED), field=f"param {name}")
    if file is None:
        return grid(**values) if values else None
    sets = read_sets(file, types)
    for place, one in enumerate(sets):
        if both := sorted(one.keys() & values.keys()):
            raise InvalidInput(f"param {both[0]}", f"is in set {place + 1} of {file!r} as well; give it once")
    return [{**one, **more} for one in sets for more in (grid(**values) if values else [{}])]


def values_of(text: str, declared: Any = UNDECLARED, *, field: str = "param") -> list[Any]:
    """The values of one parameter: separated by commas, as ranges that include both ends, or a JSON list.

    >>> values_of("1,2,x"), values_of("0.1:0.3:0.1"), values_of("1:3"), values_of('[[1,2],"a,b"]')
    ([1, 2, 'x'], [0.1, 0.2, 0.3], [1, 2, 3], [[1, 2], 'a,b'])
    >>> values_of('"10:30","a,b",True')
    ['10:30', 'a,b', True]
    """
    if text.startswith("["):
        try:
            listed: list[Any] = msgspec.json.decode(text, type=list[Any])
        except msgspec.DecodeError as error:
            raise InvalidInput(field, f"{text!r} is not a JSON list: {error}") from None
        return listed
    values: list[Any] = []
    for piece in _pieces(text):
        if not piece.strip():
            raise InvalidInput(field, f"{text!r} contains an empty value; write 1,2,3")
        ranges = ":" in piece and not is_text(piece.strip(), declared)
        values += _range(piece, declared, field) if ranges else [value_of(piece, declared, field=field)]
    return values


def _pieces(text: str) -> list[str]:
    pieces: list[str] = []
    at = 0
    while at <= len(text):
        piece = _PIECE.match(text, at)
        assert piece is not None, "it matches the empty text"
        pieces.append(piece[0])
        at = piece.end() + 1
    return pieces


def _range(piece: str, declared: Any, field: str) -> list[Any]:
    parts = piece.split(":")
    try:
        numbers = [Decimal(part.strip()) for part in parts]
    except InvalidOperation:
        return [value_of(piece, declared, field=field)]  # text with a colon
    if len(numbers) not in (2, 3) or not all(number.is_finite() for number in numbers):
        raise InvalidInput(field, f"{piece!r} is not a range; write first:last, or first:last:step")
    first, last = numbers[:2]
    step = numbers[2] if len(numbers) == 3 else Decimal(1)
    if step == 0 or (last - first) / step < 0:
        raise InvalidInput(field, f"{piece!r} never gets from {first} to {last}; change the step")
    n = int((last - first) / step) + 1
    if n > _MOST:
        raise InvalidInput(field, f"{piece!r} has {n:,} values; the limit is {_MOST:,}")
    whole = all(re.fullmatch(r"[+-]?\d+", part.strip()) for part in parts)
    kind: Callable[[Decimal], Any] = int if whole else float
    # as decimals: 0.1 + 0.2 is 0.3
    return [kind(first + place * step) for place in range(n)]


def read_sets(path: str, declared: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Parameter sets from a file: CSV with a line of names, a JSON list of objects, or one JSON object per line. The
    texts of a CSV are converted by the declared types, or by the rule of `values`."""
    suffix = Path(path).suffix.lower()
    reader = _READERS.get(suffix)
    if reader is None:
        raise InvalidInput("params-file", f"{path!r} has another format than {', '.join(_READERS)}")
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput("params-file", f"{path!r} cannot be read: {why}") from None
    try:
        sets = reader(text, declared or {})
    except (msgspec.DecodeError, csv.Error) as error:
        raise InvalidInput("params-file", f"{path!r} cannot be read: {error}") from None
    if not sets:
        raise InvalidInput("params-file", f"{path!r} contains no parameter set")
    return sets


def _from_csv(text: str, declared: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = csv.reader(io.StringIO(text), strict=True)
    names = [name.strip() for name in next(rows, [])]
    if len(set(names)) < len(names) or not all(names):
        raise InvalidInput("params-file", "its first line must name every column, without duplicates")
    sets = []
    for row in rows:
        if not row:
            continue
        if len(row) != len(names):
            raise InvalidInput("params-file", f"line {rows.line_num} has {len(row)} values for {len(names)} columns")
        sets.append(
            {
                name: value_of(value, declared.get(name, UNDECLARED), field=f"params-file line {rows.line_num}, {name}")
                for name, value in zip(names, row, strict=True)
            }
        )
    return sets


def _from_json(text: str, _: Mapping[str, Any]) -> list[dict[str, Any]]:
    return msgspec.json.decode(text, type=list[dict[str, Any]])


def _from_lines(text: str, _: Mapping[str, Any]) -> list[dict[str, Any]]:
    sets = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                sets.append(msgspec.json.decode(line, type=dict[str, Any]))
            except msgspec.DecodeError as error:
                raise InvalidInput("params-file", f"line {number} is not a JSON object: {error}") from None
    return sets


_READERS: dict[str, Callable[[str, Mapping[str, Any]], list[dict[str, Any]]]] = {
    ".csv": _from_csv,
    ".json": _from_json,
    ".jsonl": _from_lines,
    ".ndjson": _from_lines,
}


def typed(sets: Iterable[dict[str, Any]], convert: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """Values in the types of the study: 1 becomes 1.0 for a float."""
    converted = []
    for place, one in enumerate(sets):
        try:
            values = msgspec.to_builtins(convert(one), order="deterministic")
        except MainstayError as error:
            error.args = (f"set {place + 1}: {error}",)
            raise
        converted.append(
            {name: values.get(name, value) for name, value in one.items()} if isinstance(values, dict) else one
        )
    return converted


def seeds_given(text: str | None) -> list[int] | None:
    """`10` is a number of seeds, from 0; `0-9` and `1,5,7` are the seeds themselves.

    >>> seeds_given("3"), seeds_given("1,5-7"), seeds_given("7-7")
    ([0, 1, 2], [1, 5, 6, 7], [7])
    """
    if text is None:
        return None
    if text.strip().isdigit():
        return list(range(int(text)))
    seeds: list[int] = []
    for piece in text.split(","):
        parts = _SEEDS.fullmatch(piece.strip())
        if parts is None:
            raise InvalidInput("seeds", f"{text!r} is neither a number of seeds nor a list; write 10, 0-9 or 1,5,7")
        first, last = int(parts[1]), int(parts[2] or parts[1])
        if last < first or last - first >= _MOST:
            raise InvalidInput("seeds", f"{piece!r} contains no seeds, or too many")
        seeds += range(first, last + 1)
    return seeds


def budget_given(text: str | None) -> float | None:
    """A share of the units, as `10%` or `0.1`.

    >>> budget_given("10%"), budget_given("0.25")
    (0.1, 0.25)
    """
    if text is None:
        return None
    if percent := _PERCENT.fullmatch(text.strip()):
        return float(Decimal(percent[1]) / 100)
    try:
        return float(text)
    except ValueError:
        raise InvalidInput("failure-budget", f"{text!r} is not a share of the units; write 10% or 0.1") from None
