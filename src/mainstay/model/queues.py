"""Queues that are not for every worker: private ones, made for one job, and the reserved one."""

from __future__ import annotations

#: jobs and units that a leader assigns to sessions wait here; workers do not claim from it
PLACE_QUEUE = "@place"
#: jobs that a manager leads while nodes run their units: only managers claim from it
LEAD_QUEUE = "@lead"
_RESERVED = "@"

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


def is_reserved(queue: str) -> bool:
    """Whether users cannot submit to a queue, and workers cannot claim from it.

    >>> is_reserved(PLACE_QUEUE), is_reserved("mail")
    (True, False)
    """
    return queue.startswith(_RESERVED)


def is_claimable(queue: str) -> bool:
    """Whether a store gives out the rows of a queue. Those of `PLACE_QUEUE` are assigned by a leader.

    >>> is_claimable("mail"), is_claimable(LEAD_QUEUE), is_claimable(PLACE_QUEUE)
    (True, True, False)
    """
    return queue == LEAD_QUEUE or not is_reserved(queue)
