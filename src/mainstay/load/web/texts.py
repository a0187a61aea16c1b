"""Masks the texts in the summary of a load test.

A summary is the result of its job. Its numbers are shown. Its texts (messages of errors and checks, values of tags) are
masked like those of any job, and left out if payloads are not shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...model import Job
from ...stores import JobStore
from ...web.api import MASK, Masker, TextMask, text_mask_of

_RAISED = re.compile(r"(\(on_start raised ).*(\):)", re.DOTALL)
#: the loss of a slice, which may end with lines that its steps printed
_LOST = re.compile(r"(\bslice \d+ \([^)]*\)[^:]*: ).*", re.DOTALL)

if TYPE_CHECKING:
    from ..stats.model import Header, Moment, StepStats, StepSummary, Summary, Trust, WorkflowResult

_Step = TypeVar("_Step", "StepSummary", "StepStats")


async def texts_of(store: JobStore, job: Job, masker: Masker) -> SummaryTexts:
    """Masks the summary of this job."""
    return SummaryTexts(masker, await text_mask_of(store, job, masker))


class SummaryTexts:
    """Masks the texts of one summary."""

    def __init__(self, masker: Masker, text_mask: TextMask) -> None:
        self._masker = masker
        self._text_mask = text_mask

    def shown(self, summary: Summary) -> Summary:
        """The summary with its texts masked."""
        replace = msgspec.structs.replace
        reason, colon, why = summary.ended.partition(":")
        return replace(
            summary,
            header=self.header(summary.header),
            ended=f"{reason}{colon} {self._text(why.strip())}" if colon else summary.ended,
            errors=self._counted(summary.errors),
            examples=self._examples(summary.examples),
            steps=[self._step(one) for one in summary.steps],
            by_tag=[
                replace(one, value=self._tags({one.tag: one.value})[one.tag], errors=self._counted(one.errors))
                for one in summary.by_tag
            ],
            checks=[replace(one, reasons=self._reasons(one.reasons)) for one in summary.checks],
            metrics=[replace(one, tags=self._tags(one.tags)) for one in summary.metrics],
            skipped={name: self._text(why) for name, why in summary.skipped.items()},
            outputs=[replace(one, error=self._text(one.error) if one.error else "") for one in summary.outputs],
            slices=[replace(one, loss=self._text(one.loss)) if one.loss else one for one in summary.slices],
            trust=self._trust(summary.trust),
            stream=summary.stream if self._masker.shows else "",
        )

    def header(self, header: Header) -> Header:
        """The facts of a run."""
        workflows = [self._workflow(each) for each in header.workflows]
        return msgspec.structs.replace(header, tags=self._tags(header.tags), workflows=workflows)

    def moment(self, moment: Moment) -> Moment:
        """A window, and the state of the run."""
        replace, window = msgspec.structs.replace, moment.window
        shown = replace(
            window,
            steps=[self._step(one) for one in window.steps],
            checks=[replace(one, reasons=self._reasons(one.reasons)) for one in window.checks],
            metrics=[replace(one, tags=self._tags(one.tags)) for one in window.metrics],
            examples=self._examples(window.examples),
        )
        return replace(moment, window=shown, trust=self._trust(moment.trust))

    def result(self, result: WorkflowResult) -> WorkflowResult:
        """The result of a workflow."""
        error = self._text(result.error) if result.error else ""
        return msgspec.structs.replace(result, error=error, steps=[self._step(one) for one in result.steps])

    def lines(self, lines: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
        """What steps have printed."""
        return [(process, self._text(line)) for process, line in lines]

    def _step(self, step: _Step) -> _Step:
        """A step of a summary, or of a window."""
        errors, examples = self._counted(step.errors), self._examples(step.examples)
        return msgspec.structs.replace(step, errors=errors, examples=examples)

    def _trust(self, trust: Trust) -> Trust:
        return msgspec.structs.replace(trust, reasons=[self._doubt(reason) for reason in trust.reasons])

    def _text(self, text: str) -> str:
        return self._text_mask.text(text) if self._masker.shows else MASK

    def _doubt(self, reason: str) -> str:
        """Why a result is not trustworthy: our own words and numbers, the exception of an on_start, and why a slice was
        lost."""
        if self._masker.shows:
            return self._text_mask.text(reason)
        return _LOST.sub(rf"\g<1>{MASK}", _RAISED.sub(rf"\g<1>{MASK}\g<2>", reason))

    def _kind(self, kind: str) -> str:
        """The kind of an error, which is its type."""
        return self._text_mask.text(kind) if self._masker.shows else kind

    def _examples(self, examples: Mapping[str, str]) -> dict[str, str]:
        return {self._kind(kind): self._text(example) for kind, example in examples.items()}

    def _counted(self, errors: Mapping[str, int]) -> dict[str, int]:
        return _summed((self._kind(kind), n) for kind, n in errors.items())

    def _reasons(self, reasons: Mapping[str, int]) -> dict[str, int]:
        return _summed((self._text(reason), n) for reason, n in reasons.items())

    def _tags(self, tags: Mapping[str, str]) -> dict[str, str]:
        if not self._masker.shows:
            return dict.fromkeys(tags, MASK)
        masked: dict[str, str] = self._masker.mask(dict(tags))
        return {name: self._text_mask.text(value) for name, value in masked.items()}

    def _workflow(self, workflow: dict[str, Any]) -> dict[str, Any]:
        """A workflow in the header, and its steps, which have tags."""
        masked: dict[str, Any] = self._masker.mask(workflow)
        for one in (masked, *(step for step in masked.get("steps", ()) if isinstance(step, dict))):
            if isinstance(one.get("tags"), dict):
                one["tags"] = self._tags(one["tags"])
        return masked


def _summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for text, n in pairs:
        sums[text] += n
    return dict(sums)
