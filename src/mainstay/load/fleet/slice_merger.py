"""Merges the windows of several slices, bucket by bucket, each part once.

A bucket is passed on when every slice that is at work has sent its part, or after a short hold. A part that comes later
is counted in the next window that is passed on: sums stay exact, and no bucket is passed on twice. A part may have
several buckets: it counts as one of the last, and what is passed on then covers all buckets since the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ..stats.model import Window
from ..stats.tally import merge_windows


class SliceMerger:
    """Takes the windows of slices, in any order. `now` is the steady clock of the leader."""

    def __init__(
        self, slices: int, on_window: Callable[[Window], None], *, hold_s: float, now: Callable[[], float]
    ) -> None:
        self._on_window = on_window
        self._hold_s = hold_s
        self._now = now
        self._at_work: set[int] = set()
        self._parts: dict[int, dict[int, Window]] = {}
        """by bucket, the last one of a part, and by slice"""
        self._arrived_s: dict[int, float] = {}
        """by bucket: its first part"""
        self._late: list[Window] = []
        self._passed = -1
        self._draining = False
        self._holding = False
        self.late = [0] * slices
        """by slice: how many of its windows were late"""

    def open(self, slices: Iterable[int], *, holding: bool = False) -> None:
        """Expect windows of these slices. `holding`: pass on nothing before `begin_with`."""
        self._at_work = set(slices)
        self._passed = -1
        self._draining = False
        self._holding = holding

    def join(self, slice_number: int) -> None:
        """Expect windows of one more slice."""
        self._at_work.add(slice_number)

    def begin_with(self, total: Window | None) -> None:
        """Pass on the sum of all windows that were taken before, and then those that were held."""
        self._holding = False
        if total is not None:
            self._passed = total.bucket + total.width - 1
            for bucket in [bucket for bucket in self._parts if bucket <= self._passed]:
                del self._arrived_s[bucket]
                for number, part in self._parts.pop(bucket).items():
                    self._be_late(number, part)
            self._on_window(replace(total, process=-1, draining=False, adopted=True))
        self.tick()

    def take_late(self, slice_number: int) -> int:
        """How many windows of a slice were late since this was asked last."""
        late, self.late[slice_number] = self.late[slice_number], 0
        return late

    def add(self, slice_number: int, window: Window) -> None:
        """Take a window, or a part of one; the caller has dropped repeated ones."""
        # the sum takes the users of a process at its last window: here, a slice is one process
        part = replace(window, process=slice_number)
        last = part.bucket + part.width - 1
        if last <= self._passed:
            self._be_late(slice_number, part)
        else:
            self._arrived_s.setdefault(last, self._now())
            parts = self._parts.setdefault(last, {})
            # a large window comes divided
            known = parts.get(slice_number)
            parts[slice_number] = part if known is None else merge_windows([known, part])
        self.tick()

    def _be_late(self, slice_number: int, part: Window) -> None:
        self.late[slice_number] += 1
        self._late.append(part)

    def close(self, slice_number: int) -> None:
        """The slice sends no more windows."""
        self._at_work.discard(slice_number)
        self.tick()
        if not self._at_work and self._late and not self._holding:
            # nothing follows that could take them
            self._pass_on(self._passed + 1, [])

    @property
    def left_s(self) -> float:
        """In how long a bucket may have been held for long enough."""
        if self._holding or not self._parts:
            return self._hold_s
        return self._arrived_s[min(self._parts)] + self._hold_s - self._now()

    def tick(self) -> None:
        """Pass on what is complete, or was held for long enough."""
        if self._holding:
            return
        for bucket in sorted(self._parts):
            # the newest one is kept: late parts may still be counted in it
            whole = self._at_work <= self._parts[bucket].keys() and (len(self._parts) > 1 or not self._at_work)
            if not whole and self._now() - self._arrived_s[bucket] < self._hold_s:
                return
            del self._arrived_s[bucket]
            self._pass_on(bucket, list(self._parts.pop(bucket).values()))

    def _pass_on(self, bucket: int, parts: list[Window]) -> None:
        late, self._late = self._late, []
        # their users were at work earlier
        first = max(self._passed + 1, min((one.bucket for one in parts), default=bucket))
        parts += [replace(one, bucket=bucket, width=1, users=0, draining=False) for one in late]
        whole = merge_windows(parts)
        self._draining = self._draining or whole.draining
        self._passed = bucket
        width = bucket - first + 1
        self._on_window(replace(whole, bucket=first, width=width, process=-1, draining=self._draining))
