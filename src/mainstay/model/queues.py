"""Queues that are nobody's business."""

from __future__ import annotations

_PREFIX = "load-here-"
#: what numbers by queue call all of them
PRIVATE = "load-here"


def private_queue(mark: str) -> str:
    """A queue that only its maker knows, for one job.

    >>> is_private(private_queue("3f9c")), is_private("mail")
    (True, False)
    """
    return _PREFIX + mark


def is_private(queue: str) -> bool:
    """Whether it was made for one job: lists and metrics leave it out, or they would grow with every run."""
    return queue.startswith(_PREFIX)
