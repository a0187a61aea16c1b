"""Types of parameters, each declared once: the same declaration checks a value and describes it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from ...control import LARGEST_NUMBER

_HEX = "[0-9a-f]"
#: printable characters, roughly; control decides, by Unicode
_LINE = r"^[^\x00-\x1f\x7f]+$"
#: of ASCII: first a letter, a digit or _, then also . : / -; other characters are checked by control, by Unicode. In a
#: JSON Schema, \w means ASCII only
_NAME = r"^[^\x00-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x7f][^\x00-\x2c\x3b-\x40\x5b-\x5e\x60\x7b-\x7f]*$"

JobId = Annotated[
    str,
    Meta(
        pattern=f"^{_HEX}{{8}}-{_HEX}{{4}}-7{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}$",
        description="A job's id: a UUIDv7.",
        examples=["018bcfe5-6800-7000-8000-0123456789ab"],
    ),
]
Worker = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_\-][A-Za-z0-9._\-]{0,127}$",
        description="A worker's name, or the id of one of its sessions.",
        examples=["box-7-4711"],
    ),
]
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=_NAME,
        description="Letters, digits and _ . : / - only.",
    ),
]
Queue = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        pattern=_NAME,
        description="Letters, digits and _ . : / - only.",
    ),
]
_LINE_RULE = "One line of text, without control characters."
Text = Annotated[str, Meta(min_length=1, max_length=255, pattern=_LINE, description=_LINE_RULE)]
Tag = Annotated[str, Meta(min_length=1, max_length=100, pattern=_LINE, description=_LINE_RULE)]
Reason = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1000,
        pattern=_LINE,
        description="Reason, kept in the audit trail.",
    ),
]
Duration = Annotated[
    str,
    Meta(
        max_length=50,
        pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w))+$",
        description="With a unit: 500ms, 30s, 5m, 1h30m, 2d, 1w.",
        examples=["30s", "1h30m"],
    ),
]
#: a duration, or off
Limit = Annotated[
    str,
    Meta(
        max_length=50,
        pattern=r"^(off|([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w))+)$",
        description="With a unit: 30s, 5m, 1h30m; or off.",
        examples=["5m", "off"],
    ),
]
Millis = Annotated[int, Meta(ge=0, le=32_503_680_000_000, description="Milliseconds since 1970, UTC.")]
Priority = Annotated[int, Meta(ge=-100, le=100, description="Higher goes first.")]
Status = Annotated[str, Meta(pattern="^[a-z_]{1,40}$", description="A state, like pending.")]
PageSize = Annotated[
    int, Meta(ge=1, description="The most jobs of a page. A page may have fewer, and still a next page.")
]
Seq = Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]
Action = Literal["retry", "cancel", "delete"]

#: pattern -> description
RULES: dict[str, str] = {
    meta.pattern: meta.description
    for kind in (JobId, Name, Queue, Text, Duration, Limit, Status)
    for meta in kind.__metadata__  # type: ignore[attr-defined]  # mypy takes it for the bare str
}
