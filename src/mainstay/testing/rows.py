"""Ready-made rows for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from ..model import NO_DIGEST, Job, Lane, Options

_DEFAULTS: dict[str, Any] = {
    "id": "018bcfe5-6800-7000-8000-000000000001",
    "kind": "task",
    "name": "demo.task",
    "queue": "default",
    "parent": None,
    "unit": None,
    "group": None,
    "options": Options(),
    "key": None,
    "unique_key": None,
    "concurrency_key": None,
    "priority": 0,
    "status": "pending",
    "reason": None,
    "version": 0,
    "token": 0,
    "session": None,
    "starts": 0,
    "failures": 0,
    "crashes": 0,
    "releases": 0,
    "created_ms": 0,
    "changed_ms": 0,
    "due_ms": 0,
    "claimed_ms": None,
    "started_ms": None,
    "settled_ms": None,
    "expires_ms": None,
    "extra_ms": 0,
    "error": None,
    "result": None,
    "head": NO_DIGEST,
    "trimmed_seq": 0,
    "trimmed_digest": NO_DIGEST,
    "lane": Lane.NONE,
    "rank": 0,
    "progress": None,
    "progress_ms": None,
    "checkpoint": None,
    "payload": msgspec.msgpack.encode({}),
}


def a_job(status: str = "pending", **fields: Any) -> Job:
    """A row in the given status, with harmless values everywhere else.

    >>> a_job("running", session="s1").session
    's1'
    """
    return Job(**{**_DEFAULTS, "status": status, **fields})
