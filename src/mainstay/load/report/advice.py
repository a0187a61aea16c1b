"""The verdict of a run in words, its reasons, and what to do next."""

from __future__ import annotations

import shlex
from typing import Literal

import msgspec

from ...clock import duration_text
from ..stats.model import Summary
from ..stats.thresholds import RUNNING, verdict_of
from .words import counted, share_text

Word = Literal["passed", "failed", "interrupted", "running", "lost", "NOT TRUSTWORTHY"]
#: what is wrong with a result that is not trustworthy, whether because of the generator or of the load
DOUBT = "the numbers are not only those of the target under the requested load"
_THRESHOLD = 'mainstay load run FILE --threshold "error rate < 1%"'


class VerdictWords(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict in words. A run can have passed and still not be trustworthy."""

    words: list[Word]
    reasons: list[str]


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next, and the command for it."""

    why: str
    command: str = ""


def verdict_words(summary: Summary) -> VerdictWords:
    """The verdict and its reasons, the most serious first."""
    words: list[Word] = [_outcome(summary)]
    reasons = []
    if not summary.trust.ok:
        words.append("NOT TRUSTWORTHY")
        reasons += summary.trust.reasons
    if summary.ended == RUNNING:
        took = duration_text(round(summary.elapsed_s, 1))
        reasons.append(f"the run has not ended: these are the numbers of its first {took}")
    elif summary.ended not in ("finished", words[0]):
        reasons.append(summary.ended)
    broken = [one for one in summary.thresholds if not one.passed]
    reasons += [f"{one.text}: {one.shown or 'no value'}" for one in broken[:3]]
    if len(broken) > 3:
        reasons.append(f"and {counted(len(broken) - 3, 'more threshold')}")
    if not summary.requests and summary.ended == "finished":
        reasons.append("nothing was measured: no step returned a response")
    return VerdictWords(words=words, reasons=reasons)


def _outcome(summary: Summary) -> Word:
    """A run that failed or did not finish has not passed, whatever its thresholds say."""
    verdict = verdict_of(summary.thresholds, summary.ended)
    return summary.verdict if verdict == "passed" else verdict


def advice_for(summary: Summary) -> list[Suggestion]:
    """Suggestions for this run."""
    suggestions = []
    if not summary.trust.ok:
        suggestions.append(Suggestion(why=f"{DOUBT[0].upper()}{DOUBT[1:]}: see above"))
    limited = any("error" in one or "fail" in one for one in summary.header.thresholds)
    if (summary.failed or summary.raised) and not limited and _outcome(summary) != "failed":
        share = share_text(summary.error_rate, 1)
        suggestions.append(
            Suggestion(why=f"{share} failed, and no threshold limits that; to fail such a run", command=_THRESHOLD)
        )
    drawn = any(one.name.startswith("html ") and not one.error for one in summary.outputs)
    if summary.stream and summary.requests and not drawn:
        suggestions.append(
            Suggestion(
                why="For charts", command=f"mainstay load report {shlex.quote(summary.stream)} --html report.html"
            )
        )
    return suggestions


def troubles_of(summary: Summary) -> list[tuple[str, str, bool]]:
    """Workflows that failed as a whole: name, reason, and whether it was run at all."""
    known = {one.get("name") for one in summary.header.workflows}
    return [(name, why, name not in known) for name, why in summary.skipped.items()]
