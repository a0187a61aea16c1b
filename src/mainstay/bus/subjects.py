"""Subjects: what a message is about, and which subscriptions get it. The rules are those of NATS.

A subject is tokens with dots between them. Its first token is the class of the message: `control.beat.node-1`. In a
pattern `*` stands for one token, and `>` at the end for one or more. A pattern begins with a class, too, so the queue
of a subscription holds messages of one class: a flood of statistics cannot push a cancel out of it.
"""

from __future__ import annotations

import re
from enum import StrEnum

from ..errors import InvalidInput

#: characters of a subject; a server of NATS reads subject, reply and group from one line of 4096 bytes
LONGEST_SUBJECT = 255
#: where answers to requests go; only the adapters make these subjects
INBOX = "_INBOX"


class MessageClass(StrEnum):
    """How important a message is, from the first token of its subject. An overloaded receiver sheds telemetry first."""

    CONTROL = "control"
    """beats, leases, cancels, results; never shed"""
    DISPATCH = "dispatch"
    """submits and assignments"""
    DATA = "data"
    """progress, statistics windows, reads"""
    TELEMETRY = "telemetry"
    """what is only looked at"""

    @classmethod
    def of(cls, subject: str) -> MessageClass:
        """The class of a subject or a pattern.

        >>> MessageClass.of("data.window.job-1")
        <MessageClass.DATA: 'data'>
        """
        return cls(subject.partition(".")[0])


_CLASS = "|".join(MessageClass)
_PART = r"(?:(?![.*>])[!-~])+"
_SUBJECT = re.compile(rf"(?:{_CLASS})(?:\.{_PART})+")
_PATTERN = re.compile(rf"(?:{_CLASS})(?:\.(?:{_PART}|\*))*(?:\.(?:{_PART}|\*|>))")
_REPLY = re.compile(rf"(?:{_CLASS}|{INBOX})(?:\.{_PART})+")
_NAME = re.compile(r"[!-~]+")
_PARTS = "two or more tokens of printable ASCII characters without spaces, * and >"
_JOINED = f"with dots between them; the first is one of {', '.join(MessageClass)}"


def check_subject(subject: str, *, field: str = "subject") -> str:
    """Return the subject of a message; refuse one that cannot be published to.

    >>> check_subject("control.beat.node-1")
    'control.beat.node-1'
    >>> check_subject("control.beat.*")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: subject: 'control.beat.*' is not a subject: two or more tokens of printable ASCII \
characters without spaces, * and >, with dots between them; the first is one of control, dispatch, data, telemetry
    """
    return _checked(_SUBJECT, subject, field, f"a subject: {_PARTS}, {_JOINED}")


def check_pattern(pattern: str, *, field: str = "subject") -> str:
    """Return the pattern of a subscription; refuse one that NATS could not serve or that has no class.

    >>> check_pattern("data.window.>")
    'data.window.>'
    """
    rule = f"a pattern: {_PARTS}, or * for any token, or > at the end for the rest, {_JOINED}"
    return _checked(_PATTERN, pattern, field, rule)


def check_reply(reply: str, *, field: str = "reply") -> str:
    """Return the subject that a reply goes to: a subject, or the inbox of a request."""
    return _checked(_REPLY, reply, field, f"a subject: {_PARTS}, {_JOINED}")


def check_name(name: str, *, field: str) -> str:
    """Return the name of a group, a client or a host; refuse one that a server would refuse."""
    return _checked(_NAME, name, field, "a name: printable ASCII characters without spaces")


def is_inbox(subject: str) -> bool:
    """Whether an answer to a request goes to this subject."""
    return subject.startswith(f"{INBOX}.")


def matches(pattern: str, subject: str) -> bool:
    """Whether a subscription with this pattern gets messages of this subject. Both are valid.

    >>> matches("data.*.job-1", "data.window.job-1"), matches("data.>", "data.window.job-1"), matches("data.>", "data")
    (True, True, False)
    """
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(one in ("*", token) for one, token in zip(wanted, tokens, strict=True))


def _checked(rule: re.Pattern[str], text: str, field: str, meaning: str) -> str:
    if not isinstance(text, str):
        raise InvalidInput(field, f"must be text, not {type(text).__name__}")
    if len(text) > LONGEST_SUBJECT:
        raise InvalidInput(field, f"has {len(text)} characters; at most {LONGEST_SUBJECT} are accepted")
    if not rule.fullmatch(text):
        raise InvalidInput(field, f"{text!r} is not {meaning}")
    return text


__all__ = [
    "INBOX",
    "LONGEST_SUBJECT",
    "MessageClass",
    "check_name",
    "check_pattern",
    "check_reply",
    "check_subject",
    "is_inbox",
    "matches",
]
