"""Events: the audit trail of a job, each chained to the one before.

The digest of an event is SHA-256 over the digest before it followed by the event as a JSON array

    [job, seq, at_ms, from, to, actor, reason, token, flag, details]

without spaces, so that any language can check it. The digest before the first event is 32 zero bytes. The chain detects
accidents and naive edits. An administrator who can write to the database can also recompute it; a key
(`MAINSTAY_AUDIT_KEY`), which turns the digest into an HMAC, prevents that.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..model import NO_DIGEST, Job

#: The kinds of event: "" a move of the table, "note" a remark (from = to), "forced" by an operator, "repair" by the
#: check, "tombstone" the job was deleted.
FLAGS = ("", "note", "forced", "repair", "tombstone")

_encode = msgspec.json.Encoder().encode
_sha256 = hashlib.sha256


class Event(msgspec.Struct, frozen=True, gc=False):
    """One audit record. Built positionally from a stored row, like `Job`."""

    job_id: str
    seq: int
    at_ms: int
    source: str | None
    """the state it left; None for the submit"""
    to: str
    actor: str
    reason: str | None
    token: int
    flag: str
    details: str | None
    """JSON"""
    digest: bytes

    @property
    def data(self) -> dict[str, Any]:
        """The decoded details; empty if there are none or they are damaged."""
        try:
            found = msgspec.json.decode(self.details or "{}")
        except (msgspec.DecodeError, TypeError, UnicodeError):
            return {}
        return found if isinstance(found, dict) else {}


class Chain:
    """Computes and checks digests; with a key they are HMACs."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    @property
    def fingerprint(self) -> str:
        """Identifies the key without revealing it. Stores keep it, so that a wrong key is refused."""
        return "" if self._key is None else hmac.digest(self._key, b"mainstay audit key", "sha256").hex()[:32]

    def digest(self, before: bytes, body: tuple[Any, ...]) -> bytes:
        """The digest of an event, given as its fields in order up to `details`."""
        text = before + _encode(body)
        if self._key is None:
            return _sha256(text).digest()
        return hmac.digest(self._key, text, "sha256")

    def first_break(self, job: Job, events: Sequence[Event]) -> str | None:
        """The first break of the history, in words; None if it is intact.

        `events` are those after `job.trimmed_seq`, in order.
        """
        before, seq = job.trimmed_digest, job.trimmed_seq
        for event in events:
            seq += 1
            if event.seq != seq:
                return f"event {seq} is missing"
            try:
                digest = self.digest(before, msgspec.structs.astuple(event)[:-1])
            except (TypeError, ValueError, msgspec.EncodeError):
                return f"event {seq} cannot be read"
            if digest != event.digest:
                return f"event {seq} was changed after it was written"
            before = digest
        if before != job.head:
            return f"the last event ({seq}) is not the one the row was sealed with"
        return None


def details_text(details: dict[str, Any] | None) -> str | None:
    """Details in their stored and sealed form."""
    return _encode(details).decode() if details else None


def time_text(at_ms: int) -> str:
    """A stored time as text; an impossible one is shown as its number."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError, TypeError):
        return f"({at_ms!r} ms)"


def story(events: Iterable[Event]) -> list[str]:
    """Events as short lines, oldest first."""
    lines = []
    for event in events:
        if event.flag == "note":
            what = f"{event.to}: note"
        else:
            what = f"{event.source or 'new'} -> {event.to}"
        if event.flag not in ("", "note"):
            what += f" [{event.flag}]"
        line = f"{event.seq}. {time_text(event.at_ms)} {what} by {event.actor}"
        lines.append(f"{line}: {event.reason}" if event.reason else line)
    return lines


__all__ = ["FLAGS", "NO_DIGEST", "Chain", "Event", "details_text", "story", "time_text"]
