"""The grammar of thresholds.

    metric [of step | of {tag:value, ...}] op value [for|over|within window][, stop as failed|passed]

An error shows the text, points at the wrong character, and names what is expected there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, Literal, NoReturn, get_args

import msgspec

from ...clock import seconds
from ...errors import InvalidInput
from .measures import MEASURES, STAT, STATS, STATUS, UNITS, Measure, Reading
from .model import StopVerdict
from .tags import WORD, Tags, tags_text

Op = Literal["<", "<=", ">", ">=", "==", "!="]
How = Literal["", "for", "over", "within"]

_WORD = re.compile(r"[^\W\d][\w.?-]*")
_NAME = re.compile(r"[\w./:-]+")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_OP = re.compile(r"<=|>=|==|!=|<|>|=")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_UNIT = re.compile(
    r"\s*(" + "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True) if unit) + r")(?![A-Za-zµ%/])",
    re.IGNORECASE,
)
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+(?!\w)", re.IGNORECASE)

_SAME = {"avg": "mean", "average": "mean", "hits": "rate", "count": "requests", "fails": "failures"}
_PAIRS = {"error": "error rate", "failure": "error rate", "failed": "failed checks"}
_NAMED = ("counter", "gauge", "trend")
#: before p95, mean and the like
_TIMES = ("ok", "response")
_WORDS = ("p95", *STATS, *_SAME, *(words for words in MEASURES if words not in ("service", "status", "custom rate")))


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that a run must meet to pass. `str()` gives its text, which `parse` reads.

    `X`: over the whole run. `X for 10s`: fails if it is broken in each of ten seconds in a row. `X over 10s`: fails if
    it does not hold over some ten seconds taken together. `X within 10s`: the same, judged from the first second on.
    """

    metric: str
    """p95, ok p95, response p95, rate, error rate, rc5xx, trend cart p95, ..."""
    of: str | None = None
    """a step, or "Workflow.step"; None: all steps together"""
    tags: Tags = ()
    """instead of a step: all steps with these tags, taken together; or the values of a metric with these tags"""
    op: Op
    limit: str
    """with its unit: 200ms, 1%, 5"""
    how: How = ""
    window: str = ""
    """10s"""
    stop: StopVerdict | None = None
    """failed: the run ends when this fails; passed: it ends, as passed, as soon as this holds"""

    def __str__(self) -> str:
        of = f" of {_quoted(self.of)}" if self.of is not None else ""
        of = f" of {tags_text(self.tags)}" if self.tags else of
        window = f" {self.how} {self.window}" if self.how else ""
        stop = f", stop as {self.stop}" if self.stop else ""
        return f"{self.metric}{of} {self.op} {self.limit}{window}{stop}"


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed threshold, for judging."""

    measure: Measure
    reading: Reading
    unit: str
    limit: float
    """seconds, a share, a count"""
    stat: str = ""
    """of a distribution: p95, mean, ..."""
    name: str = ""
    """of a custom metric, or the pattern of a status: 5xx"""
    window_s: float = 0.0
    of_at: int = 0
    """the position of the step or its tags in the text"""


def parse(text: str) -> Threshold:
    """Read a threshold.

    >>> parse("p95 of browse<200ms for 10s")
    Threshold(metric='p95', of='browse', tags=(), op='<', limit='200ms', how='for', window='10s', stop=None)
    >>> parse("p95 of {area:checkout} < 200ms").tags
    (('area', 'checkout'),)
    >>> str(parse("error rate < 1 %, stop as failed"))
    'error rate < 1%, stop as failed'
    >>> parse("p95 of browse < 200")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: thresholds: expected a unit: us, µs, ms, s, m, h; like 200ms
      p95 of browse < 200
                         ^
    """
    return _Reader(text).threshold()[0]


def meaning_of(threshold: Threshold) -> Meaning:
    """The meaning of a threshold, in numbers."""
    return _Reader(str(threshold)).threshold()[1]


class _Reader:
    """Parses one threshold from left to right."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise InvalidInput("thresholds", f"{text!r} is not a threshold; write it as text, like 'p95 < 200ms'")
        self.text = re.sub(r"\s", " ", text)
        self.at = 0
        self.of_at = 0

    def threshold(self) -> tuple[Threshold, Meaning]:
        words, measure, stat, name = self._metric()
        of, tags = self._of(measure, words)
        op = self._op()
        limit_at = self._skip()
        limit, unit, value = self._limit(measure, words)
        self._check_limit(measure, op, value, unit, limit_at)
        reading = measure.reading(unit)
        assert reading is not None
        how, window, window_s = self._window()
        stop = self._stop()
        self._end(how, stop)
        threshold = Threshold(metric=words, of=of, tags=tags, op=op, limit=limit, how=how, window=window, stop=stop)
        return threshold, Meaning(
            measure=measure,
            reading=reading,
            unit=unit,
            limit=value,
            stat=stat,
            name=name,
            window_s=window_s,
            of_at=self.of_at,
        )

    # metric -----------------------------------------------------------------------------------------

    def _metric(self) -> tuple[str, Measure, str, str]:
        """The words, the measure, the statistic of a distribution, and the name or pattern."""
        at = self._skip()
        word = self._word("a metric, like p95, error rate or requests")
        known = _SAME.get(word.lower(), word.lower())
        if known == "error_rate":
            known = "error"
        elif known in _PAIRS:
            self._pair(_PAIRS[known])
        if known in _PAIRS:
            return _PAIRS[known], MEASURES[_PAIRS[known]], "", ""
        if known in _TIMES:
            stat = self._stat()
            return f"{known} {stat}", MEASURES[known], stat, ""
        if known in _NAMED:
            return self._own(known)
        if known == "rate":
            name = self._name_before_comparison()
            if name:
                return f"rate {_quoted(name)}", MEASURES["custom rate"], "", name
        if STATUS.match(known):
            return known.replace("?", "x"), MEASURES["status"], "", known[2:].replace("?", "x")
        if known in MEASURES and known not in ("service", "status"):
            return known, MEASURES[known], "", ""
        return (stat := self._as_stat(word, at, _WORDS)), MEASURES["service"], stat, ""

    def _pair(self, words: str) -> None:
        second = words.split()[1]
        at = self._skip()
        if self._word(second).lower() != second:
            self._fail(second, at)

    def _own(self, kind: str) -> tuple[str, Measure, str, str]:
        at = self._skip()
        name = self._name()
        if name is None:
            self._fail(f"the name of the {kind}", at)
        stat = self._stat() if kind == "trend" else ""
        return " ".join(filter(None, (kind, _quoted(name), stat))), MEASURES[kind], stat, name

    def _name_before_comparison(self) -> str | None:
        at = self._skip()
        name = self._name()
        if name == "of":
            self.at = at
            return None
        return name

    def _stat(self) -> str:
        at = self._skip()
        return self._as_stat(self._word("p95, mean, min, max or stdev"), at, ("p95", *STATS))

    def _as_stat(self, word: str, at: int, known: Iterable[str]) -> str:
        stat = _SAME.get(word.lower(), word.lower())
        if stat == "median":
            return "p50"
        if stat in STATS:
            return stat
        if not STAT.match(stat):
            self._fail("a metric, like p95, error rate or requests", at, word, known)
        if not 0 < float(stat[1:]) <= 100:
            self._fail("a percentile above p0 and up to p100", at)
        return stat

    def _of(self, measure: Measure, words: str) -> tuple[str | None, Tags]:
        at = self._skip()
        if not self._take(re.compile(r"of\b", re.IGNORECASE)):
            return None, ()
        self.of_at = self._skip()
        by_tag = self.text.startswith("{", self.of_at)
        if measure.by == "run" or (measure.by == "tag" and not by_tag):
            tags = " but may have tags: of {shop:north}" if measure.by == "tag" else ""
            self._fail(f"a comparison; {words} has no steps{tags}", at)
        if by_tag:
            return None, self._tags()
        at = self._skip()
        name = self._name()
        if name is None:
            self._fail("the name of a check" if measure.by == "check" else "the name of a step", at)
        return name, ()

    def _tags(self) -> Tags:
        found: dict[str, str] = {}
        self._expect("{", "a tag")
        while True:
            name = self._tag_word("the name of a tag, like {area:checkout}")
            self._expect("[:=]", "':' and the value of the tag")
            found[name] = self._tag_word("the value of the tag")
            if self._expect("[,}]", "'}', or ',' and another tag") == "}":
                return tuple(sorted(found.items()))

    def _tag_word(self, expected: str) -> str:
        at = self._skip()
        word = self._take(_QUOTED)
        if word is not None:
            return word[1:-1]
        word = self._take(WORD)
        if word is None:
            self._fail(expected, at)
        return word

    def _expect(self, pattern: str, expected: str) -> str:
        at = self._skip()
        found = self._take(re.compile(pattern))
        if found is None:
            self._fail(expected, at)
        return found

    # comparison -------------------------------------------------------------------------------------

    def _op(self) -> Op:
        at = self._skip()
        found = self._take(_OP)
        if found is None:
            self._fail("a comparison: <, <=, >, >=, ==, !=", at)
        op = "==" if found == "=" else found
        assert op in get_args(Op)
        return op  # type: ignore[return-value]

    def _limit(self, measure: Measure, words: str) -> tuple[str, str, float]:
        at = self._skip()
        number = self._take(_NUMBER)
        if number is None:
            self._fail(f"a value, like {measure.example}", at)
        at = self.at
        matched = _UNIT.match(self.text, at)
        written = matched.group(1) if matched else ""
        unit = written.lower()
        if matched:
            at, self.at = matched.start(1), matched.end()
        elif re.match(r"[A-Za-zµ%/]", self.text[at : at + 1]):
            word = re.match(r"[^\s,]+", self.text[at:])
            assert word is not None
            self._fail(_units(measure), at, word.group(), measure.units)
        if unit not in measure.units:
            self._fail(_units(measure) if measure.units.keys() != {"%"} else f"a percentage: {words} is a share", at)
        by, parts = UNITS[unit]
        return number + written, unit, float(number) * by / parts

    def _check_limit(self, measure: Measure, op: Op, limit: float, unit: str, at: int) -> None:
        """Refuse a limit that is always or never kept: a mistake, whatever the run does."""
        if measure.reading(unit) == "share":
            if not 0 <= limit <= 1:
                self._fail("a share from 0% to 100%", at)
            if (op, limit) in ((">", 1), ("<", 0)):
                self._fail(f"a limit that can be kept; nothing is {'above 100%' if limit else 'below 0%'}", at)
        elif measure.by != "tag" or measure.source == "counter":
            if limit < 0:
                self._fail("a limit of 0 or more; this metric is never below 0", at)
            if op == "<" and limit == 0:
                self._fail("a limit that can be kept; this metric is never below 0, so write == 0", at)

    # what follows -----------------------------------------------------------------------------------

    def _window(self) -> tuple[How, str, float]:
        self._skip()
        word = self._take(re.compile(r"(?:for|over|within)\b", re.IGNORECASE))
        if word is None:
            return "", "", 0.0
        at = self._skip()
        window = self._take(_DURATION)
        if window is None:
            self._fail("a duration, like 10s or 1m30s", at)
        window_s = seconds(window, field="thresholds")
        if window_s < 1:
            self._fail("at least 1s; thresholds are judged once a second", at)
        return word.lower(), window, window_s  # type: ignore[return-value]

    def _stop(self) -> StopVerdict | None:
        self._skip()
        if not self._take(re.compile(",")):
            return None
        for word in ("stop", "as"):
            at = self._skip()
            if self._word(f"{word}: write ', stop as failed' or ', stop as passed'").lower() != word:
                self._fail(f"{word}: write ', stop as failed' or ', stop as passed'", at)
        at = self._skip()
        word = self._word("failed or passed").lower()
        if word not in get_args(StopVerdict):
            self._fail("failed or passed", at, word, get_args(StopVerdict))
        return word  # type: ignore[return-value]

    def _end(self, how: How, stop: StopVerdict | None) -> None:
        at = self._skip()
        if at == len(self.text):
            return
        if stop:
            self._fail("nothing more", at)
        rest = "" if how else "for, over or within and a time, or "
        self._fail(f"{rest}', stop as failed'", at)

    # characters -------------------------------------------------------------------------------------

    def _skip(self) -> int:
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1
        return self.at

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found.group()

    def _word(self, expected: str) -> str:
        at = self._skip()
        word = self._take(_WORD)
        if word is None:
            self._fail(expected, at)
        return word

    def _name(self) -> str | None:
        found = _QUOTED.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
            return found.group(1) or found.group(2)
        return self._take(_NAME)

    def _fail(self, expected: str, at: int, word: str = "", known: Iterable[str] = ()) -> NoReturn:
        names = [one for one in known if one]
        # the metric may be two words
        phrase = " ".join(self.text[at:].lower().split()[:2])
        close = [found for meant in (phrase, word.lower()) for found in difflib.get_close_matches(meant, names, n=1)]
        hint = f"; did you mean {close[0]}?" if word and close else ""
        raise pointed_at(self.text, at, f"expected {expected}{hint}")


def pointed_at(text: str, at: int, why: str) -> InvalidInput:
    """An error that points at a character."""
    return InvalidInput("thresholds", f"{why}\n  {text}\n  {' ' * at}^")


def _units(measure: Measure) -> str:
    """The accepted units in words."""
    named = ", ".join(unit for unit in measure.units if unit)
    return (f"no unit, or {named}" if "" in measure.units else f"a unit: {named}") + f"; like {measure.example}"


def _quoted(name: Any) -> str:
    """A name, quoted if necessary."""
    if _NAME.fullmatch(name):
        return str(name)
    return f"'{name}'" if "'" not in name else f'"{name}"'
