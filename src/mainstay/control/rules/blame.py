"""Which job to blame when a worker dies, and how a suspect runs so that the blame is exact. Pure.

A death says little about the running jobs: a worker is killed from outside (`kill -9`, a group that is out of memory,
a lost node) far more often than by one of its jobs. So a job that is lost with its worker is not blamed; the loss is
counted. The more losses, the more it is isolated:

    losses                  how it runs                                         lost once more with its worker
    0, 1                    among others                                        a loss
    SUSPECT_LOSSES (2)      in a process of its own, its start stored first     a loss
    ALONE_LOSSES (5)        that, and nothing else runs in its engine           a crash: it was alone

A crash of its own process counts at once, whatever the losses. So a job that kills whole workers is quarantined after
ALONE_LOSSES and its crash budget. An innocent job would have to be hit as often, the last times alone.

A crash budget of 1 means that a job must not run again after its worker died, whatever the cause: then the first loss
is a crash. A job that managers lead is never blamed: they run no code of it, and another manager leads on.
"""

from __future__ import annotations

from ...model import LEAD_QUEUE, Job

#: from this number of losses on, a job runs in its own process
SUSPECT_LOSSES = 2
#: from this number of losses on, a job runs alone in its engine
ALONE_LOSSES = 5


def is_suspect(job: Job) -> bool:
    """Whether it may have killed its workers: then it runs where it can kill nothing else."""
    return (job.crashes > 0 or job.losses >= SUSPECT_LOSSES) and not _is_led(job)


def runs_alone(job: Job) -> bool:
    """Whether its engine runs nothing else."""
    return job.losses >= ALONE_LOSSES and not _is_led(job)


def is_blamed(job: Job) -> bool:
    """Whether the loss of the worker that ran it counts as a crash of this job."""
    return runs_alone(job) or (job.options.retry.crash_budget <= 1 and not _is_led(job))


def _is_led(job: Job) -> bool:
    """Whether managers lead it: they run no code of it."""
    return job.queue == LEAD_QUEUE
