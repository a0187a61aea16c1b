"""What a run comes to in a word, why, and what one may want to do next."""

from __future__ import annotations

import shlex
from typing import Literal

import msgspec

from ...clock import duration_text
from ..stats.model import Summary
from ..stats.thresholds import RUNNING, verdict_of
from .words import counted, share_text

Word = Literal["passed", "failed", "interrupted", "running", "lost", "NOT TRUSTWORTHY"]
#: what is wrong with a result that is not trustworthy, whatever the reason: the generator, or the load
DOUBT = "these are not just the numbers of the target under the load that was asked for"
_THRESHOLD = 'mainstay load run FILE --threshold "error rate < 1%"'


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict in words. A run can have passed, and be not trustworthy."""

    words: list[Word]
    reasons: list[str]


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done next, and with which command."""

    why: str
    command: str = ""


def verdict_words(summary: Summary) -> Judged:
    """The verdict and its reasons, the gravest first."""
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
    return Judged(words=words, reasons=reasons)


def _outcome(summary: Summary) -> Word:
    """What failed has not passed, whatever its thresholds say; nor has what did not come to its end."""
    found = verdict_of(summary.thresholds, summary.ended)
    return summary.verdict if found == "passed" else found


def advice_for(summary: Summary) -> list[Suggestion]:
    """What to do next, if there is something."""
    told = []
    if not summary.trust.ok:
        told.append(Suggestion(why=f"{DOUBT[0].upper()}{DOUBT[1:]}: see above"))
    looked_at = any("error" in one or "fail" in one for one in summary.header.thresholds)
    if (summary.failed or summary.raised) and not looked_at and _outcome(summary) != "failed":
        share = share_text(summary.error_rate, 1)
        told.append(
            Suggestion(why=f"{share} failed, and no threshold looks at it; to fail such a run", command=_THRESHOLD)
        )
    drawn = any(one.name.startswith("html ") and not one.error for one in summary.outputs)
    if summary.stream and summary.requests and not drawn:
        told.append(
            Suggestion(
                why="For charts", command=f"mainstay load report {shlex.quote(summary.stream)} --html report.html"
            )
        )
    return told


def troubles_of(summary: Summary) -> list[tuple[str, str, bool]]:
    """Workflows that went wrong as a whole: name, why, and whether it was run at all."""
    known = {one.get("name") for one in summary.header.workflows}
    return [(name, why, name not in known) for name, why in summary.skipped.items()]
