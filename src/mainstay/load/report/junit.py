"""A run as JUnit XML, for build servers: one test case per workflow, per threshold, per check and per step that raised,
one for the run itself, and one for whether it can be trusted.

The suite fails if and only if the command that ran the test exits with an error: failed workflows and thresholds
decide, and with `--strict`, trust. Other problems are in the output of their case, which passes. But in a run that did
not pass, a step that raised is an error: it shows where to look.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

from ..stats.model import FAILED, SETUP_FAILED, CheckSummary, StepSummary, Summary, ThresholdOutcome
from ..stats.thresholds import came_to_its_end
from .advice import DOUBT, troubles_of
from .text import raised_text, threshold_text
from .words import share_text

#: characters that XML cannot hold in any form
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(summary: Summary, *, strict: bool = False) -> str:
    """The whole file. `strict`: a result that is not trustworthy has not passed."""
    suite = ET.Element("testsuite", name=_clean(summary.header.name))
    _run(suite, summary)
    for threshold in summary.thresholds:
        _threshold(suite, threshold)
    red = any(_is_red(case) for case in suite)
    for step in summary.steps:
        if step.raised:
            _raised(suite, step, red=red)
    for check in summary.checks:
        _check(suite, check)
    _workflows(suite, summary, red=red)
    _trust(suite, summary, strict=strict)
    cases = list(suite)
    at = datetime.fromtimestamp(summary.header.started_ms / 1000, UTC)
    counts = {
        "tests": len(cases),
        "failures": sum(one.find("failure") is not None for one in cases),
        "errors": sum(one.find("error") is not None for one in cases),
        "skipped": sum(one.find("skipped") is not None for one in cases),
        "time": f"{summary.elapsed_s:.3f}",
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S"),
    }
    for name, value in counts.items():
        suite.set(name, str(value))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, kind: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=f"load.{kind}", name=_clean(name))


def _run(suite: ET.Element, summary: Summary) -> None:
    case = _case(suite, "run", "the run came to its end")
    case.set("time", f"{summary.elapsed_s:.3f}")
    # a run that a threshold ended fails by that threshold
    if not came_to_its_end(summary.ended):
        ET.SubElement(case, "error", message=_clean(summary.ended))


def _workflows(suite: ET.Element, summary: Summary, *, red: bool) -> None:
    """A failed workflow fails the run, unless the run ended earlier for another reason."""
    troubles = {name: why for name, why, _ in troubles_of(summary)}
    for name in [str(one.get("name")) for one in summary.header.workflows]:
        case = _case(suite, "workflow", name)
        failed, skipped = troubles.pop(f"{name}{FAILED}", ""), troubles.pop(name, "")
        if skipped.startswith(SETUP_FAILED):
            failed, skipped = skipped, ""
        if failed and red:
            ET.SubElement(case, "failure", message=_clean(failed))
        elif failed:
            _add_output(case, failed)
        elif skipped:
            ET.SubElement(case, "skipped", message=_clean(skipped))
    for name, why in troubles.items():
        _add_output(_case(suite, "workflow", name), why)


def _threshold(suite: ET.Element, one: ThresholdOutcome) -> None:
    case = _case(suite, "threshold", one.text)
    if not one.passed:
        outcome = threshold_text(one.shown, one.at_s, one.stopped)
        ET.SubElement(case, "failure", message=_clean(outcome)).text = _clean(f"{one.text}: {outcome}")


def _is_red(case: ET.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def _raised(suite: ET.Element, one: StepSummary, *, red: bool) -> None:
    case = _case(suite, "step", f"{one.workflow}.{one.step}")
    lines = f"raised {raised_text(one)}", *(f"{n:,} × {kind}" for kind, n in one.errors.items())
    if red:
        ET.SubElement(case, "error", message=lines[0]).text = _clean("\n".join(lines))
    else:
        _add_output(case, *lines)


def _check(suite: ET.Element, one: CheckSummary) -> None:
    case = _case(suite, "check", f"{one.workflow}.{one.step}")
    done = one.passed + one.failed
    if one.failed:
        _add_output(
            case,
            f"{one.failed:,} of {done:,} failed ({share_text(one.failed, done)})",
            *(f"{count:,} × {reason}" for reason, count in one.reasons.items()),
        )
    elif not done:
        ET.SubElement(case, "skipped", message="the check was never reached")


def _trust(suite: ET.Element, summary: Summary, *, strict: bool) -> None:
    case = _case(suite, "trust", "the numbers are those of the target")
    if summary.trust.ok:
        return
    if strict:
        ET.SubElement(case, "failure", message=DOUBT).text = _clean("\n".join(summary.trust.reasons))
    else:
        _add_output(case, DOUBT, *summary.trust.reasons)


def _add_output(case: ET.Element, *lines: str) -> None:
    """Add the output of a case that has passed."""
    ET.SubElement(case, "system-out").text = _clean("\n".join(lines))


def _clean(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
