"""Finding a server of the bus among dead seeds: a stub DNS and stub servers, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import pytest

from mainstay.bus.seeds import JoinSettings, SeedEndpoint, SeedFinder, waits
from mainstay.bus.servers import Seed, parse_servers
from mainstay.errors import InvalidInput
from mainstay.testing import run_virtual

T = TypeVar("T")


class StubNetwork:
    """Names and servers. An address that is not listed never answers, and neither does a name."""

    def __init__(self, names: Mapping[str, Sequence[str] | OSError] = {}, live: Mapping[str, float] = {}) -> None:
        self.names = dict(names)
        self.live = dict(live)
        """by address: after how many seconds a server answers"""
        self.refusing: list[str] = []
        self.lookups: list[str] = []
        self.probing = 0
        self.most_probing = 0

    async def addresses(self, host: str) -> Sequence[str]:
        self.lookups.append(host)
        found = self.names.get(host)
        if found is None:
            await asyncio.Event().wait()
        if isinstance(found, OSError):
            raise found
        assert found is not None
        return found

    async def probe(self, endpoint: SeedEndpoint) -> None:
        self.probing += 1
        self.most_probing = max(self.most_probing, self.probing)
        try:
            if endpoint.address in self.refusing:
                raise ConnectionRefusedError
            if endpoint.address not in self.live:
                await asyncio.Event().wait()
            await asyncio.sleep(self.live[endpoint.address])
        finally:
            self.probing -= 1


def finder_of(network: StubNetwork, *hosts: str) -> SeedFinder:
    return SeedFinder([Seed(host, 4222) for host in hosts], network=network, rng=random.Random(1))


async def first(finder: SeedFinder) -> str | None:
    """The address of the first server that answers."""
    async with contextlib.aclosing(finder.live()) as live:
        async for endpoint in live:
            return endpoint.address
    return None


def timed(work: Callable[[], Awaitable[T]]) -> tuple[T, float]:
    """The result in virtual time, and how long it took."""

    async def run() -> tuple[T, float]:
        begun_s = asyncio.get_running_loop().time()
        return await work(), asyncio.get_running_loop().time() - begun_s

    return run_virtual(run())


def test_one_live_seed_among_dead_ones_is_found_within_a_second() -> None:
    dead = [f"10.0.0.{number}" for number in range(1, 16)]
    network = StubNetwork(live={"10.0.0.99": 0.002})
    found, took_s = timed(lambda: first(finder_of(network, *dead, "10.0.0.99")))
    assert (found, took_s < 1.0) == ("10.0.0.99", True)


def test_at_most_ten_seeds_are_probed_at_once() -> None:
    network = StubNetwork()
    found, took_s = timed(lambda: first(finder_of(network, *[f"10.0.0.{number}" for number in range(1, 31)])))
    assert found is None
    assert network.most_probing == 10
    assert took_s == pytest.approx(1.5)


def test_a_name_that_the_dns_never_answers_delays_no_other_seed() -> None:
    network = StubNetwork(live={"10.0.0.1": 0.002})
    found, took_s = timed(lambda: first(finder_of(network, "slow.internal", "10.0.0.1")))
    assert (found, took_s < 0.1) == ("10.0.0.1", True)


def test_a_name_is_given_up_after_two_seconds() -> None:
    finder = finder_of(StubNetwork(), "slow.internal")
    found, took_s = timed(lambda: first(finder))
    assert (found, took_s) == (None, pytest.approx(2.0))
    assert finder.failed == {"slow.internal:4222": "the DNS did not answer within 2s"}


def test_a_name_stands_for_all_of_its_addresses() -> None:
    network = StubNetwork({"bus.internal": ["10.0.0.1", "10.0.0.2", "::1"]}, live={"::1": 0.01})
    finder = finder_of(network, "bus.internal")
    assert timed(lambda: first(finder))[0] == "::1"
    assert [each.address for each in finder.endpoints()] == ["10.0.0.1", "10.0.0.2", "::1"]


def test_every_failed_seed_is_named_with_its_reason() -> None:
    network = StubNetwork({"gone.internal": OSError(-2, "Name or service not known"), "bus.internal": ["10.0.0.2"]})
    network.refusing = ["10.0.0.2"]
    finder = finder_of(network, "gone.internal", "bus.internal", "10.0.0.3")
    assert timed(lambda: first(finder))[0] is None
    assert finder.failed == {
        "gone.internal:4222": "the name cannot be looked up (Name or service not known)",
        "bus.internal:4222 (10.0.0.2)": "nothing listens there",
        "10.0.0.3:4222": "no answer within 500ms",
    }


@pytest.mark.parametrize("answer", [["10.0.0.2"], OSError(-2, "unknown"), []], ids=["found", "unknown", "empty"])
def test_what_a_name_resolves_to_is_remembered_for_30_s_also_a_failure(answer: Sequence[str] | OSError) -> None:
    network = StubNetwork({"bus.internal": answer})

    async def look() -> list[int]:
        finder = finder_of(network, "bus.internal")
        lookups: list[int] = []
        for pause_s in (0, 20, 11):
            await asyncio.sleep(pause_s)
            await first(finder)
            lookups.append(len(network.lookups))
        return lookups

    assert timed(look)[0] == [1, 1, 2]


def test_a_dns_that_went_away_does_not_take_the_known_addresses_away() -> None:
    network = StubNetwork({"bus.internal": ["10.0.0.2"]}, live={"10.0.0.2": 0.01})

    async def look() -> list[str | None]:
        finder = finder_of(network, "bus.internal")
        before = await first(finder)
        del network.names["bus.internal"]
        await asyncio.sleep(60)
        return [before, await first(finder)]

    assert timed(look)[0] == ["10.0.0.2", "10.0.0.2"]


def test_no_probe_is_left_after_a_server_was_found() -> None:
    network = StubNetwork(live={"10.0.0.9": 0.01})

    async def look() -> int:
        await first(finder_of(network, "10.0.0.1", "10.0.0.2", "10.0.0.9"))
        return network.probing

    assert timed(look)[0] == 0


def test_the_waits_double_up_to_15_s_with_a_quarter_of_jitter() -> None:
    plain = [0.5, 1, 2, 4, 8, 15, 15, 15]
    drawn = list(itertools.islice(waits(JoinSettings(), random.Random(1)), len(plain)))
    assert all(wait <= each <= wait * 1.25 for wait, each in zip(plain, drawn, strict=True))
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("nats://127.0.0.1:4222,10.0.0.1:4222/shop", "10.0.0.1 is another machine, so TLS is required"),
        ("nats://bus.internal/shop", "bus.internal is another machine"),
        ("nats://localhost:nowhere/shop", "not a server"),
        ("nats://localhost:70000/shop", "not a server"),
        ("nats://localhost,,127.0.0.1", "not a server"),
        ("http://localhost:4222", "not the URL of a bus"),
        ("localhost:4222", "not the URL of a bus"),
        ("tls+srv://_nats._tcp.bus.internal/shop", "A or AAAA records"),
    ],
)
def test_a_url_that_is_no_bus_or_leaves_this_machine_without_tls_is_refused(url: str, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        parse_servers(url)


def test_a_url_names_several_servers_of_which_one_is_used_once() -> None:
    found = parse_servers("tls://a:4222,[::2]:5000,b,a:4222/shop?x=1")
    assert found.url == "tls://a:4222,[::2]:5000,b:4222"
    assert [(seed.host, seed.port) for seed in found.seeds] == [("a", 4222), ("::2", 5000), ("b", 4222)]


def test_the_search_is_set_by_variables() -> None:
    found = JoinSettings.from_env({"MAINSTAY_CLUSTER_JOIN_DNS": "1s", "MAINSTAY_CLUSTER_JOIN_PROBES": "4"})
    assert (found.dns_s, found.probes, found.probe_s) == (1.0, 4, 0.5)
    for variable, value in (("PROBES", "0"), ("PROBES", "many"), ("PROBE", "1"), ("COMMAND", "0s")):
        with pytest.raises(InvalidInput):
            JoinSettings.from_env({f"MAINSTAY_CLUSTER_JOIN_{variable}": value})
