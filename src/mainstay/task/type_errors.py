"""Messages about types, from annotations and from errors of msgspec."""

from __future__ import annotations

from typing import Any

#: JSON types and their names in Python
_OURS = (("array", "list"), ("object", "mapping"), ("null", "None"))


def plain_type(annotation: Any) -> str:
    """An annotation as it is written.

    >>> plain_type(int), plain_type(list[int])
    ('int', 'list[int]')
    """
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


def place_and_rule(message: str) -> tuple[str, str]:
    """The place and the rule, from a message of msgspec.

    >>> place_and_rule("Expected `str`, got `int` - at `$.to[0]`")
    ('to[0]', 'expected str, got int')
    >>> place_and_rule("Object missing required field `to`")
    ('to', 'missing')
    >>> place_and_rule("Object contains unknown field `cc` - at `$.mail`")
    ('mail.cc', 'not expected')
    """
    rule, _, path = message.partition(" - at ")
    place = path.strip("`").removeprefix("$").removeprefix(".")
    for prefix, problem in (
        ("Object missing required field ", "missing"),
        ("Object contains unknown field ", "not expected"),
    ):
        if rule.startswith(prefix):
            field = rule.removeprefix(prefix).strip("`")
            return (f"{place}.{field}" if place else field), problem
    for word, ours in _OURS:
        rule = rule.replace(f"`{word}`", ours)
    return place, rule[:1].lower() + rule[1:].replace("`", "")


def error_text(error: Exception) -> str:
    """The message of an error, or its type if it has none."""
    return str(error) or type(error).__name__
