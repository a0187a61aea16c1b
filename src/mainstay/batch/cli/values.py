"""Converts the text of a parameter value: by the type that the study declares, else by one rule.

The rule for parameters without a type: JSON is read as JSON (`0.3`, `true`, `null`, `"text"`, `[1,2]`). `True`,
`FALSE` and the like are booleans, `.5`, `5.` and `+1` are numbers. Ambiguous texts are refused: `None`,
`NaN`, `Infinity`, `1e400`, `007`, `1_000`, an empty cell. Everything else is text, and so is a value in double quotes.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from ...errors import InvalidInput

#: the type of a parameter without a declared type
UNDECLARED: Any = Any
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_LEADING_ZERO = re.compile(r"[+-]?0\d", re.ASCII)
#: how programs write a missing value
_NO_VALUE = frozenset(
    {"None", "none", "NONE", "NULL", "Null", "nil", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT", "-nan"}
)


class DoubtfulValue(InvalidInput):
    """An ambiguous text."""

    code = "doubtful_value"


def value_of(text: str, declared: Any = UNDECLARED, *, field: str = "param") -> Any:
    """One value; raises `DoubtfulValue`.

    >>> value_of("False"), value_of(".5"), value_of("cold"), value_of("007", str)
    (False, 0.5, 'cold', '007')
    """
    if declared is UNDECLARED:
        return _by_rule(text, field)
    doubt: DoubtfulValue | None = None
    value: Any = None
    try:
        value = _by_rule(text, field)
    except DoubtfulValue as found:
        doubt = found
    else:
        if _fits(value, declared):
            return value
    stripped = text.strip()
    if _fits(stripped, declared):
        return stripped
    if stripped in _NO_VALUE and _fits(None, declared):
        return None
    if doubt is not None:
        raise doubt
    return value  # the conversion of the whole set refuses it, and names the parameter and its type


def is_text(text: str, declared: Any) -> bool:
    """Whether the declared type takes this text as it is."""
    if declared is UNDECLARED:
        return False
    try:
        return isinstance(msgspec.convert(text, declared, strict=False), str)
    except msgspec.ValidationError:
        return False


def _fits(value: Any, declared: Any) -> bool:
    try:
        msgspec.convert(value, declared, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _by_rule(text: str, field: str) -> Any:
    word = text.strip()
    if not word:
        raise _doubtful(field, "it is empty", 'null if there is no value, "" for an empty text')
    try:
        return msgspec.json.decode(word)
    except (msgspec.DecodeError, UnicodeEncodeError):
        pass
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if word in _NO_VALUE:
        raise _doubtful(field, f"{word} could be a text or no value", f'null if there is no value, "{word}" for a text')
    if _NUMBER.fullmatch(word) and not _LEADING_ZERO.match(word):
        number = int(word) if _WHOLE.fullmatch(word) else float(word)
        if math.isfinite(number):
            return number
        raise _doubtful(field, f"{word} is too large for a float", f'a smaller number, or "{word}" for a text')
    if _reads_as_number(word):
        raise _doubtful(
            field, f"{word} could be a number or a text", f'the number as in 12, 0.5 or 1e-3, or "{word}" for a text'
        )
    if word[0] in "{[\"'":
        raise _doubtful(field, f"{word} is not valid JSON", "it as JSON; a text goes in double quotes")
    return word


def _reads_as_number(word: str) -> bool:
    """Whether Python reads it as a number: 1_000, 0x10, 007, inf, digits of other scripts."""
    for read in (float, lambda text: int(text, 0)):
        try:
            read(word)
        except ValueError:
            continue
        return True
    return False


def _doubtful(field: str, what: str, write: str) -> DoubtfulValue:
    return DoubtfulValue(field, f"{what}; write {write}, or declare the type of the parameter in the study")
