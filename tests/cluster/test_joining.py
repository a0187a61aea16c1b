"""What a program is told before it joins: about its URL, its certificate, the bus and the queues of nodes."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from mainstay.bus.nats import BusEngine
from mainstay.cluster.address import Role, parse_address
from mainstay.cluster.certs import (
    CertificateFiles,
    identities,
    issue,
    make_authority,
    node_queues,
    retire_authority,
    write_server_config,
)
from mainstay.cluster.cluster_settings import ClusterSettings, misspelled
from mainstay.cluster.engine_check import check_joined, findings
from mainstay.cluster.node_queues import LOOK_S, NodeQueues, certs_folder
from mainstay.cluster.own_certificate import expiry_warning
from mainstay.errors import BusError, InvalidInput
from mainstay.stores import open_store
from mainstay.testing import VirtualClock

SERVERS = "bus-0:4222,bus-1:4222"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_authority(tmp_path, cluster="shop", environment="staging")
    return tmp_path


def url_of(files: CertificateFiles, path: str = "", **more: str) -> str:
    options = {"ca": files.ca, "cert": files.cert, "key": files.key, **more}
    return f"tls://{SERVERS}{path}?" + "&".join(f"{name}={value}" for name, value in options.items())


# the address ------------------------------------------------------------------------------------------------


def test_cluster_environment_and_name_come_from_the_certificate(folder: Path) -> None:
    address = parse_address(url_of(issue(folder, "node", "n1", queues=["mail"])))
    assert (address.cluster, address.environment, address.name("node")) == ("shop", "staging", "n1")
    assert address.identity is not None
    assert address.identity.queues == ("mail",)
    assert address.shown == f"tls://{SERVERS}/shop"
    assert parse_address(address.url) == address


def test_a_url_that_names_another_cluster_or_environment_than_its_certificate_is_refused(folder: Path) -> None:
    files = issue(folder, "node", "n1")
    with pytest.raises(InvalidInput, match="names the cluster 'other', and the certificate .* is of 'shop'"):
        parse_address(url_of(files, "/other"))
    with pytest.raises(InvalidInput, match="names the environment 'production', and .* is of 'staging'"):
        parse_address(url_of(files, environment="production"))


def test_the_store_behind_the_managers_has_the_same_servers(folder: Path) -> None:
    secure = parse_address(url_of(issue(folder, "node", "n1"))).store_url("node")
    assert secure.startswith(f"remote+tls://{SERVERS}/?cluster=shop&environment=staging&role=node&name=n1&ca=")
    plain = parse_address("nats://u:4nKx7PzQ2vLw9RtY@[::1]:1,127.0.0.1:2/shop")
    assert plain.store_url("node", "n1").startswith(
        "remote+nats://u:4nKx7PzQ2vLw9RtY@%5B::1%5D:1,127.0.0.1:2/?cluster=shop"
    )


@pytest.mark.parametrize("servers", ["127.0.0.1:1,10.0.0.1:2", "bus.internal"])
async def test_a_store_on_another_machine_needs_tls_too(servers: str) -> None:
    with pytest.raises(InvalidInput, match="another machine, so TLS is required"):
        await open_store(f"remote+nats://u:4nKx7PzQ2vLw9RtY@{servers}/?cluster=shop&role=node&name=n1")


def test_tls_without_files_is_refused() -> None:
    with pytest.raises(InvalidInput, match="TLS needs ca, cert and key"):
        parse_address("tls://bus:4222/shop")


# its certificate --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "name", "rule"),
    [
        ("manager", "", "is of the node 'n1', and this program connects as manager"),
        ("node", "n2", "'n2' is not the name in the certificate .*, which is 'n1'"),
    ],
)
def test_a_certificate_of_another_role_or_name_is_refused(folder: Path, role: Role, name: str, rule: str) -> None:
    address = parse_address(url_of(issue(folder, "node", "n1")))
    with pytest.raises(InvalidInput, match=rule):
        address.name(role, name)


def test_a_certificate_counts_from_its_beginning_to_its_end(folder: Path) -> None:
    clock = VirtualClock()
    files = issue(folder, "node", "n1", days=10, clock=clock)
    address = parse_address(url_of(files))
    assert address.name("node", clock=clock) == "n1"
    assert expiry_warning(files.cert, clock=clock).startswith("the certificate node-n1.pem expires in 10 days")
    early, late = VirtualClock(), VirtualClock()
    early.advance(-3 * 3600)
    late.advance(11 * 86400)
    with pytest.raises(InvalidInput, match=r"valid from .* and the clock of this machine says .*; correct the clock"):
        address.name("node", clock=early)
    with pytest.raises(InvalidInput, match=r"expired at .*; make another: mainstay cluster certs issue node n1"):
        address.name("node", clock=late)
    assert "has expired" in expiry_warning(files.cert, clock=late)
    assert expiry_warning(issue(folder, "node", "n2", clock=clock).cert, clock=clock) == ""


def test_a_certificate_of_another_authority_is_refused_before_it_is_sent(folder: Path, tmp_path: Path) -> None:
    make_authority(tmp_path / "other", cluster="shop", environment="staging")
    foreign = issue(tmp_path / "other", "node", "n1")
    mixed = CertificateFiles(ca=folder / "ca.pem", cert=foreign.cert, key=foreign.key, identity=foreign.identity)
    with pytest.raises(InvalidInput, match=r"is not of an authority in .*; is it of another cluster"):
        parse_address(url_of(mixed)).name("node")


def test_files_that_are_missing_damaged_or_do_not_fit_are_named(folder: Path) -> None:
    files, other = issue(folder, "node", "n1"), issue(folder, "node", "n2")
    damaged = folder / "damaged.pem"
    damaged.write_text("nothing")
    for change, rule in (
        ({"cert": folder / "none.pem"}, "cert: there is no file"),
        ({"key": other.key}, "key: .*node-n2.key is not the key of .*node-n1.pem"),
        ({"cert": damaged}, "damaged.pem or .* is damaged, or not PEM"),
        ({"ca": damaged}, "ca: .*damaged.pem holds no certificate"),
    ):
        used = {"ca": files.ca, "cert": files.cert, "key": files.key, **change}
        with pytest.raises(InvalidInput, match=rule):
            parse_address(f"tls://bus:4222?ca={used['ca']}&cert={used['cert']}&key={used['key']}")


def test_a_key_that_cannot_be_read_is_named(folder: Path) -> None:
    files = issue(folder, "node", "n1")
    files.key.unlink()
    files.key.mkdir()
    with pytest.raises(InvalidInput, match=r"key: .*node-n1.key cannot be read: Is a directory"):
        parse_address(url_of(files))


# the folder of the authority ----------------------------------------------------------------------------------


def test_a_folder_is_for_one_cluster(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="has the authority of shop/staging; use a folder for each"):
        make_authority(folder, cluster="shop", environment="production")


def test_members_of_another_cluster_are_not_written_into_the_configuration(folder: Path, tmp_path: Path) -> None:
    issue(folder, "server", "bus", hosts=["bus"])
    make_authority(tmp_path / "other", cluster="other")
    files = issue(tmp_path / "other", "node", "n1")
    files.cert.rename(folder / "node-n1.pem")
    with pytest.raises(InvalidInput, match=r"node-n1.pem is of other/default, and the authority of shop/staging"):
        write_server_config(folder, listen="127.0.0.1:1", server="bus")


def test_an_authority_is_retired_when_no_certificate_needs_it(folder: Path) -> None:
    issue(folder, "node", "n1")
    make_authority(folder, cluster="shop", environment="staging")
    issue(folder, "node", "n2")
    with pytest.raises(InvalidInput, match=r"to be issued again first: node-n1.pem$"):
        retire_authority(folder)
    again = issue(folder, "node", "n1")
    assert len(retire_authority(folder)) == 2
    assert (folder / "ca.pem").read_text().count("BEGIN CERTIFICATE") == 1
    assert parse_address(url_of(again)).name("node") == "n1"
    assert stat.S_IMODE((folder / "ca.key").stat().st_mode) == 0o600


def test_servers_of_one_bus_know_each_other_by_certificate(folder: Path) -> None:
    issue(folder, "server", "bus", hosts=["bus"])
    with pytest.raises(InvalidInput, match="no certificate of a member"):
        write_server_config(folder, listen="0.0.0.0:4222", server="bus")
    issue(folder, "manager", "m1")
    routes = ["bus-0:6222", "bus-1:6222"]
    text = write_server_config(
        folder, listen="0.0.0.0:4222", server="bus", routes=routes, http="0.0.0.0:8222", certs=Path("/certs")
    ).read_text()
    assert '"nats://bus-0:6222"' in text
    assert 'cert_file: "/certs/server-bus.pem"' in text
    assert 'http: "0.0.0.0:8222"' in text
    assert text.count("verify: true") == 1
    assert [each.name for each in identities(folder)] == ["m1"]
    with pytest.raises(InvalidInput, match="has no certificate of the server 'none'; make it"):
        write_server_config(folder, listen="0.0.0.0:4222", server="none")


# the queues of nodes --------------------------------------------------------------------------------------------


def test_a_manager_reads_the_queues_of_a_node_from_its_certificate(folder: Path) -> None:
    issue(folder, "node", "n1")
    issue(folder, "node", "n2", queues=["mail", "sms"])
    now_s = 0.0
    queues = NodeQueues(folder, now_s=lambda: now_s)
    assert [queues.of("n1"), queues.of("n2"), queues.of("n3")] == [None, ("mail", "sms"), ()]

    issue(folder, "node", "n2", queues=["mail"])
    issue(folder, "node", "n3", queues=["sms"])
    now_s += LOOK_S
    assert [queues.of("n2"), queues.of("n3")] == [("mail",), ("sms",)]
    assert node_queues(folder) == {"n1": (), "n2": ("mail",), "n3": ("sms",)}


def test_a_damaged_certificate_takes_no_queues_from_other_nodes(folder: Path) -> None:
    issue(folder, "node", "n1", queues=["mail"])
    now_s = 0.0
    queues = NodeQueues(folder, now_s=lambda: now_s)
    assert queues.of("n1") == ("mail",)
    (folder / "node-n9.pem").write_text("half")
    now_s += LOOK_S
    assert queues.of("n1") == ("mail",)


def test_without_an_option_the_folder_is_that_of_its_own_certificate(folder: Path) -> None:
    secure = parse_address(url_of(issue(folder, "manager", "m1")))
    assert certs_folder(secure, "") == folder
    assert certs_folder(secure, "elsewhere") == Path("elsewhere")
    assert certs_folder(parse_address("nats://u:4nKx7PzQ2vLw9RtY@127.0.0.1/shop"), "") is None
    assert NodeQueues(None).of("n1") is None


# the bus ----------------------------------------------------------------------------------------------------------


def test_a_bus_that_cannot_carry_the_messages_is_refused() -> None:
    check_joined(version=(2, 15, 1), max_payload=1_100_000)
    with pytest.raises(BusError, match="set max_payload to 1100000"):
        check_joined(version=(2, 15, 1), max_payload=1024 * 1024)
    with pytest.raises(BusError, match=r"nats-server 2\.9\.0 is too old: 2\.10\.4 or later"):
        check_joined(version=(2, 9, 0), max_payload=1_100_000)


GOOD = BusEngine(name="bus-0", version="2.15.1", max_payload=1_100_000, ping_interval_s=2, ping_max=2)
SLOW = BusEngine(name="bus-1", version="2.10.4", max_payload=1_000_000, ping_interval_s=120, ping_max=2)


@pytest.mark.parametrize(
    ("engines", "presence", "denied", "words"),
    [
        ([GOOD], True, [], []),
        ([GOOD], False, [], ["does not report connections to managers"]),
        ([GOOD], True, ["Permissions Violation"], ["refuses something that a manager needs (Permissions Violation)"]),
        ([SLOW], True, [], ["notices a frozen client after 6m", "has a max_payload of 1000000"]),
        ([GOOD, SLOW], True, [], ["after 6m", "max_payload", "different versions: bus-0 2.15.1, bus-1 2.10.4"]),
    ],
)
def test_what_an_operator_should_change_about_the_bus_is_a_finding(
    engines: Sequence[BusEngine], presence: bool, denied: Sequence[str], words: Sequence[str]
) -> None:
    found = findings(engines, presence=presence, denied=denied, away_s=10.0)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


# settings -----------------------------------------------------------------------------------------------------------


def test_all_settings_of_a_program_are_one_object() -> None:
    found = ClusterSettings.from_env({"MAINSTAY_CLUSTER_PRESET": "local", "MAINSTAY_CLUSTER_JOIN_COMMAND": "3s"})
    assert (found.liveness.closed_s, found.join.command_s, found.join.probe_s) == (10.0, 3.0, 0.5)


def test_a_misspelled_variable_is_named_with_the_one_that_is_meant() -> None:
    given = {
        "MAINSTAY_CLUSTER_AWAYS": "1s",
        "MAINSTAY_CLUSTER_URL": "x",
        "MAINSTAY_CLUSTER_PORT_4222_TCP": "y",
        "A": "z",
    }
    assert misspelled(given) == {"MAINSTAY_CLUSTER_AWAYS": "MAINSTAY_CLUSTER_AWAY"}
