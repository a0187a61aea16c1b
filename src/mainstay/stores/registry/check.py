"""The check of a replica: reads the whole log again and compares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..port import Violation
from .commit_queue import CommitQueue
from .documents import Line as Document
from .follower import Follower
from .replica import Replica

_MOST_NAMED = 10
_MOST_TRIES = 50
#: fields of a lead that differ for each reader
_OWN = ("left_ms", "clock", "until_ms")


async def differences(commits: CommitQueue, follower: Follower) -> list[Violation]:
    """Read the snapshot and the log from the beginning, and compare with the replica at the same number."""
    second = follower.second()

    def compare(replica: Replica) -> list[Violation] | None:
        if second.replica.number != replica.number:
            return None
        return list(_compared(replica, second.replica, follower.log.store.place))

    # other processes may commit at any time, so the two do not always have the same number
    for _ in range(_MOST_TRIES):
        await second.catch_up()
        if (violations := await commits.at_tip(compare)) is not None:
            return violations
    return []


def _compared(ours: Replica, theirs: Replica, place: str) -> Iterable[Violation]:
    in_memory, in_log = _documents(ours), _documents(theirs)
    different = sorted(in_memory.keys() ^ in_log.keys(), key=repr)
    for frozen in different[:_MOST_NAMED]:
        line = in_memory.get(frozen) or in_log[frozen]
        what = f"{line['t']} {line.get('id') or line.get('job_id') or line.get('name')}"
        where = "is in the memory of this process but not in the log" if frozen in in_memory else "is only in the log"
        yield Violation(
            code="registry_differs",
            message=f"{place}: a document ({what}) {where}; restart this process, and keep the log to investigate",
        )


def _documents(replica: Replica) -> dict[Any, Document]:
    return {_frozen(_comparable(line)): line for line in replica.lines()}


def _comparable(line: Document) -> Document:
    return {name: value for name, value in line.items() if line["t"] != "lead" or name not in _OWN}


def _frozen(value: Any) -> Any:
    """A hashable form that compares values, not their text: 4 and 4.0 are equal."""
    if isinstance(value, dict):
        return tuple((name, _frozen(value[name])) for name in sorted(value))
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
