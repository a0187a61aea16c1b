"""Ready-made rows for tests."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..clock import Clock
from ..lifecycle import Chain, submit
from ..model import BLANK, IdSource, Job, rank_of
from ..stores import Key, NewJob

_SAMPLE = msgspec.structs.replace(
    BLANK, id="018bcfe5-6800-7000-8000-000000000001", name="demo.task", payload=msgspec.msgpack.encode({})
)


def a_job(status: str = "pending", **fields: Any) -> Job:
    """A row in the given status, with harmless values everywhere else.

    >>> a_job("running", session="s1").session
    's1'
    """
    return msgspec.structs.replace(_SAMPLE, status=status, **fields)


def new_job(
    clock: Clock,
    ids: IdSource,
    *,
    name: str = "demo.task",
    queue: str = "default",
    priority: int = 0,
    delay_s: float = 0.0,
    key: str | None = None,
    content: bytes = b"same",
    key_ttl_s: float = 86400.0,
    on_clash: Literal["return", "refuse"] = "return",
    boost_s: float = 60.0,
    actor: str = "test",
    chain: Chain | None = None,
    **fields: Any,
) -> NewJob:
    """A row ready for `JobStore.insert`, submitted now. `fields` go to `a_job` (parent, unique_key ...).

    >>> import random
    >>> from mainstay.testing import VirtualClock
    >>> new = new_job(VirtualClock(), IdSource(random.Random(1)), queue="mail", delay_s=60)
    >>> new.job.queue, new.job.status, len(new.events)
    ('mail', 'scheduled', 1)
    """
    now_ms = clock.now_ms()
    due_ms = now_ms + round(delay_s * 1000)
    is_unit = fields.get("parent") is not None
    draft = a_job(
        "scheduled" if delay_s > 0 and not is_unit else "pending",
        **{
            "id": ids.take(now_ms, 1)[0],
            "name": name,
            "queue": queue,
            "priority": priority,
            "key": key,
            "due_ms": due_ms,
            "rank": rank_of(due_ms, priority, round(boost_s * 1000)),
            **fields,
        },
    )
    moved = submit(draft, now_ms=now_ms, actor=actor, chain=chain or Chain())
    held = None
    if key is not None:
        held = Key(scope=name, name=key, content=content, until_ms=now_ms + round(key_ttl_s * 1000))
    return NewJob(job=moved.job, events=moved.events, key=held, on_clash=on_clash)
