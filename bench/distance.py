"""The same rates with a server that is further away: a proxy adds two milliseconds to each round trip.

Measured of ourselves and of the fastest peers on the same server. The proxy runs in a process of its own, and what it
costs when it delays nothing is measured as well, of ourselves, who send the most through it.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import psycopg
import redis

from .environments import ROOT
from .peers.slots import Slots
from .queues import Rates, Seat, Sizes, Tell, drain, jobs_of, trouble

DELAY_MS = 2.0
FASTEST = 3
SINGLY = 400
SHARE = 1 / 3
"""Of the jobs of a near run: it takes longer."""
PINGS = 200


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of a round trip of the smallest request, as the middle of many."""

    direct: float
    proxied: float
    delayed: float


def distance(seats: list[Seat], marks: Slots, sizes: Sizes, tell: Tell) -> dict[str, Wire]:
    """Measure what is worth it; answers the round trips to each server."""
    wires: dict[str, Wire] = {}
    for server in ("redis", "postgresql"):
        chosen = _chosen([seat for seat in seats if seat.stand.system.server == server])
        if not chosen:
            continue
        wires[server] = _wire(chosen[0].stand.url)
        for turn in range(sizes.repeats):
            for seat in chosen:
                tell(f"{DELAY_MS:g} ms away: {seat.found.title}, run {turn + 1} of {sizes.repeats}")
                seat.found.far = seat.found.far or Rates()
                _measure(seat, seat.found.far, DELAY_MS, marks, sizes)
                if seat.is_ours:
                    seat.found.near = seat.found.near or Rates()
                    _measure(seat, seat.found.near, 0.0, marks, sizes)
    return wires


def _chosen(seats: list[Seat]) -> list[Seat]:
    """Ourselves and the fastest of the others; all of them if their rates were not measured."""
    peers = [seat for seat in seats if not seat.is_ours]
    if rated := [seat for seat in peers if seat.found.rates.done]:
        peers = sorted(rated, key=lambda seat: seat.found.rates.done or 0, reverse=True)[:FASTEST]
    return [*peers, *(seat for seat in seats if seat.is_ours)]


def _measure(seat: Seat, rates: Rates, delay_ms: float, marks: Slots, sizes: Sizes) -> None:
    n, near = jobs_of(seat.stand, sizes.share * SHARE), seat.stand
    with trouble(seat), slower(near.url, delay_ms) as url, contextlib.closing(near.over(url)) as stand:
        stand.ask("reset")
        few = min(n, SINGLY)
        rates.submit_one.append(few / stand.ask("singly", n=few))
        stand.ask("reset")
        if stand.ask("can", what="submit_many"):
            rates.submit_bulk.append(n / stand.ask("bulk", n=n))
        else:
            near.ask("singly", n=n)
        rates.one.append(drain(stand, marks, n, 1))


@contextlib.contextmanager
def slower(url: str, delay_ms: float) -> Iterator[str]:
    """The URL of the same server by way of a proxy that holds every answer back for so long."""
    command = [sys.executable, "-m", "servers.delayed", url, "--down", str(delay_ms / 1000)]
    proxy = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert proxy.stdout is not None
        yield proxy.stdout.readline().strip()
    finally:
        proxy.kill()
        proxy.communicate()


def _wire(url: str) -> Wire:
    with slower(url, 0.0) as proxied, slower(url, DELAY_MS) as delayed:
        return Wire(direct=round_trip_ms(url), proxied=round_trip_ms(proxied), delayed=round_trip_ms(delayed))


def round_trip_ms(url: str) -> float:
    """Of the smallest request that the server answers."""
    with contextlib.ExitStack() as up:
        ask: Callable[[], object]
        plain = url.partition("?")[0]
        if plain.startswith("redis"):
            ask = up.enter_context(redis.Redis.from_url(plain)).ping
        else:
            db = up.enter_context(psycopg.connect(plain, autocommit=True))

            def ask() -> object:
                return db.execute("SELECT 1")

        times = []
        for _ in range(PINGS):
            began = time.perf_counter()
            ask()
            times.append(time.perf_counter() - began)
    return round(statistics.median(times) * 1000, 3)
