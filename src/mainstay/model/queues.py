"""Private queues: made for one job, and hidden from lists and metrics."""

from __future__ import annotations

_PREFIX = "load-here-"
#: the name for all of them in counts by queue
PRIVATE = "load-here"


def private_queue(mark: str) -> str:
    """The name of a queue for one job.

    >>> is_private(private_queue("3f9c")), is_private("mail")
    (True, False)
    """
    return _PREFIX + mark


def is_private(queue: str) -> bool:
    """Whether a queue was made for one job. Lists and metrics leave it out, or they would grow with every run."""
    return queue.startswith(_PREFIX)
