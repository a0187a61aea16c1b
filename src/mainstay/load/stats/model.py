"""What a load test says about itself: windows while it runs, a summary in the end. Plain data, the same between
processes, in the recorded stream and in the reports.

A *window* holds what ended within one bucket of time, `[bucket, bucket + 1) * WINDOW_MS` since 1970. Buckets are whole
numbers, so the windows of all processes line up. Times are seconds. Histograms are merged by addition; a percentile is
taken from the merged one, and never from other percentiles.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

WINDOW_MS = 100

MetricType = Literal["counter", "gauge", "rate", "trend"]
Verdict = Literal["passed", "failed", "interrupted", "running", "lost"]
"""only a run that ended by itself has passed. *running*: it has not ended; *interrupted*: a user or a limit ended it;
*lost*: its process died, and the numbers are those up to the last report"""
StopVerdict = Literal["passed", "failed"]
"""what a threshold that ends a run makes of it"""
#: the parts of a call, in the order in which they happen
PHASES = ("blocked", "connect", "tls", "send", "wait", "receive")


class Sketch(msgspec.Struct, array_like=True, frozen=True):
    """A histogram as it travels: the buckets that are not empty, and what is known exactly."""

    at: list[int]
    """numbers of the buckets, rising"""
    n: list[int]
    """how many values are in each"""
    count: int
    total: float
    squares: float
    low: float
    high: float


#: in `Summary.skipped`: follows the name of a workflow that was run and failed
FAILED = " (failed)"
#: in `Summary.skipped`: begins the reason of a workflow that was not run because its own setup failed
SETUP_FAILED = "its setup failed: "


class StepStats(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A measured step within a window."""

    workflow: str
    step: str
    ok: Sketch | None = None
    """service time of the results that are fine"""
    failed: Sketch | None = None
    """service time of the results that failed, and of the calls that came to no answer"""
    response: Sketch | None = None
    """of both: time since the intended start. Open models only"""
    phases: dict[str, Sketch] = {}
    """by `PHASES`; blocked, connect and tls only of the calls that opened a connection"""
    statuses: dict[str, int] = {}
    errors: dict[str, int] = {}
    """by kind: calls that failed, and what the step itself raised. What is more here than in `failed` was raised"""
    raised_after: int = 0
    """of what was raised: after an answer, which is counted as a request"""
    raised_after_failed: int = 0
    """of these: the answer had failed, too"""
    examples: dict[str, str] = {}
    """by kind: what one of the errors said. A process tells one example of each kind"""
    skipped: int = 0
    """not called, because a step before it had raised"""
    sent: int = 0
    received: int = 0


