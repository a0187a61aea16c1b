"""Whether a row matches a query, for stores and filters without an index."""

from __future__ import annotations

from ..model import Job
from .port import Query


def query_matches(job: Job, query: Query) -> bool:
    """Whether a job matches a query.

    >>> from mainstay.model import BLANK
    >>> query_matches(BLANK, Query()), query_matches(BLANK, Query(name="another"))
    (True, False)
    """
    if job.parent != query.parent and (query.parent is not None or query.session is None):
        return False
    return (
        (query.status is None or job.status in query.status)
        and (query.kind is None or job.kind == query.kind)
        and (query.queue is None or job.queue == query.queue)
        and (query.name is None or job.name == query.name)
        and (query.group is None or job.group == query.group)
        and (query.session is None or job.session == query.session)
        and (query.tag is None or query.tag in job.options.tags)
        and (query.key is None or job.key == query.key)
        and (query.created_from_ms is None or job.created_ms >= query.created_from_ms)
        and (query.created_before_ms is None or job.created_ms < query.created_before_ms)
        and (query.text is None or _mentions(job, query.text.lower()))
    )


def is_listed(query: Query) -> bool:
    """Whether a query has no filter except queue, status, name and time, which have indexes.

    >>> is_listed(Query(queue="mail", status=("failed",))), is_listed(Query(queue="mail", text="timeout"))
    (True, False)
    """
    others = (query.kind, query.parent, query.group, query.session, query.tag, query.key, query.text)
    return all(each is None for each in others)


def _mentions(job: Job, text: str) -> bool:
    parts = (job.id, job.name, job.reason, job.error.message if job.error else None)
    return any(part is not None and text in part.lower() for part in parts)
