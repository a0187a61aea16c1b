"""What goes wrong in a run, drawn before it begins: data that can be printed, replayed and shortened."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import msgspec

FaultKind = Literal["crash", "freeze", "lost_calls", "lost_answers", "slow", "stuck", "paused", "cut", "outage"]
#: what happens to a bus beside that: a host hears nothing, is not heard, is not heard by one other, loses its
#: connection; some hosts are cut off from the others; messages get lost, come twice and overtake each other; the bus
#: is away for all; a client floods it with reads, or a node with windows
BusFaultKind = Literal["deaf", "mute", "one_way", "unplugged", "split", "lossy", "bus_outage", "flood"]
#: what happens to a load run beside that: a generator is killed, or an engine with all of them; the manager that leads
#: a run loses its power at any moment, or when the run goes
LoadFaultKind = Literal["generator", "engine", "leader", "at_go"]

#: how often each kind is drawn, beside the others
_WEIGHTS: dict[FaultKind, int] = {
    "crash": 4,
    "freeze": 3,
    "lost_calls": 2,
    "lost_answers": 3,
    "slow": 2,
    "stuck": 1,
    "paused": 4,
    "cut": 2,
    "outage": 1,
}
#: the longest of each kind, in seconds: some are longer than a lease (8 s), some shorter
_LONGEST_S: dict[FaultKind, float] = {
    "crash": 20.0,
    "freeze": 30.0,
    "lost_calls": 15.0,
    "lost_answers": 15.0,
    "slow": 20.0,
    "stuck": 20.0,
    "paused": 35.0,
    "cut": 25.0,
    "outage": 12.0,
}


class Fault(msgspec.Struct, frozen=True):
    """One fault: what, where, from when, for how long. A crashed host is replaced by a new one at the end."""

    kind: FaultKind | BusFaultKind | LoadFaultKind
    host: str
    """the host whose connection or process it is; empty for an outage, which all hosts notice, and for the leader of a
    run; two hosts, as in "n1>m1", for a way from one to the other; some, as in "m1+n2", that are cut off from the
    others"""
    at_s: float
    for_s: float

    def __str__(self) -> str:
        where = f" {self.host}" if self.host else ""
        return f"{self.at_s:7.2f}s {self.kind}{where} for {self.for_s:.2f}s"


def draw_faults(rng: random.Random, hosts: Sequence[str], *, count: int, until_s: float) -> list[Fault]:
    """As many faults, all over before `until_s`, in the order in which they begin.

    >>> [str(fault) for fault in draw_faults(random.Random(1), ["w1", "w2"], count=2, until_s=60)]
    ['  21.03s crash w2 for 15.46s', '  32.77s crash w2 for 17.10s']
    """
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    faults = []
    for _ in range(count):
        (kind,) = rng.choices(kinds, weights)
        for_s = round(rng.uniform(0.05, 1) * _LONGEST_S[kind], 2)
        at_s = round(rng.uniform(0, until_s - for_s), 2)
        faults.append(Fault(kind, "" if kind == "outage" else rng.choice(list(hosts)), at_s, for_s))
    return sorted(faults, key=lambda fault: (fault.at_s, fault.host, fault.kind))
