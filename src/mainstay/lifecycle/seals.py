"""Seals: digests of the row in the details of events, so that an edited row is detected.

The chain of digests covers events only. So the details of events have digests of the row:

- `job_sha256`: the submitted fields (kind, name, queue, parent, unit, keys, priority, options), in the event of the
  submit and in every event that changes one of them. It starts with the number of its form, because options grow
- `payload_sha256`: the payload, in the event of the submit
- `result_sha256`: the result, in the event of every move into a settled state; null if there is none
- `due_ms`: the due time, in the event of every move into a state that waits for it. A submit leaves it out if the
  job is due at once

An event without them was written by an earlier version, and nothing is compared with it.
"""

from __future__ import annotations

import hashlib

import msgspec

from ..model import Job, Options, RetryPolicy

#: fields of a row that are fixed at submit, or change with an event that seals them again
SUBMITTED = ("kind", "name", "queue", "parent", "unit", "key", "unique_key", "concurrency_key", "priority")

#: form -> the number of fields of options and of their retry policy; new fields of either need a new form
FORMS = {1: (12, 6)}
FORM = max(FORMS)
_NOW = (len(Options.__struct_fields__), len(RetryPolicy.__struct_fields__))
_MOST = 256

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Options).decode
_known: dict[int, tuple[Options, bytes]] = {}


def digest_text(data: bytes) -> str:
    """The digest of bytes in events: the first half of their SHA-256, in hex."""
    return hashlib.sha256(data).digest()[:16].hex()


def job_seal(job: Job, form: int = FORM) -> str:
    """The digest of the submitted fields.

    >>> from mainstay.testing import a_job
    >>> job_seal(a_job()) == job_seal(a_job("running")), job_seal(a_job()) == job_seal(a_job(queue="mail"))
    (True, False)
    """
    head = _encode(
        (
            job.kind,
            job.name,
            job.queue,
            job.parent,
            job.unit,
            job.key,
            job.unique_key,
            job.concurrency_key,
            job.priority,
        )
    )
    return f"{form}:{digest_text(head + _options(job.options, form))}"


def form_of(seal: object) -> int | None:
    """The form of a seal; None if this version does not know it.

    >>> form_of("1:00ff"), form_of("99:00ff"), form_of(None)
    (1, None, None)
    """
    number = seal.partition(":")[0] if isinstance(seal, str) else ""
    return int(number) if number.isdecimal() and int(number) in FORMS else None


def result_seal(result: bytes | None) -> str | None:
    return None if result is None else digest_text(result)


def _options(options: Options, form: int) -> bytes:
    """Jobs submitted alike share their options, so the last results are cached."""
    if form != FORM:
        return _spelled(options, form)
    known = _known.get(id(options))
    if known is not None:
        return known[1]
    if len(_known) >= _MOST:
        _known.clear()
    text = _spelled(options, form)
    _known[id(options)] = (options, text)  # a reference keeps the id from being reused
    return text


def _spelled(options: Options, form: int) -> bytes:
    # in their stored form: 30 seconds may have been given as 30, and are stored as 30.0
    stored = _unpack(_pack(options))
    if FORMS[form] == _NOW:
        return _encode_sorted(stored)
    fields, of_retry = FORMS[form]
    retry, *rest = msgspec.to_builtins(stored)[:fields]
    return _encode_sorted([retry[:of_retry], *rest])
