"""What is there of a batch's outputs, and what that makes of the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Literal

import msgspec

from ..outputs import ManifestGroup, OutputStore, Unit, output_path
from ..outputs.lookup import State, UnitFindings, Verify

Verdict = Literal["succeeded", "partial", "failed", "unknown"]

#: units looked at in one go: what is held in memory at a time
CHUNK = 10_000
#: of what is lacking, so many are told with the verdict itself
FEW = 20


class OutputDefect(msgspec.Struct, frozen=True, kw_only=True):
    """One expected output that is not there, or is not what was published."""

    group: int
    index: int
    """the unit's place in the group"""
    unit: str
    output: str
    path: str
    state: State
    detail: str = ""


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at all outputs of a batch came to."""

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
    """units that lack something, aggregations included"""
    other_code: int = 0
    """units that are whole and were made by other code than the batch was submitted with, aggregations included"""
    first: tuple[OutputDefect, ...] = ()
    """the first few of what is lacking"""
    listed: str = ""
    """where all of it is listed, in the store of the outputs: how the names of its pages begin"""
    why: str = ""
    """of an unknown verdict"""

    @property
    def mixed(self) -> str:
        """That some of it was made by other code, in words; empty if nothing was."""
        n = self.other_code
        if not n:
            return ""
        what = f"{n:,} units were" if n > 1 else "1 unit was"
        return f"{what} made by other code than the batch was submitted with"

    @property
    def told(self) -> str:
        """In a few words."""
        if self.verdict == "unknown":
            return f"{self.unreadable} of {self.expected} outputs could not be looked at: {self.why}"
        parts = [f"{self.present} of {self.expected} outputs are there"]
        parts += [f"{n} {what}" for what, n in (("missing", self.missing), ("corrupt", self.corrupt)) if n]
        return ", ".join(parts)


def chunks(group: ManifestGroup, size: int = CHUNK) -> Iterator[tuple[int, list[Unit]]]:
    """The units of a group in pieces, each with the place of its first."""
    for start in range(0, len(group.pairs), size):
        some = msgspec.structs.replace(group, pairs=group.pairs[start : start + size])
        yield start, list(some.units())


async def seen_in(
    store: OutputStore, group: ManifestGroup, *, verify: Verify, fresh: bool = False
) -> AsyncIterator[tuple[int, UnitFindings]]:
    """Every unit of a group, by its place, and what is there of it."""
    for start, units in chunks(group):
        for place, seen in enumerate(await store.look(units, group.outputs, verify=verify, fresh=fresh), start):
            yield place, seen


class OutputTally:
    """Counts what is there. What is not is kept for a page at a time: whoever tallies takes it from `page`."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.first: list[OutputDefect] = []
        self.page: list[OutputDefect] = []
        self.units = 0
        self.other_code = 0
        self.why = ""

    def add(self, group: int, index: int, seen: UnitFindings, files: dict[str, str], source: str = "") -> None:
        """What was seen of a unit. `source`: of the code that it was to be made by, if that is known."""
        if seen.whole:
            self.other_code += bool(source and seen.source and seen.source != source)
            self.states["present"] += len(seen.outputs)
            return
        self.units += 1
        for name, finding in seen.outputs.items():
            self.states[finding.state] += 1
            if finding.state == "present":
                continue
            if finding.state == "unreadable":
                self.why = self.why or finding.detail
            lacking = OutputDefect(
                group=group,
                index=index,
                unit=seen.unit.label,
                output=name,
                path=output_path(seen.unit, files[name]),
                state=finding.state,
                detail=finding.detail,
            )
            self.page.append(lacking)
            if len(self.first) < FEW:
                self.first.append(lacking)

    @property
    def verdict(self) -> Verdict:
        if self.states["unreadable"]:
            return "unknown"
        if not self.units:
            return "succeeded"
        return "partial" if self.states["present"] else "failed"
