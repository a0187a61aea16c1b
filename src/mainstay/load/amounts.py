"""Parse amounts: durations, rates, stages, pauses. An error points at the wrong character."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..clock import seconds
from ..errors import InvalidInput

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(s|m|h|sec|min|hour)?\s*$")
_PER = {"s": 1.0, "sec": 1.0, None: 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.IGNORECASE)


def duration_of(value: Any, *, field: str) -> float:
    """Seconds from "30s"; an error points at the wrong character.

    >>> duration_of("1m30s", field="duration")
    90.0
    >>> duration_of("30x", field="duration")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: duration: is not a duration; write it with a unit, like '30s', '5m' or '1h30m'
      30x
        ^ here
    """
    if isinstance(value, str):
        at = 0
        while found := _DURATION.match(value.strip(), at):
            at = found.end()
        if not value.strip() or at < len(value.strip()):
            number = re.compile(r"\d+(?:\.\d+)?").match(value.strip(), at)
            rule = "is not a duration; write it with a unit, like '30s', '5m' or '1h30m'"
            raise InvalidInput(field, rule + pointing(value.strip(), number.end() if number else at))
    return seconds(value, field=field)


def rate_of(value: Any, *, field: str) -> float:
    """Events per second, from "2000/s", "90/m" or a number.

    >>> rate_of("90/m", field="rate"), rate_of(50, field="rate")
    (1.5, 50.0)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        found = float(value)
    else:
        match = _RATE.match(value) if isinstance(value, str) else None
        if match is None:
            raise InvalidInput(field, f"{value!r} is not a rate; write it like '2000/s' or '90/m'")
        found = float(match[1]) / _PER[match[2]]
    if not 0 < found <= 10_000_000:
        raise InvalidInput(field, f"{value!r} is out of range; a rate is more than 0 and at most 10 million a second")
    return found


def stages_of(value: Any, *, field: str = "stages") -> tuple[list[tuple[float, float]], bool]:
    """The (seconds, level) of each stage, and whether the levels are rates. From pairs, or from "30s:100,1m:500".

    >>> stages_of("30s:100, 1m:500")
    ([(30.0, 100.0), (60.0, 500.0)], False)
    >>> stages_of([("10s", "200/s")])
    ([(10.0, 200.0)], True)
    """
    pairs = _split(value, field=field) if isinstance(value, str) else value
    if not isinstance(pairs, Sequence) or not pairs:
        raise InvalidInput(field, f"{value!r} has no stages; write [('30s', 100), ('1m', 500)]")
    found: list[tuple[float, float]] = []
    kinds: set[bool] = set()
    for number, pair in enumerate(pairs):
        where = f"{field}[{number}]"
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise InvalidInput(where, f"{pair!r} is not a stage; write ('30s', 100)")
        is_rate = isinstance(pair[1], str) and "/" in pair[1]
        kinds.add(is_rate)
        found.append((duration_of(pair[0], field=where), _level(pair[1], is_rate=is_rate, field=where)))
    if len(kinds) > 1:
        raise InvalidInput(field, "some stages are numbers of users and some are rates; use one kind")
    if sum(length for length, _ in found) <= 0:
        raise InvalidInput(field, "all stages have a duration of zero; give one of them a duration")
    if not any(level for _, level in found):
        raise InvalidInput(field, "all stages have a level of zero; give one of them a number above 0")
    return found, kinds.pop()


def _split(text: str, *, field: str) -> list[tuple[str, str]]:
    pairs, at = [], 0
    for part in text.split(","):
        length, colon, level = part.partition(":")
        if not colon:
            rule = "each stage is a duration and a number, like 30s:100,1m:500"
            raise InvalidInput(field, rule + pointing(text, at + len(part)))
        pairs.append((length.strip(), level.strip()))
        at += len(part) + 1
    return pairs


def _level(value: Any, *, is_rate: bool, field: str) -> float:
    if is_rate:
        text = str(value).strip()
        return 0.0 if re.match(r"0+(\.0+)?\s*/", text) else rate_of(text, field=field)
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise InvalidInput(field, f"{value!r} is neither a number of users nor a rate; write 100, or '200/s'") from None
    if number < 0:
        raise InvalidInput(field, f"{value!r} is negative")
    return float(number)


def pause_of(value: Any, *, field: str) -> tuple[float, float]:
    """The shortest and the longest pause, from "1s" or "1s-3s".

    >>> pause_of("1s-3s", field="think"), pause_of("250ms", field="think")
    ((1.0, 3.0), (0.25, 0.25))
    """
    if isinstance(value, str) and "-" in value:
        low, _, high = value.partition("-")
        found = duration_of(low, field=field), duration_of(high, field=field)
        if found[0] > found[1]:
            raise InvalidInput(field, f"{value!r} is the wrong way round; write the shorter one first")
        return found
    only = duration_of(value, field=field)
    return only, only


def pointing(text: str, at: int) -> str:
    """The text with a mark under one of its characters, for the end of a message."""
    return f"\n  {text}\n  {' ' * at}^ here"
