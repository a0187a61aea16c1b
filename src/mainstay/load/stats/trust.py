"""Whether the numbers of a run are those of the target, or of a generator that was too slow.

A pure rule over windows; it works during the run, and names the resource that the generator ran out of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ...words import counted
from .model import Health, Trust, Window
from .shown import digits, share_text, time_text
from .tally import SECOND

#: A delay of the event loop counts above this: smaller ones come from the garbage collector or a busy machine, and do
#: not affect the usual percentiles
LAG_S = 0.05
#: ... if it is also this share of the mean service time: 60 ms do not matter to calls of 5 s
LAG_PART = 0.1
#: ... and occurs in at least this share of the seconds. One second in a run of up to 100 s is enough
LAG_SECONDS = 0.01
#: Above this share of a core, calls queue in the event loop: by queueing theory, they wait nine times as long as their
#: handling takes
CPU = 0.9
#: ... for this many seconds in a row; a shorter peak is a ramp or another program
CPU_S = 3
#: Above this share of the time without a core, other programs determine much of the measured times
WAIT = 0.2
#: ... over any stretch of this many seconds
WAIT_S = 3
#: A run that is shorter than these stretches is judged by its own length, but not below this: that is only the start
SHORTEST_S = 0.5
#: Above this share of the limit, the next connections may fail
FILES = 0.9
#: Of more nodes, or processes of one machine, those after these are only named
MOST = 8
#: of a process that is not in a window
_UNHEARD = Health()
_WAIT_BUCKETS = WAIT_S * SECOND
#: a wait in a stretch that is judged; less is noise of the sums
_NOTHING_S = 1e-6


class _Wait(NamedTuple):
    """How long a process waited for a core, in some windows."""

    buckets: int = 0
    waited_s: float = 0.0
    throttled_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.buckets / SECOND

    @property
    def part(self) -> float:
        return min(1.0, self.waited_s / self.seconds) if self.buckets else 0.0


class _Waits:
    """The stretch in which a process waited most."""

    def __init__(self) -> None:
        self.worst = _Wait()
        self.buckets = 0
        """of all windows"""
        self._last: deque[tuple[int, float, float]] = deque()
        """the last stretch"""
        self._in_last = 0
        self._waited_s = 0.0

    def add(self, buckets: int, waited_s: float, throttled_s: float) -> None:
        """Of one window. This is called for each process of a run, ten times a second."""
        last = self._last
        last.append((buckets, waited_s, throttled_s))
        self.buckets += buckets
        self._in_last += buckets
        self._waited_s += waited_s
        while self._in_last - last[0][0] >= _WAIT_BUCKETS:
            before, waited_before_s, _ = last.popleft()
            self._in_last -= before
            self._waited_s -= waited_before_s
        if self._waited_s > _NOTHING_S and self.buckets >= _WAIT_BUCKETS:
            self._judge()

    def finish(self) -> None:
        """The run is over, and may be shorter than a stretch."""
        if SHORTEST_S * SECOND <= self.buckets < _WAIT_BUCKETS:
            self._judge()

    def _judge(self) -> None:
        # summed again: the difference of many sums is not exact
        buckets, waited_s, throttled_s = map(sum, zip(*self._last, strict=True))
        self.worst = max(self.worst, _Wait(buckets, waited_s, throttled_s), key=lambda one: one.part)


class _Process:
    """One generator process, in whole seconds."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lag = 0.0
        self.cpu = 0.0
        self.buckets = 0
        self.late_s = 0
        self.latest = 0.0
        self.row_s = 0
        self.row_top = 0.0
        self.busy_s = 0.0
        self.busiest = 0.0
        self.files = 0
        self.files_limit = 0
        self.waits = _Waits()
        self._all_cpu = 0.0
        self._all_buckets = 0

    def add(self, health: Health, buckets: int) -> None:
        self.lag = max(self.lag, health.lag)
        self.cpu += health.cpu * buckets
        self.buckets += buckets
        if health.files > self.files:
            self.files, self.files_limit = health.files, health.files_limit

    def close(self, tolerated_s: float) -> None:
        """A second is over."""
        if self.lag > tolerated_s:
            self.late_s += 1
            self.latest = max(self.latest, self.lag)
        mean = self.cpu / self.buckets if self.buckets else 0.0
        if mean > CPU:
            self.row_s += 1
            self.row_top = max(self.row_top, mean)
        else:
            self.row_s, self.row_top = 0, 0.0
        if self.row_s >= CPU_S:
            self.busy_s += self.row_s if self.row_s == CPU_S else 1
            self.busiest = max(self.busiest, self.row_top)
        self._all_cpu += self.cpu
        self._all_buckets += self.buckets
        self.lag = self.cpu = 0.0
        self.buckets = 0

    def finish(self) -> None:
        """The run is over, and may be shorter than a stretch."""
        self.waits.finish()
        ran = self.waits.buckets
        if SHORTEST_S * SECOND <= ran < CPU_S * SECOND and self._all_cpu > CPU * self._all_buckets:
            self.busy_s, self.busiest = ran / SECOND, self._all_cpu / self._all_buckets


