"""What several actors did to one store at the same time, and whether it can have been right.

Every actor notes each call with the time before and after it, on the clock all processes of a machine share. Between
the answer to a claim and the call that ends it, the job was surely held; what is sure at two places at once is wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One job's part in one call."""

    began: float
    ended: float
    actor: str
    what: Literal["insert", "claim", "complete", "again", "release", "reap"]
    """`again` is the same completion sent a second time, as if its answer had been lost"""
    job: str
    token: int
    outcome: str
    key: str | None = None
    """its concurrency key"""


class Ended(msgspec.Struct, frozen=True):
    """How a job stands at the end."""

    job: str
    status: str
    token: int
    completions: int
    """events that say it succeeded"""


History = list[Entry]


def write(path: Path, history: History) -> None:
    path.write_bytes(msgspec.json.encode(history))


def read(path: Path) -> History:
    return msgspec.json.decode(path.read_bytes(), type=History)


def wrongs(history: Iterable[Entry], ended: Iterable[Ended], limits: dict[str, int]) -> list[str]:
    """Everything that cannot be right about a history, in words."""
    entries = sorted(history, key=lambda entry: entry.ended)
    by_job: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_job[entry.job].append(entry)
    last = {row.job: row for row in ended}
    found = []
    for job, story in by_job.items():
        found += [f"job {job}: {wrong}" for wrong in _of_one_job(story, last.pop(job, None))]
    found += [f"job {job}: nobody was told of it" for job in last]
    for key, most in limits.items():
        peak = _peak([entry for entry in entries if entry.key == key])
        if peak > most:
            found.append(f"key {key}: {peak} jobs were held at once, at most {most} may be")
    return found


def _of_one_job(story: list[Entry], last: Ended | None) -> list[str]:
    if last is None:
        return ["it was inserted, and is lost"]
    found = []
    if sum(entry.what == "insert" and entry.outcome == "created" for entry in story) != 1:
        found.append("it was not created exactly once")
    claims = {entry.token: entry for entry in story if entry.what == "claim"}
    twice = [token for token, n in Counter(e.token for e in story if e.what == "claim").items() if n > 1]
    found += [f"token {token} was given out twice" for token in twice]
    if sorted(claims) != list(range(1, len(claims) + 1)):
        found.append(f"its tokens are {sorted(claims)}")
    ends = {entry.token: entry for entry in story if _ends(entry)}
    for token, claim in claims.items():
        before = ends.get(token - 1)
        if token > 1 and (before is None or claim.ended < before.began):
            found.append(f"it was claimed under token {token} while it was held under {token - 1}")
    settled = [entry for entry in story if entry.what in ("complete", "again") and entry.outcome == "applied"]
    if len(settled) != 1 or last.completions != 1 or last.status != "succeeded":
        found.append(f"it was completed {len(settled)} times by the answers, {last.completions} by the events")
    if any(entry.token != max(claims, default=0) for entry in settled) or last.token != max(claims, default=0):
        found.append("it was completed under an old token")
    for entry in story:
        if entry.what == "again" and entry.outcome != "already_applied":
            found.append(f"a completion sent again was answered {entry.outcome}")
        if entry.what == "complete" and entry.outcome == "stale" and entry.token not in ends:
            found.append(f"token {entry.token} was refused as stale, but nobody took it away")
        if entry.what == "complete" and entry.outcome not in ("applied", "stale"):
            found.append(f"a completion was answered {entry.outcome}")
    return found


def _ends(entry: Entry) -> bool:
    return entry.what in ("complete", "release", "reap") and entry.outcome == "applied"


def _peak(entries: list[Entry]) -> int:
    """The most jobs that were surely held at one moment."""
    ends = {(entry.job, entry.token): entry.began for entry in entries if _ends(entry)}
    steps = []
    for entry in entries:
        if entry.what == "claim":
            until = ends.get((entry.job, entry.token), float("inf"))
            if until > entry.ended:
                steps += [(entry.ended, 1), (until, -1)]
    held = peak = 0
    for _, step in sorted(steps):
        held += step
        peak = max(peak, held)
    return peak
