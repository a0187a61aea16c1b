"""The data of a load test: windows while it runs, a summary at the end. The same between processes, in the recorded
stream and in reports.

A *window* has what ended within one bucket of time, `[bucket, bucket + 1) * WINDOW_MS` since 1970. Buckets are
integers, so the windows of all processes line up. Times are seconds. Sketches are merged by addition; a percentile is
computed from the merged one, never from other percentiles.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

WINDOW_MS = 100

MetricType = Literal["counter", "gauge", "rate", "trend"]
Verdict = Literal["passed", "failed", "interrupted", "running", "lost"]
"""only a run that ended by itself can have passed. *running*: it has not ended; *interrupted*: a user or a limit ended
it; *lost*: its process died, and the numbers end with the last report"""
SliceStop = Literal["", "stopped", "unconfirmed"]
"""*stopped*: it has confirmed the end of its load; *unconfirmed*: it did not answer, and stops by itself"""
StopVerdict = Literal["passed", "failed"]
"""the verdict of a run that a threshold ended"""
#: the phases of a call, in order
PHASES = ("blocked", "connect", "tls", "send", "wait", "receive")


class Sketch(msgspec.Struct, array_like=True, frozen=True):
    """A histogram as data: the buckets that are not empty, and the exact numbers."""

    at: list[int]
    """numbers of the buckets, in rising order"""
    n: list[int]
    """count of values in each"""
    count: int
    total: float
    squares: float
    low: float
    high: float


#: in `Summary.skipped`: suffix of the name of a workflow that ran and failed
FAILED = " (failed)"
#: in `Summary.skipped`: prefix of the reason if a workflow did not run because its own setup failed
SETUP_FAILED = "its setup failed: "


class StepStats(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A measured step within a window."""

    workflow: str
    step: str
    ok: Sketch | None = None
    """service times of successful results"""
    failed: Sketch | None = None
    """service times of failed results, and of calls without a response"""
    response: Sketch | None = None
    """of both: time since the intended start. Open models only"""
    phases: dict[str, Sketch] = {}
    """by `PHASES`; blocked, connect and tls only for calls that opened a connection"""
    statuses: dict[str, int] = {}
    errors: dict[str, int] = {}
    """by kind: failed calls, and exceptions of the step itself: the surplus over `failed`"""
    raised_after: int = 0
    """of the exceptions: raised after a response, which is counted as a request"""
    raised_after_failed: int = 0
    """of these: the response had failed, too"""
    examples: dict[str, str] = {}
    """by kind: the text of one error. A process reports one example of each kind"""
    skipped: int = 0
    """not called, because a step before it raised"""
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
    """messages of the failed ones; bounded"""


