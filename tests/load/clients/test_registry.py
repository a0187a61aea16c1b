"""Protocols are found by name: ours, those of packages, and those of a load test's own file."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from mainstay.errors import InvalidInput
from mainstay.load.clients import registry
from mainstay.load.clients.all import Clients
from mainstay.load.clients.network import Network
from mainstay.load.results import CustomResult


class PigeonClient:
    """A protocol that somebody else might bring."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.closed = False

    async def send(self, message: str) -> CustomResult:
        self._network.sent += 1
        self._network.answered += 1
        return CustomResult(started=0.0, ended=1.0, status=f"carried {message}")

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    registry._registered.clear()


def test_ours_are_also_entry_points_of_the_package() -> None:
    declared = tomllib.loads(Path("pyproject.toml").read_text())
    assert declared["project"]["entry-points"][registry.GROUP] == registry._OURS


@pytest.mark.parametrize("name", sorted(registry._OURS))
async def test_each_of_ours_makes_a_session_that_closes(name: str) -> None:
    session = registry.factory(name)(Network())
    await session.close()


async def test_a_protocol_of_ones_own_works_without_a_change_here() -> None:
    registry.register("pigeon", PigeonClient)
    network = Network()
    clients = Clients(network)
    pigeon = clients.pigeon
    assert (await pigeon.send("hello")).status == "carried hello"
    assert clients.pigeon is pigeon
    assert (network.sent, network.answered) == (1, 1)
    await clients.close()
    assert pigeon.closed
    assert "pigeon" in registry.protocols()


async def test_a_protocol_of_a_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "pigeons-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeons\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[mainstay.load.clients]\ncarrier = pigeons:PigeonClient\n")
    (tmp_path / "pigeons.py").write_text(
        "class PigeonClient:\n"
        "    def __init__(self, network):\n"
        "        self.network = network\n"
        "    async def close(self):\n"
        "        pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [entry.name for entry in entry_points(group=registry.GROUP, name="carrier")] == ["carrier"]
    network = Network()
    clients = Clients(network)
    assert clients.carrier.network is network
    await clients.close()


def test_an_unknown_protocol_is_refused_with_the_closest_one() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'websocket'"):
        registry.factory("websockets")
    with pytest.raises(InvalidInput, match="known protocols: http, http2"):
        registry.factory("smoke_signals")


@pytest.mark.parametrize("name", ["two words", "_hidden", "close", "http"])
def test_a_name_that_cannot_be_written_or_is_taken_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        registry.register(name, PigeonClient)


@pytest.mark.parametrize(("name", "package"), [("http", "httptools"), ("http2", "hpack"), ("websocket", "websockets")])
def test_without_the_extra_the_error_names_it(name: str, package: str) -> None:
    program = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from mainstay.errors import MissingExtra\n"
        "from mainstay.load.clients.registry import factory\n"
        "try:\n"
        f"    factory({name!r})\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert package in done.stdout
    assert "mainstay[load]" in done.stdout
