"""Options that several load commands have, and those of one command that belong together."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from ...cli import OptionGroup, panel
from ...errors import InvalidInput

_request = panel("Request")
_load = panel("Load")
_connection = panel("Connection")
_system = panel("System under test")
_result = panel("Result")
_cluster = panel("On the nodes of a cluster")
_report = partial(panel("Reports"), metavar="PATH")


class AmountOptions(OptionGroup, frozen=True, kw_only=True):
    """How much load a run makes. The fields are those of `LoadOptions`."""

    vus: Annotated[int | None, _load("--vus", "-u", min=1, help="Number of virtual users (closed model).")] = None
    duration: Annotated[str | None, _load("--duration", "-d", metavar="TIME", help="Length of the test.")] = None
    rate: Annotated[
        str | None, _load("--rate", "-r", metavar="2000/s", help="Iterations started a second (open model).")
    ] = None
    stages: Annotated[
        str | None,
        _load("--stages", metavar="30s:100,...", help="Ramp users or rate: time:target, separated by commas."),
    ] = None
    iterations: Annotated[
        int | None, _load("--iterations", "-n", min=1, help="Stop after this many iterations in all.")
    ] = None
    arrivals: Annotated[
        str | None,
        _load("--arrivals", metavar="constant|poisson", help="With a rate: start iterations evenly, or at random."),
    ] = None
    max_in_flight: Annotated[
        int | None, _load("--max-in-flight", min=1, help="With a rate: iterations in flight, at most.")
    ] = None
    catch_up: Annotated[
        bool | None,
        _load(
            "--catch-up/--no-catch-up", help="With a rate: iterations that cannot start in time wait, or are dropped."
        ),
    ] = None
    think: Annotated[str | None, _load("--think", metavar="1s-3s", help="Pause after each iteration.")] = None
    pacing: Annotated[
        str | None,
        _load("--pacing", metavar="TIME", help="Time from the start of one iteration to the start of the next."),
    ] = None
    processes: Annotated[
        int | None,
        _load("--processes", "-p", min=1, help="Number of generator processes.", show_default="one per core"),
    ] = None
    drain: Annotated[
        str | None, _load("--drain", metavar="TIME", help="Time that iterations in flight have to finish at the end.")
    ] = None
    seed: Annotated[int, _load("--seed", help="Seed for every random choice.")] = 0


class RunOptions(OptionGroup, frozen=True, kw_only=True):
    """What a run tests, and how its result is shown and stored."""

    base_url: Annotated[
        str | None, _system("--base-url", metavar="URL", help="Prefix of every URL that starts with /.")
    ] = None
    set_: Annotated[
        list[str] | None, _system("--set", metavar="KEY=VALUE", help="Set a value of self.params; may be repeated.")
    ] = None
    timeout: Annotated[str | None, _system("--timeout", metavar="TIME", help="Time limit of each call.")] = None
    threshold: Annotated[
        list[str] | None,
        _result("--threshold", "-t", metavar="TEXT", help="Add a threshold, such as 'p95 < 200ms'; may be repeated."),
    ] = None
    strict: Annotated[bool, _result("--strict", help="Exit with 98 if the result is not trustworthy.")] = False
    ui: Annotated[
        str | None,
        _result(
            "--ui",
            metavar="full|ci|none",
            help="Live display: full screen, plain lines, or none.",
            show_default="full on a terminal, else ci",
        ),
    ] = None
    name: Annotated[str | None, typer.Option("--name", help="Name of the test.", show_default="name of the file")] = (
        None
    )
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="Tag of the job; may be repeated.")
    ] = None
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            "-s",
            metavar="URL",
            help="Store of the job. With --detach, the default is MAINSTAY_STORE.",
            show_default="SQLite in .mainstay",
        ),
    ] = None
    detach: Annotated[bool, typer.Option("--detach", help="Submit the job, print its id and exit.")] = False
    queue: Annotated[
        str | None, typer.Option("--queue", help="With --detach: queue of the job.", show_default="default")
    ] = None


class ConnectionOptions(OptionGroup, frozen=True, kw_only=True):
    """How clients connect to a server."""

    insecure: Annotated[bool, _connection("--insecure", "-k", help="Do not verify the server's certificate.")] = False
    ca: Annotated[
        str | None, _connection("--ca", metavar="FILE", help="CA certificates to trust (PEM), instead of the system's.")
    ] = None
    cert: Annotated[str | None, _connection("--cert", metavar="FILE", help="Client certificate (PEM).")] = None
    key: Annotated[str | None, _connection("--key", metavar="FILE", help="Private key of the client certificate.")] = (
        None
    )
    proxy: Annotated[
        str | None, _connection("--proxy", metavar="URL", help="Proxy to connect through: http://host:port.")
    ] = None


class ClusterRunOptions(OptionGroup, frozen=True, kw_only=True):
    """A run on the nodes of a cluster: on which, and what travels there."""

    nodes: Annotated[
        int | None, _cluster("--nodes", min=1, help="Spread the load over this many nodes of a cluster.")
    ] = None
    cluster: Annotated[
        str | None,
        _cluster(
            "--cluster",
            metavar="URL",
            help="URL of the cluster for an operator; http(s)://HOST:PORT of a server of it, with MAINSTAY_TOKEN; "
            "or the folder of `mainstay cluster up`.",
            show_default="MAINSTAY_CLUSTER_URL, else the cluster started here",
        ),
    ] = None
    cores: Annotated[
        int | None,
        _cluster(
            "--cores", min=1, help="Generator processes over all nodes, one on each core.", show_default="by --share"
        ),
    ] = None
    share: Annotated[
        str | None,
        _cluster(
            "--share",
            metavar="low|normal|high|exclusive|auto",
            help="Share of the cores of the cluster that the run gets.",
            show_default="auto",
        ),
    ] = None
    label: Annotated[
        list[str] | None,
        _cluster("--label", metavar="NAME=VALUE", help="Use only nodes with this label; may be repeated."),
    ] = None
    on_loss: Annotated[
        str | None,
        _cluster(
            "--on-loss",
            metavar="replace|restart|fail|continue",
            help="What happens if a node is lost under load.",
            show_default="replace",
        ),
    ] = None
    wait: Annotated[
        str | None,
        _cluster(
            "--wait",
            metavar="TIME",
            help="Wait this long for nodes that are still starting, and for free cores.",
            show_default="no wait for nodes; for cores until Ctrl-C",
        ),
    ] = None
    include: Annotated[
        list[str] | None,
        _cluster(
            "--include",
            metavar="GLOB",
            help="More files to send, such as 'plugins/**'; modules bring their imports. Repeatable.",
        ),
    ] = None
    data: Annotated[
        list[str] | None,
        _cluster("--data", metavar="FILE_OR_DIR", help="Data to send; the files of feeds are sent anyway. Repeatable."),
    ] = None
    job_key: Annotated[
        str | None,
        _cluster(
            "--job-key",
            metavar="TEXT",
            help="Idempotency key: submits with the same key and test are one job.",
            show_default="a random one",
        ),
    ] = None
    durability: Annotated[
        str | None,
        _cluster(
            "--durability",
            metavar="local|replicated|applied",
            help="What the job must survive once it is submitted.",
            show_default="as the store",
        ),
    ] = None

    @property
    def wanted(self) -> bool:
        """Whether the run is on nodes. Refuses options that say more about such a run without asking for it."""
        if any(getattr(self, name) is not None for name in ("nodes", "cluster", "cores", "share")):
            return True
        for name in self.__struct_fields__:
            if getattr(self, name) is not None:
                rule = "is for a run on the nodes of a cluster; add --nodes N or --cluster URL"
                raise InvalidInput(name.replace("_", "-"), rule)
        return False

    def job_options(self) -> dict[str, Any]:
        """The options of the job."""
        options = {"key": self.job_key, "durability": self.durability}
        return {name: value for name, value in options.items() if value is not None}


class ComparisonPaths(OptionGroup, frozen=True, kw_only=True):
    """The files that a comparison is written to."""

    html: Annotated[str | None, _report("--html", help="Write an HTML page; - for stdout.")] = None
    json: Annotated[str | None, _report("--json", help="Write JSON; - for stdout.")] = None

    def given(self) -> dict[str, str]:
        """The paths by kind of report."""
        paths: dict[str, Any] = msgspec.structs.asdict(self)
        return {kind: path for kind, path in paths.items() if path is not None}


class ReportPaths(ComparisonPaths, frozen=True, kw_only=True):
    """The files that reports of a run are written to."""

    csv: Annotated[
        str | None, _report("--csv", help="Write CSV: steps, and a second file of points; - for steps on stdout.")
    ] = None
    junit: Annotated[str | None, _report("--junit", help="Write JUnit XML for build servers; - for stdout.")] = None
    hdr: Annotated[str | None, _report("--hdr", help="Write histograms for HdrHistogram's tools.")] = None
    otlp: Annotated[str | None, _report("--otlp", help="Write histograms as OTLP in JSON.")] = None


class RunPaths(ReportPaths, frozen=True, kw_only=True):
    """The files that a run writes."""

    ndjson: Annotated[
        str | None, _report("--ndjson", help="Record the stream of windows; .zst compresses, - for stdout.")
    ] = None


class PingOptions(OptionGroup, frozen=True, kw_only=True):
    """The request of a ping."""

    method: Annotated[
        str | None, _request("--method", "-X", help="HTTP method.", show_default="GET; POST with --data")
    ] = None
    header: Annotated[
        list[str] | None,
        _request("--header", "-H", metavar="NAME:VALUE", help="Header to send; may be repeated."),
    ] = None
    data: Annotated[
        str | None,
        _request("--data", "-d", metavar="TEXT", help="Data to send; @FILE reads a file, @- reads stdin."),
    ] = None
    http2: Annotated[bool, _connection("--http2", help="Use HTTP/2 only.")] = False
    redirects: Annotated[int, _connection("--redirects", min=0, help="Redirects to follow, at most.")] = 10
    timeout: Annotated[str, _connection("--timeout", "-t", metavar="TIME", help="Time limit of the whole call.")] = (
        "30s"
    )
