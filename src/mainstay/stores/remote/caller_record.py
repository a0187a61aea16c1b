"""What a manager remembers of one caller, all of it bounded: requests under way, wakes, and the ids of its calls."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from ...bus import MessageClass
from ...errors import Overloaded, ReplayRefused

#: a caller sends a call again, under the same id, for 5 s; more if messages are slow
RESEND_S = 30.0
#: how long the id of a call is remembered
ID_KEPT_S = 120.0
_IDS = 20_000
#: how often the same refusal of a caller is logged
_LOG_EVERY_S = 10.0
#: a caller that asks for nothing is forgotten
_IDLE_S = 300.0


class CallerRecord:
    """One caller."""

    def __init__(self) -> None:
        self.busy: Counter[MessageClass] = Counter()
        """requests under way, by class"""
        self.wakes: dict[str, None] = {}
        """the numbers of its wakes"""
        self.heard_s = 0.0
        self._ids: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """when a call with this id was first seen, and a hash of it"""
        self._logged: dict[str, float] = {}

    def check_replay(self, call_id: str, content: int, now_s: float) -> None:
        """Remember the id of a call that changes something. A caller whose answer was lost sends the same call again
        within seconds. The same id later, or with another content, is refused: it may have been recorded on the way."""
        ids = self._ids
        while ids and (len(ids) > _IDS or next(iter(ids.values()))[0] < now_s - ID_KEPT_S):
            ids.popitem(last=False)
        first = ids.setdefault(call_id, (now_s, content))
        if first[1] != content:
            raise ReplayRefused("its id belongs to another call")
        if now_s - first[0] > RESEND_S:
            raise ReplayRefused(f"the same call came {now_s - first[0]:.0f} s ago")

    def logs(self, reason: str, now_s: float) -> bool:
        """Whether a refusal is logged: each reason only now and then, as the caller decides how many there are."""
        if now_s - self._logged.get(reason, float("-inf")) < _LOG_EVERY_S:
            return False
        self._logged[reason] = now_s
        return True

    def is_idle(self, now_s: float) -> bool:
        """Whether it can be forgotten."""
        return now_s - self.heard_s > _IDLE_S and not self.wakes and not any(self.busy.values())


class CallerRecords:
    """The records of all callers."""

    def __init__(self, *, now_s: Callable[[], float], most: int = 20_000) -> None:
        self._now_s = now_s
        self._most = most
        self._records: OrderedDict[str, CallerRecord] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def of(self, caller: str) -> CallerRecord:
        """The record of a caller; raises `Overloaded` if there are too many others."""
        now_s = self._now_s()
        record = self._records.get(caller)
        if record is None:
            self._forget_idle(now_s)
            if len(self._records) >= self._most:
                raise Overloaded("too many callers use this manager", 5.0)
            record = self._records[caller] = CallerRecord()
        else:
            self._records.move_to_end(caller)
        record.heard_s = now_s
        return record

    def _forget_idle(self, now_s: float) -> None:
        for caller, record in list(self._records.items())[:100]:
            if record.is_idle(now_s):
                del self._records[caller]


__all__ = ["ID_KEPT_S", "RESEND_S", "CallerRecord", "CallerRecords"]
