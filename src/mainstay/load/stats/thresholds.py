"""Thresholds: conditions that a run must meet to pass.

A threshold states what must *hold*. (In Taurus, the origin of this grammar, a criterion states the failure.) `grammar`
parses it, `measures` reads its values, `terms` judges them over time; here they are judged from windows alone.

Judging is by whole seconds since the first window:

- `X`: over the whole run so far. It may be broken for a while and hold at the end; the end decides. A count that has to
  be reached (`requests > 1000`) cannot be broken before the end.
- `X for W`: each second by itself. Fails if it is broken in all seconds of some `W`. A second without a measurement
  does not count.
- `X over W`: the last `W` taken together, every second. Fails if it is broken once. For windows above a minute, every
  sixtieth of the window instead of every second.
- `X within W`: the last `W` taken together, or the time so far, every second from the first on. Fails if it is broken
  once. A count is judged ten times a second, so that ten failures within any two seconds are noticed (for windows above
  a minute, every six hundredth); a count that has to be reached has the time `W`.

A run that ends before a window is full is judged by the measured part. A threshold without any measurement has not
passed: "no value". `stop as failed` ends the run when the threshold fails, `stop as passed` when it holds (with `for`:
in all seconds of `W`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from ...errors import InvalidInput
from .grammar import Meaning, Threshold, meaning_of, parse, pointed_at
from .measures import Of, Piece, collect, value_text
from .model import Header, StopVerdict, ThresholdOutcome, Verdict, Window
from .tags import groups_of, tagged, tags_text
from .tally import SECOND
from .terms import term_of

#: `ended` of a run that has not ended
RUNNING = "running"
#: kinds of steps that can have errors: any step may raise
_RAISING = {"measured", "metric", "check", "action"}


def threshold(
    metric: str,
    *,
    of: str | None = None,
    tags: Mapping[str, str] | None = None,
    below: str | float | None = None,
    above: str | float | None = None,
    at_most: str | float | None = None,
    at_least: str | float | None = None,
    lasting: str | None = None,
    over: str | None = None,
    within: str | None = None,
    stop: StopVerdict | None = None,
) -> Threshold:
    """A threshold from its parts, instead of text. `lasting` is `for` in text; `tags` replaces a step.

    >>> str(threshold("p95", of="browse", below="200ms", over="10s", stop="failed"))
    'p95 of browse < 200ms over 10s, stop as failed'
    >>> str(threshold("error rate", tags={"area": "checkout"}, below="1%"))
    'error rate of {area:checkout} < 1%'
    """
    limits = {"<": below, ">": above, "<=": at_most, ">=": at_least}
    given = [(op, limit) for op, limit in limits.items() if limit is not None]
    if len(given) != 1:
        raise InvalidInput("thresholds", f"{metric} needs one of below, above, at_most and at_least")
    windows = {"for": lasting, "over": over, "within": within}
    chosen = [f" {how} {window}" for how, window in windows.items() if window is not None]
    if len(chosen) > 1:
        raise InvalidInput("thresholds", f"{metric} takes one of lasting, over and within")
    ((op, limit),) = given
    if of is not None and tags:
        raise InvalidInput("thresholds", f"{metric} takes one of of and tags")
    named = f" of {of!r}" if of is not None else f" of {tags_text(tags.items())}" if tags else ""
    ending = f", stop as {stop}" if stop is not None else ""
    return parse(f"{metric}{named} {op} {limit}{''.join(chosen)}{ending}")


def thresholds_of(given: Iterable[str | Threshold]) -> list[Threshold]:
    """Parse the thresholds of a workflow: text, or results of `threshold`."""
    return [one if isinstance(one, Threshold) else parse(one) for one in given]


def check(thresholds: Iterable[Threshold], header: Header) -> None:
    """Refuse thresholds on steps and tags that the run does not have, and thresholds that can never have a value.

    The names of custom metrics are not checked: they become known during the run.
    """
    kinds: dict[str, str] = {}
    for workflow in header.workflows:
        for step in workflow.get("steps", ()):
            kind = str(step.get("kind", "measured"))
            kinds[f"{workflow['name']}.{step['name']}"] = kind
            kinds.setdefault(str(step["name"]), kind)
    for one in thresholds:
        if one.of is not None:
            _check_step(one, one.of, kinds)
        elif one.tags:
            _check_tags(one, header, kinds)
        if why := _never_measured(one, header, set(kinds.values())):
            raise pointed_at(str(one), meaning_of(one).of_at, why)


def _never_measured(one: Threshold, header: Header, kinds: set[str]) -> str:
    """Why a threshold can never have a value; empty if it can. A count always has one: zero."""
    meaning = meaning_of(one)
    source = meaning.measure.source
    if meaning.reading not in ("stat", "share"):
        return ""
    if source == "response" and not _has_rate(one, header):
        return "response time needs a rate; this test has a number of users: leave out `response` for service time"
    if source == "dropped" and not _has_rate(one, header):
        return "arrivals are dropped only with a rate; this test has a number of users"
    if meaning.measure.by == "check" and "check" not in kinds:
        return "no step is a check; annotate one with `-> Check`"
    if source in ("service", "ok", "response", "failures", "status") and one.of is None and "measured" not in kinds:
        return "no step is measured; annotate one with `-> HTTPResponse`, for example"
    return ""


def _has_rate(one: Threshold, header: Header) -> bool:
    """Whether any of its steps is of an open model."""
    steps = {(str(each["name"]), str(step["name"])) for each in header.workflows for step in each.get("steps", ())}
    if one.tags:
        steps &= tagged(header, one.tags)
    elif one.of is not None:
        steps = {step for step in steps if one.of in (step[1], ".".join(step))}
    rated = {str(each["name"]) for each in header.workflows if each.get("open", True)}
    return any(workflow in rated for workflow, _ in steps)


def _check_tags(one: Threshold, header: Header, kinds: dict[str, str]) -> None:
    meaning = meaning_of(one)
    measure = meaning.measure
    if measure.by == "tag":
        return
    wanted = {"check"} if measure.by == "check" else {"measured", "action"}
    if measure.source == "errors":
        wanted = _RAISING
    fit = [step for step in tagged(header, one.tags) if kinds[".".join(step)] in wanted]
    if fit:
        return
    known = [tags_text([tag]) for tag in groups_of(header)]
    close = difflib.get_close_matches(tags_text(one.tags), known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known tags: {', '.join(known) or 'none'}"
    what = "check" if measure.by == "check" else "measured step"
    raise pointed_at(str(one), meaning.of_at, f"no {what} has the tags {tags_text(one.tags)}; {hint}")


def _check_step(one: Threshold, of: str, kinds: dict[str, str]) -> None:
    meaning = meaning_of(one)
    wanted = {"check"} if meaning.measure.by == "check" else {"measured", "metric", "action"}
    if meaning.measure.source == "errors":
        wanted = _RAISING
    elif meaning.measure.source != "skipped":
        wanted -= {"action"}
    fit = [name for name, kind in kinds.items() if kind in wanted and "." not in name]
    if of not in kinds:
        close = difflib.get_close_matches(of, kinds, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known steps: {', '.join(fit) or 'none'}"
        raise pointed_at(str(one), meaning.of_at, f"there is no step {of}; {hint}")
    if kinds[of] not in wanted:
        what = "checks" if meaning.measure.by == "check" else "measured steps"
        raise pointed_at(
            str(one),
            meaning.of_at,
            f"{of} is of kind {kinds[of]}, and has no {meaning.measure.source}; {what}: {', '.join(fit) or 'none'}",
        )
    if meaning.measure.source == "errors" and meaning.reading == "share" and kinds[of] != "measured":
        # only exceptions would be counted: the share would always be 100 %, or undefined
        why = f"{of} is of kind {kinds[of]} and has no requests, so no error rate; write `errors of {of} == 0`"
        raise pointed_at(str(one), meaning.of_at, why)


class ThresholdJudge:
    """Judges thresholds during a run. Takes windows that are merged over all processes, in order.

    >>> judge = ThresholdJudge([parse("iterations > 5")])
    >>> judge.add(Window(bucket=0, iterations=9))
    >>> [(outcome.passed, outcome.shown) for outcome in judge.finish()]
    [(True, '9')]
    """

    def __init__(
        self,
        thresholds: Sequence[Threshold],
        header: Header | None = None,
        *,
        earlier: Sequence[ThresholdOutcome] = (),
    ) -> None:
        """`header` has the tags of the steps. `earlier`: the outcomes of a judge whose windows this one does not get
        one by one; what was decided stays so."""
        self._watches = [_Watch(one, header) for one in thresholds]
        before = {outcome.text: outcome for outcome in earlier}
        for watch in self._watches:
            if (outcome := before.get(str(watch.threshold))) is not None:
                watch.resume(outcome)
        self._pieces = self._fresh()
        self._origin = -1
        self._second = 0
        self._end = 0
        self._covered = 0
        """buckets of this second that have windows"""
        self._finished = False
        self.stop: StopVerdict | None = next((one.threshold.stop for one in self._watches if one.stopped), None)
        """set when a threshold ends the run: the verdict"""

    def add(self, window: Window) -> None:
        """Count a window, and judge each second that it completes."""
        if self._origin < 0:
            self._origin = window.bucket
        self._advance((window.bucket - self._origin) // SECOND)
        for (source, name, of), piece in self._pieces.items():
            before = piece.amount
            collect(piece, source, name, of, window)
            piece.amounts.append((window.bucket + window.width, piece.amount - before))
        self._covered += window.width
        self._end = max(self._end, window.bucket + window.width - self._origin)
        if window.adopted:
            self._skip(self._end // SECOND)
        else:
            self._advance(self._end // SECOND)

    def outcomes(self) -> list[ThresholdOutcome]:
        """The current results."""
        return [watch.outcome(final=self._finished) for watch in self._watches]

    def finish(self, load_s: float | None = None) -> list[ThresholdOutcome]:
        """The final results. `load_s`: the base of rates over the whole run, as in its summary; None: the time that the
        windows cover."""
        if not self._finished:
            self._finished = True
            for watch in self._watches:
                watch.finish(self._pieces[watch.key], self._covered / SECOND, self._end / SECOND, load_s)
        return self.outcomes()

    def _skip(self, second: int) -> None:
        """The sum of many seconds has arrived: a leader before this one has judged them one by one."""
        for watch in self._watches:
            watch.skip(self._pieces[watch.key], self._covered / SECOND, self._end / SECOND)
        self._pieces = self._fresh()
        self._covered = 0
        self._second = second
        self._decide()

    def _advance(self, second: int) -> None:
        while self._second < second:
            self._second += 1
            # there is no load between two layers of workflows
            if not self._covered:
                continue
            if self._covered > SECOND:
                # a wide window: its seconds are judged together
                self._second = second
            for watch in self._watches:
                watch.second(self._pieces[watch.key], self._covered / SECOND, float(self._second))
            self._pieces = self._fresh()
            self._covered = 0
            self._decide()

    def _decide(self) -> None:
        if self.stop is not None:
            return
        fired = [watch for watch in self._watches if watch.fired]
        # failed wins over passed within the same second
        for watch in sorted(fired, key=lambda watch: watch.threshold.stop != "failed")[:1]:
            watch.stopped = True
            self.stop = watch.threshold.stop

    def _fresh(self) -> dict[_Key, Piece]:
        return {watch.key: Piece() for watch in self._watches}


def verdict_of(outcomes: Iterable[ThresholdOutcome], ended: str) -> Verdict:
    """The verdict of a run. Thresholds decide only if it came to its end."""
    if ended.startswith("failed"):
        return "failed"
    if came_to_its_end(ended):
        return "passed" if all(outcome.passed for outcome in outcomes) else "failed"
    if ended == RUNNING:
        return "running"
    return "lost" if ended.startswith("lost") else "interrupted"


def came_to_its_end(ended: str) -> bool:
    """Whether a run ended as intended: by its plan, or by one of its thresholds."""
    return ended.startswith(("finished", "stopped by a threshold"))


_Key = tuple[str, str, Of]


def _of(threshold: Threshold, meaning: Meaning, header: Header | None) -> Of:
    if not threshold.tags:
        return threshold.of
    if meaning.measure.by == "tag":
        return threshold.tags
    return frozenset() if header is None else tagged(header, threshold.tags)


class _Watch:
    """One threshold. `fired`: it stops the run."""

    def __init__(self, threshold: Threshold, header: Header | None) -> None:
        self.threshold = threshold
        self.meaning = meaning_of(threshold)
        self.key: _Key = (self.meaning.measure.source, self.meaning.name, _of(threshold, self.meaning, header))
        self.stopped = False
        self.fired = False
        self._term = term_of(threshold, self.meaning)
        self._value: float | None = None
        self._broken_at: float | None = None
        self._met_at: float | None = None
        self._undecided = False

    def resume(self, outcome: ThresholdOutcome) -> None:
        """Take over what was decided for good."""
        if outcome.at_s is None:
            return
        if self.threshold.stop == "passed":
            self._met_at, self._value = outcome.at_s, outcome.value
            self.fired = True
        elif not outcome.passed and (self._term.final or self.threshold.stop == "failed"):
            self._broken_at, self._value = outcome.at_s, outcome.value
            self.fired = self.threshold.stop == "failed"
        self.stopped = outcome.stopped

    def second(self, piece: Piece, covered_s: float, now_s: float) -> None:
        if not self.fired:
            self._take(self._term.add(piece, covered_s), now_s)

    def skip(self, piece: Piece, covered_s: float, now_s: float) -> None:
        if not self.fired:
            self._take(self._term.skip(piece, covered_s), now_s)

    def finish(self, piece: Piece, left_s: float, now_s: float, load_s: float | None) -> None:
        if not self.fired:
            self._take(self._term.finish(piece, left_s, load_s), now_s)

    def _take(self, holds: bool | None, now_s: float) -> None:
        broken = self._broken_at is not None
        self._undecided = holds is None
        if not broken or not self._term.final:
            self._value = self._term.value if self._term.value is not None else self._value
        if holds is None:
            return
        if self.threshold.stop == "passed":
            self._met_at = now_s if holds else None
            self.fired = holds
        elif not holds:
            self._broken_at = self._broken_at if broken else now_s
            self.fired = self.threshold.stop == "failed"
        elif not self._term.final:
            self._broken_at = None

    def outcome(self, *, final: bool) -> ThresholdOutcome:
        shown = "no value" if final else "no value yet"
        if self._value is not None:
            meaning = self.meaning
            shown = value_text(self._value, meaning.measure.source, meaning.reading, meaning.unit)
        if self.threshold.stop == "passed":
            passed, at_s = self._met_at is not None, self._met_at
            pending = not passed
        else:
            passed, at_s = self._broken_at is None and not (final and self._value is None), self._broken_at
            # a count that may still be reached
            pending = passed and self._undecided and self.threshold.how == "" and self._value is not None
        return ThresholdOutcome(
            text=str(self.threshold),
            passed=passed,
            value=self._value,
            shown=shown,
            at_s=at_s,
            stopped=self.stopped,
            pending=pending and not final,
        )