class _Group(NamedTuple):
    """Processes that are judged together: those of a node, or a single one of this machine."""

    node: str
    """empty: this machine"""
    processes: list[_Process]

    @property
    def name(self) -> str:
        return f"node {self.node}" if self.node else f"process {self.processes[0].number}"

    @property
    def more(self) -> str:
        """How the load gets more cores."""
        return "add --cores or --nodes" if self.node else "add --processes or machines"

    def reason(self, blamed: list[_Process], one: str, several: str, rest: str) -> str:
        """A reason that names the node and which of its processes: `one` or `several` of them, then the rest.

        >>> group = _Group("n2", [_Process(4), _Process(5)])
        >>> group.reason(group.processes[:1], "{} was late", "{} were late", " by 2 s")
        'node n2: process 4 was late by 2 s'
        >>> group.reason(group.processes, "{} was late", "{} were late", " by up to 2 s")
        'node n2: 2 of 2 processes were late by up to 2 s'
        """
        where = f"node {self.node}: " if self.node else ""
        if len(blamed) == 1:
            return f"{where}{one.format(f'process {blamed[0].number}')}{rest}"
        return f"{where}{several.format(f'{len(blamed)} of {len(self.processes)} processes')}{rest}"


class TrustWatch:
    """Watches the generator. Takes the windows that are merged over all processes, in order.

    >>> watch = TrustWatch()
    >>> watch.add(Window(bucket=0, arrivals=50, dropped=2))
    >>> watch.trust().reasons
    ['2 of 50 arrivals were dropped, because too many iterations were under way: the target did not get the requested
    load; raise max_in_flight if it may take more, or lower the rate']
    """

    def __init__(self) -> None:
        self._processes: dict[tuple[str, int], _Process] = {}
        """by node and number: a slice that was replaced has the same numbers on another node"""
        self._origin = -1
        self._second = 0
        self._calls = 0
        self._time_s = 0.0
        self._arrivals = 0
        self._dropped = 0
        self._unbegun = 0
        self._refused = 0
        self._begun = 0
        self._aborted = 0
        self._refusal = ""
        """the error of the first user that could not begin"""
        self._no_files = 0

    def add(self, window: Window) -> None:
        """Count a window."""
        if self._origin < 0:
            self._origin = window.bucket
        if (window.bucket - self._origin) // SECOND > self._second:
            self._close((window.bucket - self._origin) // SECOND)
        for number, health in window.health.items():
            self._process(health.node, number).add(health, window.width)
        for (node, number), process in self._processes.items():
            # a process whose loop was blocked reports that time later
            own = window.health.get(number, _UNHEARD)
            if own.node == node:
                process.waits.add(window.width, own.waited, own.throttled)
            else:
                process.waits.add(window.width, 0.0, 0.0)
        self._arrivals += window.arrivals
        self._dropped += window.dropped
        self._unbegun += window.unbegun
        self._refused += window.refused_users
        self._begun += window.begun
        self._aborted += window.aborted_iterations
        for kind, text in window.examples.items():
            if kind.startswith("on_start "):
                self._refusal = self._refusal or text
        for step in window.steps:
            self._no_files += step.errors.get("files", 0)
            for sketch in (step.ok, step.failed):
                if sketch is not None:
                    self._calls += sketch.count
                    self._time_s += sketch.total

    def _process(self, node: str, number: int) -> _Process:
        found = self._processes.get((node, number))
        if found is None:
            found = self._processes[node, number] = _Process(number)
        return found

    def _close(self, second: int) -> None:
        mean_s = self._time_s / self._calls if self._calls else 0.0
        for process in self._processes.values():
            process.close(max(LAG_S, LAG_PART * mean_s))
        self._second = second

    def trust(self) -> Trust:
        """Judged by the finished seconds."""
        reasons = [*self._load(), *self._no_files_left()]
        blamed = [(group, why) for group in self._groups() if (why := self._judge(group))]
        for _, why in blamed[:MOST]:
            reasons += why
        if others := [group.name for group, _ in blamed[MOST:]]:
            reasons.append(f"{len(others):,} more had such problems: {', '.join(others)}")
        return Trust(ok=not reasons, reasons=reasons)

    def finish(
        self, *, by_itself: bool = True, cut: str = "", lost: Sequence[str] = (), wrong_sums: Sequence[str] = ()
    ) -> Trust:
        """The run is over; its last second may be incomplete.

        `by_itself`: it was not stopped. `cut`: why some work of the generators is unknown. `lost`: why the load was not
        the planned one, or is not all known. `wrong_sums`: differences in the accounts.
        """
        self._close(self._second + 1)
        for process in self._processes.values():
            process.finish()
        reasons = [*lost, *self.trust().reasons]
        if cut:
            reasons.insert(
                0, f"{cut}: requests, errors and iterations are a lower bound of those that the target received"
            )
        if by_itself and self._aborted:
            reasons.append(
                f"{counted(self._aborted, 'iteration')} of {digits(self._begun)} did not end within the drain and "
                f"{'was' if self._aborted == 1 else 'were'} aborted: the slowest are not in the numbers; raise drain"
            )
        if wrong_sums:
            reasons.append(
                f"the accounts of the run do not add up ({'; '.join(wrong_sums)}): this is a bug in Mainstay; please "
                "report it with the recording of the run"
            )
        return Trust(ok=not reasons, reasons=reasons)

    def _load(self) -> list[str]:
        reasons = []
        why = f" (on_start raised {self._refusal})" if self._refusal else ""
        if self._refused:
            reasons.append(
                f"{counted(self._refused, 'user')} could not begin{why}: the target did not get the requested load"
            )
        if self._unbegun:
            reasons.append(
                f"{digits(self._unbegun)} of {digits(self._arrivals)} arrivals found no user that could begin{why}: "
                "the target did not get the requested load"
            )
        if busy := self._dropped - self._unbegun:
            reasons.append(
                f"{digits(busy)} of {digits(self._arrivals)} arrivals were dropped, because too many "
                "iterations were under way: the target did not get the requested load; raise max_in_flight if "
                "it may take more, or lower the rate"
            )
        return reasons

    def _no_files_left(self) -> list[str]:
        if not self._no_files:
            return []
        return [
            (
                f"{digits(self._no_files)} calls failed because the system opened no more files: raise the limit "
                "(ulimit -n 65536), or use fewer users in a process"
            )
        ]

    # processes --------------------------------------------------------------------------------------

    def _groups(self) -> list[_Group]:
        """The processes of each node together; those of a run on one machine each for itself."""
        groups: dict[tuple[str, int], _Group] = {}
        for (node, number), process in sorted(self._processes.items()):
            groups.setdefault((node, -1 if node else number), _Group(node, [])).processes.append(process)
        return list(groups.values())

    def _judge(self, group: _Group) -> list[str]:
        """What its processes ran out of."""
        return [*_files(group), *_lag(group, self._second), *_cpu(group, is_open=self._arrivals > 0), *_wait(group)]


def _files(group: _Group) -> list[str]:
    blamed = [one for one in group.processes if one.files > FILES * one.files_limit > 0]
    if not blamed:
        return []
    worst = max(blamed, key=lambda one: one.files / one.files_limit)
    had = f"{digits(worst.files)} of at most {digits(worst.files_limit)} files open"
    where = " there" if group.node else ""
    return [
        group.reason(
            blamed,
            f"{{}} had {had}",
            f"{{}} had up to {had}",
            f": raise the limit{where} (ulimit -n 65536), or use fewer users in a process",
        )
    ]


def _lag(group: _Group, seconds: int) -> list[str]:
    blamed = [one for one in group.processes if one.late_s >= max(1, LAG_SECONDS * seconds)]
    if not blamed:
        return []
    latest, late_s = max(one.latest for one in blamed), max(one.late_s for one in blamed)
    return [
        group.reason(
            blamed,
            f"the event loop of {{}} was up to {time_text(latest)} late, in {late_s}",
            f"the event loops of {{}} were up to {time_text(latest)} late, in up to {late_s}",
            f" of {max(seconds, 1)} s: times include that; {group.more}, or do less in the steps",
        )
    ]


def _cpu(group: _Group, *, is_open: bool) -> list[str]:
    blamed = [one for one in group.processes if one.busy_s]
    if not blamed:
        return []
    # the response times of an open model include the delay; a closed one only sends less
    closed = "" if is_open else "; calls waited inside the generator, and their times include that"
    share = share_text(round(max(one.busiest for one in blamed), 2))
    busy_s = digits(max(one.busy_s for one in blamed))
    return [
        group.reason(
            blamed,
            f"{{}} used {share} of its core for {busy_s}",
            f"{{}} used up to {share} of their cores for up to {busy_s}",
            f" s: {group.more}{closed}",
        )
    ]


def _wait(group: _Group) -> list[str]:
    blamed = [one for one in group.processes if one.waits.worst.part > WAIT]
    if not blamed:
        return []
    worst = max((one.waits.worst for one in blamed), key=lambda one: one.part)
    share = f"{share_text(round(worst.part, 2))} of {digits(worst.seconds)} s, and times include that"
    if worst.throttled_s > worst.waited_s / 2:
        fewer = "let the node join with fewer --cores" if group.node else "use fewer --processes"
        todo = f"its control group had used up its CPU time; raise its quota (cpu.max), or {fewer}"
    elif group.node:
        todo = "other programs use the cores of this machine; end them, or let the node join with fewer --cores"
    else:
        todo = (
            "other programs use the cores of this machine; end them, use no more --processes than there are free "
            "cores, or test from another machine"
        )
    return [
        group.reason(
            blamed,
            f"{{}} was ready to run but had no core for {share}",
            f"{{}} were ready to run but had no core for up to {share}",
            f": {todo}",
        )
    ]