class MetricStats(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A custom metric within a window."""

    name: str
    type: MetricType
    tags: dict[str, str] = {}
    total: float = 0.0
    """counter: sum; rate: count of true values; gauge: the last value"""
    count: int = 0
    """number of values"""
    low: float = 0.0
    high: float = 0.0
    values: Sketch | None = None
    """trend"""


class Health(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The state of a generator process itself within a window."""

    node: str = ""
    """where it runs; empty: on this machine"""
    lag: float = 0.0
    """the longest delay of its event loop, in seconds"""
    cpu: float = 0.0
    """share of one core that it used, 0 to 1"""
    waited: float = 0.0
    """seconds that it was ready to run and had no core"""
    throttled: float = 0.0
    """seconds that a CPU quota throttled its control group, over all cores"""
    memory: int = 0
    """bytes"""
    files: int = 0
    """open file descriptors"""
    files_limit: int = 0


class Window(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What ended in one bucket of time: in one process, or merged over all processes."""

    bucket: int
    width: int = 1
    """number of buckets; more than one if merged over time"""
    adopted: bool = False
    """the sum of windows that a leader before this one has judged one by one"""
    process: int = -1
    """-1: merged over all"""
    users: int = 0
    """the most users at work in it"""
    draining: bool = False
    """merged over all: the end had begun before, so its users are those that have not left yet"""
    begun: int = 0
    """started iterations. Each one ends completed, failed or aborted"""
    iterations: int = 0
    """iterations that ended by themselves: completed or failed"""
    failed_iterations: int = 0
    """of these: a step raised, so the steps after it were skipped"""
    aborted_iterations: int = 0
    """started iterations that were cut off: by a stop between two steps, or at the end of the drain"""
    arrivals: int = 0
    """open models: iterations that were due"""
    dropped: int = 0
    """open models: due, but not started"""
    unbegun: int = 0
    """of the dropped ones: because no user could begin. The others: because too many were under way"""
    refused_users: int = 0
    """closed models: users that could not begin, because their on_start raised"""
    aborted: int = 0
    """calls that were given up"""
    aborted_sent: int = 0
    """bytes of these, which are in no step"""
    aborted_received: int = 0
    sent_calls: int = 0
    """by all clients, measured or not"""
    answered_calls: int = 0
    resent_calls: int = 0
    """of the sent ones: sent again, because the server closed or refused the call before it answered"""
    unexpected: int = 0
    """messages that arrived when no call waited for one; they were discarded"""
    steps: list[StepStats] = []
    checks: list[CheckStats] = []
    metrics: list[MetricStats] = []
    examples: dict[str, str] = {}
    """by kind of error: the text of one error"""
    health: dict[int, Health] = {}
    """by process"""


class Latency(msgspec.Struct, kw_only=True):
    """The usual numbers of one histogram, in seconds."""

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
    """how often the code of the step raised: an error of the test itself"""
    raised_after: int = 0
    """of these: after a response, which is counted among the requests"""
    error_rate: float = 0.0
    """failures and exceptions, as a share of the requests and of exceptions without one"""
    rate: float
    """per second"""
    service: Latency
    """all results, including failed ones"""
    ok: Latency | None = None
    """successful results only; left out if none failed"""
    response: Latency | None = None
    phases: dict[str, Latency] = {}
    statuses: dict[str, int] = {}
    errors: dict[str, int] = {}
    examples: dict[str, str] = {}
    """by kind of error: the text of one of them"""
    skipped: int = 0
    sent: int = 0
    received: int = 0


class TagSummary(msgspec.Struct, kw_only=True):
    """All measured steps with a tag, taken together, over the whole run."""

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
    """per second"""
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
    """A custom metric over the whole run."""

    name: str
    type: MetricType
    tags: dict[str, str] = {}
    value: float
    """counter: sum; gauge: last; rate: share of true values; trend: mean"""
    rate: float | None = None
    """counter: per second"""
    count: int = 0
    low: float = 0.0
    high: float = 0.0
    values: Latency | None = None
    """trend; in its own unit"""


class ThresholdOutcome(msgspec.Struct, kw_only=True):
    """The current or final result of a threshold."""

    text: str
    passed: bool
    value: float | None = None
    """the compared value, in the unit of its metric: seconds, a share, a count, a rate"""
    shown: str = ""
    """the same as text: "213 ms", "0.4 %" """
    at_s: float | None = None
    """when it was broken (or met, if it stops as passed), in seconds since the start"""
    stopped: bool = False
    """it ended the run"""
    pending: bool = False
    """during a run: a goal that is not reached yet, which neither holds nor is broken"""


class Trust(msgspec.Struct, kw_only=True):
    """Whether the numbers are those of the target. Reasons name the resource that the generator ran out of."""

    ok: bool = True
    reasons: list[str] = []


class OutputOutcome(msgspec.Struct, kw_only=True):
    """The result of one output."""

    name: str
    error: str = ""


class Header(msgspec.Struct, kw_only=True):
    """The facts of a run that are known before it starts."""

    run: str
    """the job's id"""
    token: int = 0
    """the claim of the job, from 1; 0: unknown. A retried job has one run for each claim"""
    name: str
    """of the load test; by default that of its file"""
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
    """A window of the run, and the state of the run at its end."""

    window: Window
    elapsed_s: float
    phase: str
    """preparing, running, draining, done; with the running workflows if there are several layers"""
    thresholds: list[ThresholdOutcome] = []
    trust: Trust
    restart: bool = False
    """for a display that follows a run on nodes: forget what was added before. What follows is all there was; it begins
    with a sum. It comes after another manager has taken over, and after a long break"""


class WorkflowResult(msgspec.Struct, kw_only=True):
    """A workflow that has ended, or that did not run."""

    workflow: str
    elapsed_s: float
    """the time of the run at its end"""
    iterations: int = 0
    """those that ended by themselves"""
    error: str = ""
    """why it failed or did not run; empty: it did what was planned"""
    steps: list[StepSummary] = []
    """its measured steps"""


class Percentiles(msgspec.Struct, kw_only=True):
    """Percentiles of the times in a stretch of the run, in seconds."""

    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Point(msgspec.Struct, kw_only=True):
    """A stretch of the run, for charts. Percentiles are those of the service time; None if nothing ended."""

    at_s: float
    """seconds from the start of the run"""
    width_s: float
    users: int
    rate: float
    failed: float
    """per second"""
    dropped: float = 0.0
    """per second"""
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    response: Percentiles | None = None
    """of the time since the intended start. Open models only"""
    by_step: dict[str, list[float | None]] = {}
    """"workflow.step" -> rate, p50, p95, p99; in open models p50, p95, p99 of the response time follow"""


class SliceReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of one machine in a run on nodes: one assignment of a slice. A slice that was replaced has several."""

    slice: int
    token: int = 1
    """which assignment of the slice; it grows when the slice goes to another machine"""
    node: str
    processes: int
    """generator processes: one on each of its cores"""
    requests: int = 0
    failed: int = 0
    """of these"""
    begin_s: float = 0.0
    """the time of the plan at which its load began: later than 0 for a replacement"""
    end_s: float | None = None
    """the time of the plan up to which its numbers are known; None: to the end"""
    clock_doubt_s: float | None = None
    """how far the measured clock of its machine may have been off when its load was ordered; None: it was never
    measured"""
    start_late_s: float = 0.0
    """between the agreed instant and the start of its last process"""
    windows: int = 0
    """received; each once"""
    late_windows: int = 0
    """of these: received when the window had been passed on; counted in a later one"""
    repaired_windows: int = 0
    """of these: lost at first, and sent again"""
    repeated_windows: int = 0
    """received again, and dropped"""
    loss: str = ""
    """why it was lost; empty: it was not"""
    gap_s: float = 0.0
    """how long its part of the load was missing, until a replacement began or the run ended"""
    stop: SliceStop = ""
    """how it answered a stop of the run; empty: the run was not stopped, or its part had ended before"""


class Summary(msgspec.Struct, kw_only=True):
    """The numbers of a run; also the result of its job, and the JSON report."""

    header: Header
    elapsed_s: float
    """seconds from the start to the last response"""
    load_s: float = 0.0
    """seconds in which iterations began, the base of all rates: without the drain of open models"""
    requests: int
    """measured calls that ended, including failed ones"""
    failed: int
    raised: int = 0
    """how often the code of a step raised"""
    raised_after: int = 0
    """of these: after a response, which is counted among the requests"""
    error_rate: float = 0.0
    """failures and exceptions, as a share of the requests and of exceptions without one"""
    rate: float
    begun: int = 0
    """started iterations: completed, failed and aborted ones. 0: written by an earlier version"""
    iterations: int
    """iterations that ended by themselves: completed or failed"""
    failed_iterations: int = 0
    """of these: a step raised, so the steps after it were skipped"""
    aborted_iterations: int = 0
    """started iterations that were cut off: by a stop between two steps, or at the end of the drain"""
    users: int
    """the most at a time"""
    arrivals: int = 0
    dropped: int = 0
    unbegun: int = 0
    """of the dropped ones: because no user could begin"""
    refused_users: int = 0
    """closed models: users that could not begin, because their on_start raised"""
    aborted: int = 0
    """calls under way that were given up when the run ended"""
    aborted_sent: int = 0
    """bytes of these, which are in no step, and not in `sent`"""
    aborted_received: int = 0
    sent_calls: int = 0
    """sent calls of all clients, measured or not"""
    answered_calls: int = 0
    resent_calls: int = 0
    """of the sent ones: sent again, because the server closed or refused the call before it answered"""
    unexpected: int = 0
    """messages that arrived when no call waited for one; they were discarded"""
    service: Latency | None = None
    """of all measured steps together, including failed results"""
    ok: Latency | None = None
    """successful results only; left out if none failed"""
    response: Latency | None = None
    sent: int = 0
    """bytes"""
    received: int = 0
    steps: list[StepSummary] = []
    by_tag: list[TagSummary] = []
    """for each value of each tag"""
    checks: list[CheckSummary] = []
    metrics: list[MetricSummary] = []
    errors: dict[str, int] = {}
    examples: dict[str, str] = {}
    thresholds: list[ThresholdOutcome] = []
    trust: Trust = msgspec.field(default_factory=Trust)
    verdict: Verdict = "passed"
    """passed and failed: for a run that ended by itself, or could not go on"""
    ended: str = "finished"
    """finished, stopped by a threshold, failed, interrupted, cancelled or lost, with the reason; or running"""
    skipped: dict[str, str] = {}
    """workflows that did not run, and why"""
    outputs: list[OutputOutcome] = []
    stream: str = ""
    """where the recorded stream is"""
    slices: list[SliceReport] = []
    """of a run on nodes: by slice and token; empty for a run on one machine"""
    points: list[Point] = []
    distribution: list[tuple[float, float, int]] = []
    """the histogram of all service times: from, to, count"""
    response_distribution: list[tuple[float, float, int]] = []
    """the same for response times. Open models only"""