class CheckStats(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A check within a window."""

    workflow: str
    step: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reasons: dict[str, int] = {}
    """what the failed ones said; bounded"""


class MetricStats(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A metric of the user's own within a window."""

    name: str
    type: MetricType
    tags: dict[str, str] = {}
    total: float = 0.0
    """counter: sum; rate: how many were true; gauge: the last value"""
    count: int = 0
    """how many values"""
    low: float = 0.0
    high: float = 0.0
    values: Sketch | None = None
    """trend"""


class Health(msgspec.Struct, omit_defaults=True, kw_only=True):
    """How a generator process itself was doing within a window."""

    lag: float = 0.0
    """seconds its loop came late, at worst"""
    cpu: float = 0.0
    """part of one core that it used, 0 to 1"""
    waited: float = 0.0
    """seconds that it could have run and had no core"""
    throttled: float = 0.0
    """seconds that its control group was held back by a quota of CPU time, over all cores"""
    memory: int = 0
    """bytes"""
    files: int = 0
    """open file descriptors"""
    files_limit: int = 0


class Window(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What ended in one bucket of time: in one process, or merged over all of them."""

    bucket: int
    width: int = 1
    """buckets it stands for; windows that were merged in time have more"""
    process: int = -1
    """-1: merged over all"""
    users: int = 0
    """the most users at work in it"""
    draining: bool = False
    """merged over all: the end had begun before it, so its users are those who have not left yet"""
    begun: int = 0
    """iterations that were started. Each one ends: it is completed, failed or aborted"""
    iterations: int = 0
    """that ended by themselves: completed, or failed"""
    failed_iterations: int = 0
    """of these: a step raised, so that the steps after it were skipped"""
    aborted_iterations: int = 0
    """that were started and cut off: by a stop between two steps, or when the drain was over"""
    arrivals: int = 0
    """open models: iterations that were due"""
    dropped: int = 0
    """open models: due, and not started"""
    unbegun: int = 0
    """of those dropped: because no user could begin. The others: because too many were under way"""
    refused_users: int = 0
    """closed models: users that could not begin, because their on_start raised"""
    aborted: int = 0
    """calls under way that were given up"""
    aborted_sent: int = 0
    """bytes of these, which are in no step"""
    aborted_received: int = 0
    sent_calls: int = 0
    """by all clients, measured or not"""
    answered_calls: int = 0
    resent_calls: int = 0
    """of those sent: once more, because the server had closed or refused the call before it answered"""
    unexpected: int = 0
    """messages that came when no call waited for one; they were discarded"""
    steps: list[StepStats] = []
    checks: list[CheckStats] = []
    metrics: list[MetricStats] = []
    examples: dict[str, str] = {}
    """kind of error -> what one of them said"""
    health: dict[int, Health] = {}
    """by process"""


class Latency(msgspec.Struct, kw_only=True):
    """Numbers of one histogram, in seconds."""

    count: int
    mean: float
    stdev: float
    min: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float


class StepSummary(msgspec.Struct, kw_only=True):
    """A measured step over the whole run."""

    workflow: str
    step: str
    requests: int
    failed: int
    raised: int = 0
    """times that the code of the step raised: an error of the test itself"""
    raised_after: int = 0
    """of these: after an answer, which is counted among the requests"""
    error_rate: float = 0.0
    """what failed or raised, as a part of the requests and of what raised without one"""
    rate: float
    """a second"""
    service: Latency
    """all results, failed ones too"""
    ok: Latency | None = None
    """those that are fine only; left out when all are"""
    response: Latency | None = None
    phases: dict[str, Latency] = {}
    statuses: dict[str, int] = {}
    errors: dict[str, int] = {}
    examples: dict[str, str] = {}
    """by kind of error: what one of them said"""
    skipped: int = 0
    sent: int = 0
    received: int = 0


class TagSummary(msgspec.Struct, kw_only=True):
    """All measured steps that have a tag, taken together, over the whole run."""

    tag: str
    value: str
    steps: list[str]
    """"workflow.step\""""
    requests: int
    failed: int
    raised: int = 0
    raised_after: int = 0
    error_rate: float = 0.0
    rate: float
    """a second"""
    service: Latency
    ok: Latency | None = None
    response: Latency | None = None
    statuses: dict[str, int] = {}
    errors: dict[str, int] = {}
    sent: int = 0
    received: int = 0


class CheckSummary(msgspec.Struct, kw_only=True):
    """A check over the whole run."""

    workflow: str
    step: str
    passed: int
    failed: int
    skipped: int = 0
    reasons: dict[str, int] = {}


class MetricSummary(msgspec.Struct, kw_only=True):
    """A metric of the user's own over the whole run."""

    name: str
    type: MetricType
    tags: dict[str, str] = {}
    value: float
    """counter: sum; gauge: last; rate: part that was true; trend: mean"""
    rate: float | None = None
    """counter: a second"""
    count: int = 0
    low: float = 0.0
    high: float = 0.0
    values: Latency | None = None
    """trend; in its own unit"""


class ThresholdOutcome(msgspec.Struct, kw_only=True):
    """How a threshold stands, or came out."""

    text: str
    passed: bool
    value: float | None = None
    """what was compared, in the unit of its metric: seconds, a part, a count, a rate"""
    shown: str = ""
    """the same for people: "213 ms", "0.4 %" """
    at_s: float | None = None
    """when it was broken (or met, for one that stops as passed), seconds since the start"""
    stopped: bool = False
    """it ended the run"""
    pending: bool = False
    """while the run goes on: a goal that is not reached yet, and neither holds nor is broken"""


class Trust(msgspec.Struct, kw_only=True):
    """Whether the numbers are those of the target. Reasons name what the generator itself ran out of."""

    ok: bool = True
    reasons: list[str] = []


class OutputOutcome(msgspec.Struct, kw_only=True):
    """Where results went, or why they did not."""

    name: str
    error: str = ""


class Header(msgspec.Struct, kw_only=True):
    """What is known of a run before it starts."""

    run: str
    """the job's id"""
    token: int = 0
    """which claim of the job it is, from 1; 0: not known. A job that is retried has one run for each claim"""
    name: str
    """the load test's: by default the file's"""
    started_ms: int
    version: str
    """of Mainstay"""
    processes: int
    duration_s: float | None
    """None: ends by itself (fixed iterations)"""
    workflows: list[dict[str, Any]] = []
    """per workflow: name, model (words), vus, rate, stages, tags, steps (name, kind, after, tags)"""
    thresholds: list[str] = []
    tags: dict[str, str] = {}


class Moment(msgspec.Struct, kw_only=True):
    """A window of the run, and how things stand at its end."""

    window: Window
    elapsed_s: float
    phase: str
    """preparing, running, draining, done; and the workflows at work, when they come one after the other"""
    thresholds: list[ThresholdOutcome] = []
    trust: Trust


class Percentiles(msgspec.Struct, kw_only=True):
    """Of the times in a stretch of the run, in seconds."""

    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Point(msgspec.Struct, kw_only=True):
    """A stretch of the run, for charts. Percentiles are those of the service time; None where nothing ended."""

    at_s: float
    """its beginning, since the start"""
    width_s: float
    users: int
    rate: float
    failed: float
    """a second"""
    dropped: float = 0.0
    """a second"""
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    response: Percentiles | None = None
    """of the time since the intended start. Open models only"""
    by_step: dict[str, list[float | None]] = {}
    """"workflow.step" -> rate, p50, p95, p99; in open models p50, p95, p99 of the response time follow"""


class Summary(msgspec.Struct, kw_only=True):
    """A run that is over; also the result of its job. `to_json` of the reports is this."""

    header: Header
    elapsed_s: float
    """seconds from the start to the last answer"""
    load_s: float = 0.0
    """seconds in which iterations were begun, by which all rates are: without the drain of a run at a rate"""
    requests: int
    """measured calls that came to an end, failed ones too"""
    failed: int
    raised: int = 0
    """times that the code of a step raised"""
    raised_after: int = 0
    """of these: after an answer, which is counted among the requests"""
    error_rate: float = 0.0
    """what failed or raised, as a part of the requests and of what raised without one"""
    rate: float
    begun: int = 0
    """iterations that were started: completed, failed and aborted ones. 0: written by an earlier version"""
    iterations: int
    """that ended by themselves: completed, or failed"""
    failed_iterations: int = 0
    """of these: a step raised, so that the steps after it were skipped"""
    aborted_iterations: int = 0
    """that were started and cut off: by a stop between two steps, or when the drain was over"""
    users: int
    """at most"""
    arrivals: int = 0
    dropped: int = 0
    unbegun: int = 0
    """of those dropped: because no user could begin"""
    refused_users: int = 0
    """closed models: users that could not begin, because their on_start raised"""
    aborted: int = 0
    """calls that were under way when the run ended and could not be waited for"""
    aborted_sent: int = 0
    """bytes of these, which are in no step, and not in `sent`"""
    aborted_received: int = 0
    sent_calls: int = 0
    """calls that were sent, measured or not, by all clients"""
    answered_calls: int = 0
    resent_calls: int = 0
    """of those sent: once more, because the server had closed or refused the call before it answered"""
    unexpected: int = 0
    """messages that came when no call waited for one; they were discarded"""
    service: Latency | None = None
    """of all measured steps together, failed results too"""
    ok: Latency | None = None
    """those that are fine only; left out when all are"""
    response: Latency | None = None
    sent: int = 0
    """bytes"""
    received: int = 0
    steps: list[StepSummary] = []
    by_tag: list[TagSummary] = []
    """for each value of each tag that steps have"""
    checks: list[CheckSummary] = []
    metrics: list[MetricSummary] = []
    errors: dict[str, int] = {}
    examples: dict[str, str] = {}
    thresholds: list[ThresholdOutcome] = []
    trust: Trust = msgspec.field(default_factory=Trust)
    verdict: Verdict = "passed"
    """passed and failed: of a run that ended by itself, or that could not go on"""
    ended: str = "finished"
    """finished, stopped by a threshold, failed, interrupted, cancelled, lost: and why; or running"""
    skipped: dict[str, str] = {}
    """workflows that were not run, and why"""
    outputs: list[OutputOutcome] = []
    stream: str = ""
    """where the recorded stream is"""
    points: list[Point] = []
    distribution: list[tuple[float, float, int]] = []
    """the histogram of all service times: from, to, how many"""
    response_distribution: list[tuple[float, float, int]] = []
    """the same of the response times. Open models only"""
