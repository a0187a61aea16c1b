"""Whether what is in the store says what this process believes: all of it is read anew, and compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..memory import MemoryStore
from ..port import Violation
from .commit_queue import CommitQueue, Op
from .documents import Line as Document
from .follower import Follower
from .replica import Replica

_MOST_NAMED = 10
_MEETINGS = 50
#: how long a lead is good for is another number for each who reads it
_OWN = ("left_ms", "clock", "until_ms")


async def differences(line: CommitQueue, follower: Follower) -> list[Violation]:
    """Read the snapshot and the log from the beginning, and compare with the replica at the same number."""
    anew = follower.again()

    async def compare(_: MemoryStore) -> list[Violation] | None:
        if anew.replica.number != follower.replica.number:
            return None
        return list(_compared(follower.replica, anew.replica, follower.log.store.place))

    # others may commit at any time, so the two meet at the same number only now and then
    for _ in range(_MEETINGS):
        await anew.catch_up()
        if (found := await line.run(Op(compare, reads=True))) is not None:
            return found
    return []


def _compared(ours: Replica, theirs: Replica, place: str) -> Iterable[Violation]:
    here, there = _documents(ours), _documents(theirs)
    apart = sorted(here.keys() ^ there.keys(), key=repr)
    for frozen in apart[:_MOST_NAMED]:
        line = here.get(frozen) or there[frozen]
        what = f"{line['t']} {line.get('id') or line.get('job_id') or line.get('name')}"
        where = "is in the memory of this process and not in the log" if frozen in here else "is in the log only"
        yield Violation(
            code="registry_differs",
            message=f"{place}: a document ({what}) {where}; restart this process, and keep the log to investigate",
        )


def _documents(replica: Replica) -> dict[Any, Document]:
    return {_frozen(_comparable(line)): line for line in replica.lines()}


def _comparable(line: Document) -> Document:
    return {name: value for name, value in line.items() if line["t"] != "lead" or name not in _OWN}


def _frozen(value: Any) -> Any:
    """Values and not their text: 4 and 4.0 are the same."""
    if isinstance(value, dict):
        return tuple((name, _frozen(value[name])) for name in sorted(value))
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
