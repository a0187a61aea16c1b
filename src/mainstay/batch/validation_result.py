"""The result of a validation: the states of the outputs, and the verdict on the batch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Literal

import msgspec

from ..outputs import ManifestGroup, OutputState, OutputStore, Unit, UnitFindings, Verify, output_path

Verdict = Literal["succeeded", "partial", "failed", "unknown"]

#: units checked at a time: a limit of memory
CHUNK = 10_000
#: defects listed with the verdict itself
FEW = 20


class OutputStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One expected output and its state."""

    group: int
    index: int
    """index of the unit in its group"""
    unit: str
    output: str
    path: str
    state: OutputState
    detail: str = ""


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check of all outputs of a batch."""

    at_ms: int
    attempt: int
    by: str
    verdict: Verdict
    """unknown: the storage did not answer"""
    expected: int
    present: int
    missing: int = 0
    corrupt: int = 0
    unreadable: int = 0
    units: int = 0
    """units with defects, with aggregations"""
    other_code: int = 0
    """intact units that other code made than the batch was submitted with, with aggregations"""
    first: tuple[OutputStatus, ...] = ()
    """the first defects"""
    listed: str = ""
    """prefix of the pages that list all defects, in the output store"""
    why: str = ""
    """reason of an unknown verdict"""

    @property
    def mixed(self) -> str:
        """A sentence if other code made some units; otherwise empty."""
        n = self.other_code
        if not n:
            return ""
        what = f"{n:,} units were" if n > 1 else "1 unit was"
        return f"{what} made by other code than the batch was submitted with"

    @property
    def summary(self) -> str:
        """The counts in words."""
        if self.verdict == "unknown":
            return f"{self.unreadable} of {self.expected} outputs could not be checked: {self.why}"
        parts = [f"{self.present} of {self.expected} outputs are present"]
        parts += [f"{n} {what}" for what, n in (("missing", self.missing), ("corrupt", self.corrupt)) if n]
        return ", ".join(parts)


def chunks(group: ManifestGroup, size: int = CHUNK) -> Iterator[tuple[int, list[Unit]]]:
    """The units of a group in chunks, each with the index of its first unit."""
    for start in range(0, len(group.pairs), size):
        chunk = msgspec.structs.replace(group, pairs=group.pairs[start : start + size])
        yield start, list(chunk.units())


async def findings_in(
    store: OutputStore, group: ManifestGroup, *, verify: Verify, fresh: bool = False
) -> AsyncIterator[tuple[int, UnitFindings]]:
    """Every unit of a group with its index, and the states of its outputs."""
    for start, units in chunks(group):
        for place, findings in enumerate(await store.look(units, group.outputs, verify=verify, fresh=fresh), start):
            yield place, findings


def output_statuses(group: int, index: int, findings: UnitFindings, files: Mapping[str, str]) -> Iterator[OutputStatus]:
    """The outputs of a unit. `index` is its place in the group."""
    for name, finding in findings.outputs.items():
        yield OutputStatus(
            group=group,
            index=index,
            unit=findings.unit.label,
            output=name,
            path=output_path(findings.unit, files[name]),
            state=finding.state,
            detail=finding.detail,
        )


class OutputTally:
    """Counts outputs by state, and collects defects in `page`, which the caller empties."""

    def __init__(self) -> None:
        self.states = {"present": 0, "missing": 0, "corrupt": 0, "unreadable": 0}
        self.first: list[OutputStatus] = []
        self.page: list[OutputStatus] = []
        self.units = 0
        self.other_code = 0
        self.why = ""

    def add(self, group: int, index: int, findings: UnitFindings, files: dict[str, str], source: str = "") -> None:
        """Add a unit. `source` is the digest of the expected code, if it is known."""
        if findings.whole:
            self.other_code += bool(source and findings.source and findings.source != source)
            self.states["present"] += len(findings.outputs)
            return
        self.units += 1
        for output in output_statuses(group, index, findings, files):
            self.states[output.state] += 1
            if output.state == "present":
                continue
            if output.state == "unreadable":
                self.why = self.why or output.detail
            self.page.append(output)
            if len(self.first) < FEW:
                self.first.append(output)

    def result(self, *, at_ms: int, attempt: int, by: str, expected: int) -> Validation:
        """The validation with these counts."""
        return Validation(
            at_ms=at_ms,
            attempt=attempt,
            by=by,
            verdict=self._verdict,
            expected=expected,
            units=self.units,
            other_code=self.other_code,
            first=tuple(self.first),
            listed="",
            why=self.why[:500],
            **self.states,
        )

    @property
    def _verdict(self) -> Verdict:
        if self.states["unreadable"]:
            return "unknown"
        if not self.units:
            return "succeeded"
        return "partial" if self.states["present"] else "failed"
