"""The state names of the designs that Mainstay unites, and the states of Mainstay for each of them.

Data for the generated part of `lifecycle.md`; the tests refuse a name that our tables do not have.
"""

from __future__ import annotations

from typing import NamedTuple


class Word(NamedTuple):
    """One state name of a source. An empty `job` or `unit`: the source has no such state at that level."""

    theirs: str
    job: str = ""
    unit: str = ""
    note: str = ""


class Vocabulary(NamedTuple):
    title: str
    about: str
    words: tuple[Word, ...]


VOCABULARIES = (
    Vocabulary(
        "Job observability",
        "Kubernetes batch runs tracked in any store with compare-and-swap.",
        (
            Word("PENDING", "pending"),
            Word("SUBMITTING", "running", "pending", "the session that submits holds the job"),
            Word("SCHEDULED", "running", "dispatched", "the cluster has it, no pod runs yet; not our `scheduled`"),
            Word("RUNNING", "running", "running"),
            Word("AGGREGATING", "finalizing"),
            Word("VALIDATING", "validating", "", "storage unreachable: it stays here and tries again"),
            Word("PARTIAL_SUCCESS", "partial", "", "resumable in place; final there, only settled here"),
            Word("SUCCEEDED", "succeeded", "succeeded"),
            Word("FAILED", "failed", "failed"),
            Word("CANCELLED", "cancelled", "cancelled", "a running job passes through `cancelling`"),
            Word("TIMEOUT", "timed_out", "timed_out", "its heartbeat stopped"),
        ),
    ),
    Vocabulary(
        "Multi-datacenter execution: jobs",
        "States of a whole load test, of gates and managers.",
        (
            Word("SUBMITTED", "pending"),
            Word("QUEUED", "pending"),
            Word("DISPATCHING", "running", "dispatched", "the job runs as soon as its first unit is sent"),
            Word("RUNNING", "running", "running"),
            Word("COMPLETING", "finalizing", "", "statistics are merged"),
            Word("CANCELLING", "cancelling"),
            Word("COMPLETED", "succeeded", "succeeded"),
            Word("FAILED", "quarantined", "failed", "there: retries used up. One failed attempt is our `failed`"),
            Word("CANCELLED", "cancelled", "cancelled"),
            Word("TIMEOUT", "timed_out", "timed_out"),
        ),
    ),
    Vocabulary(
        "Multi-datacenter execution: workflows",
        "States of one workflow on its workers: units here.",
        (
            Word("PENDING", "", "pending"),
            Word("ASSIGNED, DISPATCHED", "", "dispatched"),
            Word("RUNNING", "", "running"),
            Word("COMPLETED", "", "succeeded"),
            Word("FAILED", "", "failed"),
            Word(
                "FAILED_CANCELING_DEPENDENTS", "", "failed", "stopping its dependants is a task of control, not a state"
            ),
            Word("FAILED_READY_FOR_RETRY", "", "pending", "with a not-before time"),
            Word("CANCELLING", "cancelling", "running", "the job is asked to stop; the unit runs until it confirms"),
            Word("CANCELLED", "", "cancelled"),
            Word("AGGREGATED", "finalizing", "succeeded", "the merge is the job's own phase"),
        ),
    ),
    Vocabulary(
        "State machine hardening",
        "The state machine from which the tables here developed.",
        (
            Word("PENDING", "pending", "pending"),
            Word("RUNNING", "running", "running"),
            Word("SUCCEEDED", "succeeded", "succeeded"),
            Word("FAILED", "failed", "failed", "may retry"),
            Word("QUARANTINED", "quarantined", "", "failed permanently; a person may put it back"),
        ),
    ),
    Vocabulary(
        "Job store architecture",
        "Asynchronous endpoints with stores for memory, Redis and SQL.",
        (
            Word("Queued", "pending"),
            Word("Scheduled", "scheduled", "", "a delay or the wait before a retry"),
            Word("InProgress", "running"),
            Word("Completed", "succeeded"),
            Word("Failed", "failed", "", "`quarantined` once its retries are used up"),
            Word("Canceled", "cancelled"),
        ),
    ),
    Vocabulary(
        "Cluster job system",
        "Work on every node, then a phase of the leader. Per-node states are units here.",
        (
            Word("New", "pending", "", "`scheduled` if it waits for its time"),
            Word("Queued", "pending", "pending"),
            Word("Running", "running", "running", "the leader's phase is our `finalizing`"),
            Word("Retrying", "scheduled", "pending", "the unit with a not-before time"),
            Word("Completed", "succeeded", "succeeded"),
            Word("Failed", "failed", "failed"),
            Word("Cancelled", "cancelled", "cancelled"),
            Word("Skipped", "skipped", "skipped"),
        ),
    ),
)
